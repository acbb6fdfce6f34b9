-- What soft k = 0 takes longer than no speculation, as `specdeck sweep --hard` measured it.

CREATE TABLE soft_costs (
    id        INTEGER PRIMARY KEY,
    t         REAL NOT NULL,          -- Unix time, seconds
    config    TEXT NOT NULL,          -- digest of the config's path
    arguments TEXT NOT NULL,          -- digest of the engine's arguments and of vLLM's version
    cost      REAL NOT NULL,          -- a share: 0.07 is seven percent longer
    low       REAL NOT NULL,          -- its 95 % interval
    high      REAL NOT NULL,
    batch     REAL,                   -- requests in a step, on average
    load      TEXT NOT NULL           -- the load that it was measured under
) STRICT;

CREATE INDEX soft_costs_by_config ON soft_costs (config, arguments, t);
