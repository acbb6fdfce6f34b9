-- Where a change comes from: operator, trial, sweep, undo, ...; NULL of one from before this.

ALTER TABLE actions ADD COLUMN origin TEXT;
