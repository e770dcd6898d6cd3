-- What a state graph had become after each step: whole, or as what changed since the step before.
CREATE TABLE checkpoints (
  run text COLLATE "C" NOT NULL, step bigint NOT NULL, whole boolean NOT NULL, state bytea NOT NULL, digest text COLLATE "C" NOT NULL,
  frontier bytea NOT NULL, key text COLLATE "C" NOT NULL, label text COLLATE "C", at bigint NOT NULL, totals bytea NOT NULL,
  PRIMARY KEY (run, step)
);
CREATE INDEX checkpoints_labelled ON checkpoints (run, step) WHERE label IS NOT NULL;
-- Calls to the outside world that its nodes made, as they answered, and questions to people.
CREATE TABLE recorded (
  run text COLLATE "C" NOT NULL, node text COLLATE "C" NOT NULL, attempt int NOT NULL, call int NOT NULL, name text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL, request bytea NOT NULL, request_hash text COLLATE "C" NOT NULL, response bytea,
  response_hash text COLLATE "C", error bytea, at bigint NOT NULL, duration bigint NOT NULL, PRIMARY KEY (run, node, attempt, call)
);

-- For people: the names that the seed of graphs gives to these.
CREATE VIEW graph_checkpoints AS SELECT run AS run_id, step AS step_id, state, frontier, key AS idempotency_key, at AS timestamp,
  trim(chr(10) FROM label) AS label FROM checkpoints;
CREATE VIEW recorded_ios AS SELECT run AS run_id, node AS node_id, attempt, call, name, request, response, response_hash AS hash,
  at AS timestamp, duration / 1000 AS duration_ms FROM recorded WHERE kind = 'call';
