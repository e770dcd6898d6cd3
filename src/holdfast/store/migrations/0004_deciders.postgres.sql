-- Positions of events, over all streams. A writer has its transaction id before it takes one (see postgres_horizon.py).
CREATE SEQUENCE stream_positions;

-- The events of deciders' instances: without a gap for each instance, and in one order that projections follow.
CREATE TABLE stream (
  run text COLLATE "C" NOT NULL, sequence bigint NOT NULL, workflow text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL, version integer NOT NULL, at bigint NOT NULL, data bytea NOT NULL, codec text COLLATE "C" NOT NULL,
  system boolean NOT NULL, cause text COLLATE "C" NOT NULL, position bigint NOT NULL, PRIMARY KEY (run, sequence)
);
CREATE INDEX stream_by_position ON stream (workflow, position) WHERE NOT system;

-- States folded so far. Deleting any of these rows costs time and nothing else.
CREATE TABLE snapshots (
  run text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL, state bytea NOT NULL, codec text COLLATE "C" NOT NULL,
  code text COLLATE "C" NOT NULL, at bigint NOT NULL
);

-- Which inputs came, and what became of them; only where that is asked for.
CREATE TABLE observations (
  run text COLLATE "C" NOT NULL, number bigint NOT NULL, workflow text COLLATE "C" NOT NULL, type text COLLATE "C" NOT NULL,
  at bigint NOT NULL, payload bytea, codec text COLLATE "C" NOT NULL, source text COLLATE "C" NOT NULL, command text COLLATE "C",
  outcome text COLLATE "C" NOT NULL, before text COLLATE "C", after text COLLATE "C", PRIMARY KEY (run, number)
);
CREATE INDEX observations_by_workflow ON observations (workflow);

-- For people: the names that the seeds give to instances, their timers and what they were given.
CREATE VIEW workflow_instances AS SELECT workflow AS workflow_type, key AS workflow_id, id AS run, status, base AS events,
  remaining AS open_effects, mailbox AS inbox, created, updated, finished AS completed_at FROM runs WHERE model = 'decider';
CREATE VIEW timers AS SELECT run, node, workflow, name, due, status, token, failures, error, payload, codec
  FROM work WHERE kind = 'timer';
CREATE VIEW input_observations AS SELECT run, number, workflow, type, at, source, command, outcome, before, after FROM observations;

-- Ids of commands are kept for as long as their decider says; the oldest go first.
CREATE INDEX inputs_by_age ON inputs (at);
