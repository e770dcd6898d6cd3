-- What a state graph had become after each step: whole, or as what changed since the step before.
CREATE TABLE checkpoints (
  run TEXT NOT NULL, step INTEGER NOT NULL, whole INTEGER NOT NULL, state BLOB NOT NULL, digest TEXT NOT NULL, frontier BLOB NOT NULL,
  key TEXT NOT NULL, label TEXT, at INTEGER NOT NULL, totals BLOB NOT NULL, PRIMARY KEY (run, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX checkpoints_labelled ON checkpoints (run, step) WHERE label IS NOT NULL;
-- Calls to the outside world that its nodes made, as they answered, and questions to people.
CREATE TABLE recorded (
  run TEXT NOT NULL, node TEXT NOT NULL, attempt INTEGER NOT NULL, call INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
  request BLOB NOT NULL, request_hash TEXT NOT NULL, response BLOB, response_hash TEXT, error BLOB, at INTEGER NOT NULL,
  duration INTEGER NOT NULL, PRIMARY KEY (run, node, attempt, call)
) STRICT, WITHOUT ROWID;

-- For people: the names that the seed of graphs gives to these.
CREATE VIEW graph_checkpoints AS SELECT run AS run_id, step AS step_id, state, frontier, key AS idempotency_key, at AS timestamp,
  trim(label, char(10)) AS label FROM checkpoints;
CREATE VIEW recorded_ios AS SELECT run AS run_id, node AS node_id, attempt, call, name, request, response, response_hash AS hash,
  at AS timestamp, duration / 1000 AS duration_ms FROM recorded WHERE kind = 'call';
