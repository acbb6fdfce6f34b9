-- The divergence check and the history of fingerprints.

-- One run of the divergence check. A run that was cut short goes on under the same key.
CREATE TABLE checks (
    id           INTEGER PRIMARY KEY,
    key          TEXT NOT NULL,       -- digest of arms, prompts and settings
    t            REAL NOT NULL,       -- Unix time of its beginning, seconds
    url          TEXT NOT NULL,       -- of the serving arm, without credentials
    finished     REAL,                -- Unix time of its end; NULL while it is unfinished
    facts        TEXT NOT NULL,       -- JSON object: fingerprints and facts of the arms
    totals       TEXT NOT NULL,       -- JSON object: sums and the calibration so far
    summary      TEXT                 -- JSON object, as `check --json` prints it; NULL before the end
) STRICT;

CREATE INDEX checks_by_key ON checks (key, t);
CREATE INDEX checks_by_url ON checks (url, t);

-- One pair of answers to one prompt; equal pairs are rows too, so that a run can be resumed.
CREATE TABLE check_cases (
    check_id     INTEGER NOT NULL REFERENCES checks (id) ON DELETE CASCADE,
    prompt       INTEGER NOT NULL,    -- its number, from 1
    pair         TEXT NOT NULL,       -- cross, reference or serving
    prompt_hash  TEXT NOT NULL,       -- SHA-256 of the request, 16 digits
    refused      TEXT,                -- why the engine did not answer; NULL when it did
    diverged     INTEGER NOT NULL,    -- 0 or 1
    detail       TEXT,                -- JSON object of the divergence; NULL when there is none
    PRIMARY KEY (check_id, prompt, pair)
) STRICT, WITHOUT ROWID;

CREATE INDEX check_cases_diverged ON check_cases (check_id, pair, prompt) WHERE diverged;

-- A fingerprint whenever its names were other than the time before.
CREATE TABLE fingerprints (
    id        INTEGER PRIMARY KEY,    -- the number behind @ on the command line
    t         REAL NOT NULL,          -- Unix time, seconds
    url       TEXT NOT NULL,          -- without credentials
    build     TEXT NOT NULL,
    path      TEXT NOT NULL,
    behaviour TEXT,                   -- NULL when the probe set was not asked
    seen      TEXT NOT NULL           -- JSON object, as `fingerprint show --json` prints it
) STRICT;

CREATE INDEX fingerprints_by_url ON fingerprints (url, id);
