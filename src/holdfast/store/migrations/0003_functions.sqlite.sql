-- Where a function's history begins, after it went on as another call.
ALTER TABLE runs ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
-- How many events were sent to a run that it has not taken.
ALTER TABLE runs ADD COLUMN mailbox INTEGER NOT NULL DEFAULT 0;
-- How many runs there are above it that started each other: a workflow that starts itself for ever is stopped.
ALTER TABLE runs ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;

-- Which of a run's waits a row belongs to, and what was asked for there.
ALTER TABLE waits ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE waits ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE waits ADD COLUMN digest TEXT NOT NULL DEFAULT '';

-- What becomes of events that nobody takes.
ALTER TABLE events ADD COLUMN status TEXT NOT NULL DEFAULT 'queued';
ALTER TABLE events ADD COLUMN on_target_end TEXT NOT NULL DEFAULT 'discard';
ALTER TABLE events ADD COLUMN reason TEXT;
CREATE INDEX events_by_target ON events (target) WHERE target IS NOT NULL;
CREATE INDEX events_expiring ON events (expires) WHERE expires IS NOT NULL;
CREATE INDEX events_not_queued ON events (status) WHERE status <> 'queued';

-- Ids of events and commands that were taken: each applies once.
CREATE TABLE inputs (
  scope TEXT NOT NULL, id TEXT NOT NULL, run TEXT, answer TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX inputs_by_run ON inputs (run) WHERE run IS NOT NULL;
