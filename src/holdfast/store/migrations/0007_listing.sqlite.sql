-- Runs are listed by when they were made. Neither column ever changes, so that only a start writes to it.
CREATE INDEX runs_newest ON runs (created, id);
