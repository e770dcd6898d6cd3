-- The events of deciders' instances: without a gap for each instance, and in one order that projections follow.
-- There is one writer, so the rowid is the order of commits; AUTOINCREMENT never gives a position twice.
CREATE TABLE stream (
  run TEXT NOT NULL, sequence INTEGER NOT NULL, workflow TEXT NOT NULL, key TEXT NOT NULL, type TEXT NOT NULL,
  version INTEGER NOT NULL, at INTEGER NOT NULL, data BLOB NOT NULL, codec TEXT NOT NULL, system INTEGER NOT NULL,
  cause TEXT NOT NULL, position INTEGER PRIMARY KEY AUTOINCREMENT, UNIQUE (run, sequence)
) STRICT;
CREATE INDEX stream_by_position ON stream (workflow, position) WHERE system = 0;

-- States folded so far. Deleting any of these rows costs time and nothing else.
CREATE TABLE snapshots (
  run TEXT PRIMARY KEY, sequence INTEGER NOT NULL, state BLOB NOT NULL, codec TEXT NOT NULL, code TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which inputs came, and what became of them; only where that is asked for.
CREATE TABLE observations (
  run TEXT NOT NULL, number INTEGER NOT NULL, workflow TEXT NOT NULL, type TEXT NOT NULL, at INTEGER NOT NULL, payload BLOB,
  codec TEXT NOT NULL, source TEXT NOT NULL, command TEXT, outcome TEXT NOT NULL, before TEXT, after TEXT,
  PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX observations_by_workflow ON observations (workflow);

-- For people: the names that the seeds give to instances, their timers and what they were given.
CREATE VIEW workflow_instances AS SELECT workflow AS workflow_type, key AS workflow_id, id AS run, status, base AS events,
  remaining AS open_effects, mailbox AS inbox, created, updated, finished AS completed_at FROM runs WHERE model = 'decider';
CREATE VIEW timers AS SELECT run, node, workflow, name, due, status, token, failures, error, payload, codec
  FROM work WHERE kind = 'timer';
CREATE VIEW input_observations AS SELECT run, number, workflow, type, at, source, command, outcome, before, after FROM observations;

-- Ids of commands are kept for as long as their decider says; the oldest go first.
CREATE INDEX inputs_by_age ON inputs (at);
