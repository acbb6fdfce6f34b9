-- What came of a change: `applied`, or `unknown` where whoever asked for it did not live to hear.

ALTER TABLE actions ADD COLUMN outcome TEXT NOT NULL DEFAULT 'applied';
