-- One execution of a workflow. Everything about it is locked through this row.
CREATE TABLE runs (
  id text COLLATE "C" PRIMARY KEY, workflow text COLLATE "C" NOT NULL, model text COLLATE "C" NOT NULL, key text COLLATE "C", status text COLLATE "C" NOT NULL,
  version bigint NOT NULL, input bytea NOT NULL, codec text COLLATE "C" NOT NULL, input_digest text COLLATE "C" NOT NULL,
  result bytea, error bytea, definition text COLLATE "C", on_failure text COLLATE "C" NOT NULL, parent text COLLATE "C", queue text COLLATE "C" NOT NULL,
  priority integer NOT NULL, tags text COLLATE "C" NOT NULL, token bigint NOT NULL, awaited boolean NOT NULL,
  superseded boolean NOT NULL, remaining integer NOT NULL, active integer NOT NULL, gave_up integer NOT NULL,
  entries bigint NOT NULL, reason text COLLATE "C", due bigint NOT NULL, created bigint NOT NULL, started bigint,
  finished bigint, updated bigint NOT NULL
);
CREATE UNIQUE INDEX runs_by_key ON runs (workflow, key) WHERE key IS NOT NULL AND NOT superseded;
CREATE INDEX runs_open ON runs (workflow, id) WHERE finished IS NULL;
CREATE INDEX runs_by_tag ON runs USING gin ((tags::jsonb)) WHERE tags <> '{}';
CREATE INDEX runs_ended ON runs (finished) WHERE finished IS NOT NULL;

-- A claimable piece of work: one attempt of a node. Also the record of what was attempted.
CREATE TABLE work (
  run text COLLATE "C" NOT NULL, node text COLLATE "C" NOT NULL, attempt integer NOT NULL, workflow text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL, required integer NOT NULL, completed integer NOT NULL,
  token bigint NOT NULL, queue text COLLATE "C" NOT NULL, priority integer NOT NULL, gate smallint NOT NULL,
  due bigint NOT NULL, timeout bigint, policy text COLLATE "C", worker text COLLATE "C", payload bytea, codec text COLLATE "C" NOT NULL, result bytea,
  error bytea, outcome bytea, parents text COLLATE "C", ancestry text COLLATE "C", failures integer NOT NULL, losses integer NOT NULL,
  created bigint NOT NULL, started bigint, finished bigint,
  PRIMARY KEY (run, node, attempt)
);
CREATE INDEX work_claimable ON work (queue, priority DESC, due) WHERE status = 'ready' AND gate = 0;
CREATE INDEX work_delayed ON work (queue, due) WHERE status = 'ready' AND gate = 1;
CREATE INDEX work_leased ON work (worker) WHERE status = 'leased';
CREATE INDEX work_dead ON work (finished) WHERE status = 'dead';

-- The append-only record of a run.
CREATE TABLE history (
  run text COLLATE "C" NOT NULL, sequence bigint NOT NULL, kind text COLLATE "C" NOT NULL, at bigint NOT NULL, data bytea NOT NULL,
  codec text COLLATE "C" NOT NULL, PRIMARY KEY (run, sequence)
);

-- A row to lock for an event name that someone waits for or sends to.
CREATE TABLE topics (name text COLLATE "C" PRIMARY KEY);

-- What suspended runs wait for.
CREATE TABLE waits (
  run text COLLATE "C" NOT NULL, slot integer NOT NULL, topic text COLLATE "C" NOT NULL, since bigint NOT NULL, PRIMARY KEY (run, slot)
);
CREATE INDEX waits_by_topic ON waits (topic, since, run);

-- Events that nobody has consumed yet.
CREATE TABLE events (
  id text COLLATE "C" PRIMARY KEY, name text COLLATE "C" NOT NULL, target text COLLATE "C", payload bytea NOT NULL, codec text COLLATE "C" NOT NULL,
  at bigint NOT NULL, expires bigint
);
CREATE INDEX events_queued ON events (name, target, at, id);

-- Maintenance mode and drained workflows.
CREATE TABLE holds (
  scope text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, "by" text COLLATE "C" NOT NULL, since bigint NOT NULL, PRIMARY KEY (scope, name)
);

-- Workers; the lease of everything a worker holds is its one row here.
CREATE TABLE workers (
  id text COLLATE "C" PRIMARY KEY, host text COLLATE "C" NOT NULL, pid integer NOT NULL, queues text COLLATE "C" NOT NULL, workflows text COLLATE "C" NOT NULL,
  actions text COLLATE "C" NOT NULL, concurrency integer NOT NULL, provable boolean NOT NULL, started bigint NOT NULL,
  seen bigint NOT NULL, lease_until bigint NOT NULL
);

-- For people: the names that the seeds give to parts of `work`.
CREATE VIEW action_queue AS SELECT run, node, attempt, name, queue, priority, due, status, token, worker
  FROM work WHERE status IN ('ready', 'leased');
CREATE VIEW node_readiness AS SELECT run, node, required, completed, status, created FROM work WHERE attempt = 1;
CREATE VIEW outbox AS SELECT * FROM work WHERE kind = 'effect';
CREATE VIEW step_executions AS SELECT run, node, attempt, status, ancestry, started, finished, outcome, error FROM work;
CREATE VIEW dead_letters AS SELECT run, node, attempt, workflow, name, error, finished FROM work WHERE status = 'dead';
