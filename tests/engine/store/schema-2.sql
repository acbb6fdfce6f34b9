-- A store with a row of everything, as schema 2 made it: sqlite3 FILE .dump
PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
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
INSERT INTO "actions" VALUES(1,1000.0,'ana','http://gpu-1:8000','demo','one','{"k": 5}','{"k": 3}','trying','specdeck set http://gpu-1:8000 k=5',3.0);
INSERT INTO "actions" VALUES(2,2000.0,'ben','http://gpu-1:8000','demo',NULL,'{"k": 3, "policy": "fixed"}','{"policy": "goodput"}',NULL,'specdeck set http://gpu-1:8000 k=5',NULL);
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
INSERT INTO "check_cases" VALUES(1,1,'cross','aaaa',NULL,1,'{"index": 7}');
INSERT INTO "check_cases" VALUES(1,2,'cross','bbbb','too long',0,NULL);
INSERT INTO "check_cases" VALUES(2,1,'cross','cccc',NULL,0,NULL);
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
INSERT INTO "checks" VALUES(1,'done',1100.0,'http://gpu-1:8000',1200.0,'{"vllm": "0.32.0"}','{"prompts": 2}','{"verdict": "pass", "mismatch_rate": 0.5}');
INSERT INTO "checks" VALUES(2,'open',1300.0,'http://gpu-1:8000',NULL,'{}','{"prompts": 1}',NULL);
CREATE TABLE fingerprints (
    id        INTEGER PRIMARY KEY,    -- the number behind @ on the command line
    t         REAL NOT NULL,          -- Unix time, seconds
    url       TEXT NOT NULL,          -- without credentials
    build     TEXT NOT NULL,
    path      TEXT NOT NULL,
    behaviour TEXT,                   -- NULL when the probe set was not asked
    seen      TEXT NOT NULL           -- JSON object, as `fingerprint show --json` prints it
) STRICT;
INSERT INTO "fingerprints" VALUES(1,1400.0,'http://gpu-1:8000','sd1:bb8406867475b93fd','sd1:pa92108cf5ce92b1c',NULL,'{"t": 1400.0, "engine": "http://gpu-1:8000", "names": {"build": "sd1:bb8406867475b93fd", "path": "sd1:pa92108cf5ce92b1c", "behaviour": null}, "partial": [], "system_fingerprint": null, "stamped": null, "instance": null, "facts": {"engine": {"vllm": "0.32.0"}, "live": {"k": 6}}, "behaviour": null}');
CREATE TABLE starts (
    id        INTEGER PRIMARY KEY,
    t         REAL NOT NULL,          -- Unix time of the start, seconds
    config    TEXT NOT NULL,          -- digest of the config's path
    seconds   REAL NOT NULL           -- until the engine was ready
) STRICT;
INSERT INTO "starts" VALUES(1,900.0,'0123456789abcdef',31.5);
CREATE INDEX actions_by_url ON actions (url, t);
CREATE INDEX starts_by_config ON starts (config, t);
CREATE INDEX checks_by_key ON checks (key, t);
CREATE INDEX checks_by_url ON checks (url, t);
CREATE INDEX check_cases_diverged ON check_cases (check_id, pair, prompt) WHERE diverged;
CREATE INDEX fingerprints_by_url ON fingerprints (url, id);
COMMIT;
PRAGMA user_version = 2;
