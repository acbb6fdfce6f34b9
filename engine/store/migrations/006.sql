-- What a clock called old, and when: it is deleted once the clock has said so for a day.

CREATE TABLE condemned (
    t REAL NOT NULL,            -- Unix time at which it was noted
    before REAL NOT NULL,       -- what is older than this Unix time
    last_action INTEGER NOT NULL,
    last_check INTEGER NOT NULL -- the newest of each there was: later ones are not meant
);
