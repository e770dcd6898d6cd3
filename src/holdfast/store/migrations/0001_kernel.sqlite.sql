-- One execution of a workflow. Everything about it is locked through this row.
CREATE TABLE runs (
  id TEXT PRIMARY KEY, workflow TEXT NOT NULL, model TEXT NOT NULL, key TEXT, status TEXT NOT NULL,
  version INTEGER NOT NULL, input BLOB NOT NULL, codec TEXT NOT NULL, input_digest TEXT NOT NULL,
  result BLOB, error BLOB, definition TEXT, on_failure TEXT NOT NULL, parent TEXT, queue TEXT NOT NULL,
  priority INTEGER NOT NULL, tags TEXT NOT NULL, token INTEGER NOT NULL, awaited INTEGER NOT NULL,
  superseded INTEGER NOT NULL, remaining INTEGER NOT NULL, active INTEGER NOT NULL, gave_up INTEGER NOT NULL,
  entries INTEGER NOT NULL, reason TEXT, due INTEGER NOT NULL, created INTEGER NOT NULL, started INTEGER,
  finished INTEGER, updated INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX runs_by_key ON runs (workflow, key) WHERE key IS NOT NULL AND superseded = 0;
-- Not by a list of statuses: SQLite builds a temporary table for each IN, at every update of a run.
CREATE INDEX runs_open ON runs (workflow, id) WHERE finished IS NULL;
CREATE INDEX runs_ended ON runs (finished) WHERE finished IS NOT NULL;

-- A claimable piece of work: one attempt of a node. Also the record of what was attempted.
CREATE TABLE work (
  run TEXT NOT NULL, node TEXT NOT NULL, attempt INTEGER NOT NULL, workflow TEXT NOT NULL, kind TEXT NOT NULL,
  name TEXT NOT NULL, status TEXT NOT NULL, required INTEGER NOT NULL, completed INTEGER NOT NULL,
  token INTEGER NOT NULL, queue TEXT NOT NULL, priority INTEGER NOT NULL, gate INTEGER NOT NULL,
  due INTEGER NOT NULL, timeout INTEGER, policy TEXT, worker TEXT, payload BLOB, codec TEXT NOT NULL, result BLOB,
  error BLOB, outcome BLOB, parents TEXT, ancestry TEXT, failures INTEGER NOT NULL, losses INTEGER NOT NULL,
  created INTEGER NOT NULL, started INTEGER, finished INTEGER,
  PRIMARY KEY (run, node, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX work_claimable ON work (queue, priority DESC, due) WHERE status = 'ready' AND gate = 0;
CREATE INDEX work_delayed ON work (queue, due) WHERE status = 'ready' AND gate = 1;
CREATE INDEX work_leased ON work (worker) WHERE status = 'leased';
CREATE INDEX work_dead ON work (finished) WHERE status = 'dead';

-- The append-only record of a run.
CREATE TABLE history (
  run TEXT NOT NULL, sequence INTEGER NOT NULL, kind TEXT NOT NULL, at INTEGER NOT NULL, data BLOB NOT NULL,
  codec TEXT NOT NULL, PRIMARY KEY (run, sequence)
) STRICT, WITHOUT ROWID;

-- A row to lock for an event name that someone waits for or sends to.
CREATE TABLE topics (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- What suspended runs wait for.
CREATE TABLE waits (
  run TEXT NOT NULL, slot INTEGER NOT NULL, topic TEXT NOT NULL, since INTEGER NOT NULL, PRIMARY KEY (run, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_by_topic ON waits (topic, since, run);

-- Events that nobody has consumed yet.
CREATE TABLE events (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, target TEXT, payload BLOB NOT NULL, codec TEXT NOT NULL,
  at INTEGER NOT NULL, expires INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX events_queued ON events (name, target, at, id);

-- Maintenance mode and drained workflows.
CREATE TABLE holds (
  scope TEXT NOT NULL, name TEXT NOT NULL, "by" TEXT NOT NULL, since INTEGER NOT NULL, PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- Workers; the lease of everything a worker holds is its one row here.
CREATE TABLE workers (
  id TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, queues TEXT NOT NULL, workflows TEXT NOT NULL,
  actions TEXT NOT NULL, concurrency INTEGER NOT NULL, provable INTEGER NOT NULL, started INTEGER NOT NULL,
  seen INTEGER NOT NULL, lease_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- For people: the names that the seeds give to parts of `work`.
CREATE VIEW action_queue AS SELECT run, node, attempt, name, queue, priority, due, status, token, worker
  FROM work WHERE status IN ('ready', 'leased');
CREATE VIEW node_readiness AS SELECT run, node, required, completed, status, created FROM work WHERE attempt = 1;
CREATE VIEW outbox AS SELECT * FROM work WHERE kind = 'effect';
CREATE VIEW step_executions AS SELECT run, node, attempt, status, ancestry, started, finished, outcome, error FROM work;
CREATE VIEW dead_letters AS SELECT run, node, attempt, workflow, name, error, finished FROM work WHERE status = 'dead';
