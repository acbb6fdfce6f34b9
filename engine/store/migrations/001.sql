-- The audit log of changes, and how long engines took to start.

CREATE TABLE actions (
    id        INTEGER PRIMARY KEY,
    t         REAL NOT NULL,          -- Unix time, seconds
    who       TEXT NOT NULL,
    url       TEXT NOT NULL,          -- without credentials
    engine    TEXT NOT NULL,          -- what people call it
    instance  TEXT,                   -- the start of the engine that was changed
    before    TEXT NOT NULL,          -- JSON object of knobs
    after     TEXT NOT NULL,          -- JSON object of knobs
    reason    TEXT,
    undo      TEXT NOT NULL,          -- a command line
    observed  REAL                    -- draft tokens per draft; NULL when not observed
) STRICT;

CREATE INDEX actions_by_url ON actions (url, t);

CREATE TABLE starts (
    id        INTEGER PRIMARY KEY,
    t         REAL NOT NULL,          -- Unix time of the start, seconds
    config    TEXT NOT NULL,          -- digest of the config's path
    seconds   REAL NOT NULL           -- until the engine was ready
) STRICT;

CREATE INDEX starts_by_config ON starts (config, t);
