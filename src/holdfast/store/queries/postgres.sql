-- Statements for PostgreSQL. One name, one statement; the index that serves it is named where it matters.
-- The parts named flush_* are put together into one guarded statement, each only when it has rows;
-- `$?` is numbered then. Every array is sorted by key, so that two flushes never deadlock (K2). Arrays are sent as texts.

-- name: array_of_bytes
-- Takes the place of `$?::bytea[]`: one long value, and where its parts begin and how long they are.
ARRAY(SELECT substring($?::bytea, p.place, p.size) FROM unnest($?::text::int[], $?::text::int[]) p(place, size))

-- name: flush_runs_step
-- What changes on a run with an ordinary step. `l` locks the runs in order, where the version is still the one seen.
g AS (SELECT * FROM unnest($?::text[], $?::bigint[], $?::bigint[], $?::text[], $?::int[], $?::int[], $?::int[], $?::bigint[],
    $?::bigint[], $?::bigint[]) g(id, expect, version, status, remaining, active, gave_up, entries, started, updated)),
l AS MATERIALIZED (SELECT r.id FROM runs r JOIN g ON r.id = g.id AND r.version = g.expect ORDER BY r.id FOR NO KEY UPDATE OF r)
-- name: flush_runs_step_update
ur AS (UPDATE runs r SET version = g.version, status = g.status, remaining = g.remaining, active = g.active,
    gave_up = g.gave_up, entries = g.entries, started = g.started, updated = g.updated
  FROM g WHERE r.id = g.id AND (SELECT ok FROM a) RETURNING r.id)
-- name: flush_runs_ended
-- The same with what the last step of a run changes besides.
g AS (SELECT * FROM unnest($?::text[], $?::bigint[], $?::bigint[], $?::text[], $?::int[], $?::int[], $?::int[], $?::bigint[],
    $?::bigint[], $?::bigint[], $?::bytea[], $?::bigint[]) g(id, expect, version, status, remaining, active, gave_up, entries,
    started, updated, result, finished)),
l AS MATERIALIZED (SELECT r.id FROM runs r JOIN g ON r.id = g.id AND r.version = g.expect ORDER BY r.id FOR NO KEY UPDATE OF r)
-- name: flush_runs_ended_update
ur AS (UPDATE runs r SET version = g.version, status = g.status, remaining = g.remaining, active = g.active,
    gave_up = g.gave_up, entries = g.entries, started = g.started, updated = g.updated, result = g.result, finished = g.finished
  FROM g WHERE r.id = g.id AND (SELECT ok FROM a) RETURNING r.id)
-- name: flush_runs_input
-- The same with what a decider counts at every input.
g AS (SELECT * FROM unnest($?::text[], $?::bigint[], $?::bigint[], $?::text[], $?::int[], $?::int[], $?::int[], $?::bigint[],
    $?::bigint[], $?::bigint[], $?::bigint[], $?::bigint[], $?::int[], $?::bigint[]) g(id, expect, version, status, remaining,
    active, gave_up, entries, started, updated, token, base, mailbox, due)),
l AS MATERIALIZED (SELECT r.id FROM runs r JOIN g ON r.id = g.id AND r.version = g.expect ORDER BY r.id FOR NO KEY UPDATE OF r)
-- name: flush_runs_input_update
ur AS (UPDATE runs r SET version = g.version, status = g.status, remaining = g.remaining, active = g.active,
    gave_up = g.gave_up, entries = g.entries, started = g.started, updated = g.updated, token = g.token, base = g.base,
    mailbox = g.mailbox, due = g.due
  FROM g WHERE r.id = g.id AND (SELECT ok FROM a) RETURNING r.id)
-- name: flush_runs_full
-- The same with every column that may change, for batches in which a run fails, pauses or is taken up again.
g AS (SELECT * FROM unnest($?::text[], $?::bigint[], $?::bigint[], $?::text[], $?::int[], $?::int[], $?::int[], $?::bigint[],
    $?::bigint[], $?::bigint[], $?::bigint[], $?::bigint[], $?::int[], $?::bigint[], $?::bytea[], $?::bigint[], $?::bytea[],
    $?::text[], $?::boolean[], $?::boolean[], $?::text[], $?::text[], $?::bigint[]) g(id, expect, version, status, remaining,
    active, gave_up, entries, started, updated, token, base, mailbox, due, result, finished, error, definition, awaited,
    superseded, reason, signature, adopted)),
l AS MATERIALIZED (SELECT r.id FROM runs r JOIN g ON r.id = g.id AND r.version = g.expect ORDER BY r.id FOR NO KEY UPDATE OF r)
-- name: flush_runs_full_update
ur AS (UPDATE runs r SET version = g.version, status = g.status, remaining = g.remaining, active = g.active,
    gave_up = g.gave_up, entries = g.entries, started = g.started, updated = g.updated, token = g.token, base = g.base,
    mailbox = g.mailbox, due = g.due, result = g.result, finished = g.finished, error = g.error, definition = g.definition,
    awaited = g.awaited, superseded = g.superseded, reason = g.reason, signature = g.signature, adopted = g.adopted
  FROM g WHERE r.id = g.id AND (SELECT ok FROM a) RETURNING r.id)
-- name: flush_no_runs
l AS (SELECT ''::text AS id WHERE false)
-- name: flush_no_runs_update
ur AS (SELECT ''::text AS id WHERE false)

-- name: flush_work_settled
-- Work that is settled. `tl` locks the items in order, where the token is still the same; reading `l` locks runs first.
x AS (SELECT * FROM unnest($?::text[], $?::text[], $?::int[], $?::bigint[], $?::text[], $?::bytea[], $?::bytea[], $?::bytea[],
    $?::bigint[]) x(run, node, attempt, expect, status, result, error, outcome, finished)),
tl AS MATERIALIZED (SELECT t.run FROM work t JOIN x ON t.run = x.run AND t.node = x.node AND t.attempt = x.attempt
  AND t.token = x.expect WHERE (SELECT count(*) FROM l) >= 0 ORDER BY t.run, t.node, t.attempt FOR NO KEY UPDATE OF t)
-- name: flush_work_settled_update
ut AS (UPDATE work t SET status = x.status, result = x.result, error = x.error, outcome = x.outcome, finished = x.finished
  FROM x WHERE t.run = x.run AND t.node = x.node AND t.attempt = x.attempt AND (SELECT ok FROM a))
-- name: flush_work_full
x AS (SELECT * FROM unnest($?::text[], $?::text[], $?::int[], $?::bigint[], $?::text[], $?::bytea[], $?::bytea[], $?::bytea[],
    $?::bigint[], $?::int[], $?::bigint[], $?::smallint[], $?::bigint[], $?::text[], $?::text[], $?::text[], $?::int[],
    $?::int[], $?::bigint[])
    x(run, node, attempt, expect, status, result, error, outcome, finished, completed, token, gate, due, worker, parents,
      ancestry, failures, losses, started)),
tl AS MATERIALIZED (SELECT t.run FROM work t JOIN x ON t.run = x.run AND t.node = x.node AND t.attempt = x.attempt
  AND t.token = x.expect WHERE (SELECT count(*) FROM l) >= 0 ORDER BY t.run, t.node, t.attempt FOR NO KEY UPDATE OF t)
-- name: flush_work_full_update
ut AS (UPDATE work t SET status = x.status, result = x.result, error = x.error, outcome = x.outcome, finished = x.finished,
    completed = x.completed, token = x.token, gate = x.gate, due = x.due, worker = x.worker, parents = x.parents,
    ancestry = x.ancestry, failures = x.failures, losses = x.losses, started = x.started
  FROM x WHERE t.run = x.run AND t.node = x.node AND t.attempt = x.attempt AND (SELECT ok FROM a))
-- name: flush_work_whole
-- Work that follows another graph, and timers that are set anew.
x AS (SELECT * FROM unnest($?::text[], $?::text[], $?::int[], $?::bigint[], $?::text[], $?::bytea[], $?::bytea[], $?::bytea[],
    $?::bigint[], $?::int[], $?::bigint[], $?::smallint[], $?::bigint[], $?::text[], $?::text[], $?::text[], $?::int[],
    $?::int[], $?::bigint[], $?::int[], $?::text[], $?::text[], $?::text[], $?::bigint[], $?::text[], $?::bytea[], $?::text[],
    $?::int[], $?::bigint[])
    x(run, node, attempt, expect, status, result, error, outcome, finished, completed, token, gate, due, worker, parents,
      ancestry, failures, losses, started, required, name, kind, queue, timeout, policy, payload, codec, priority, created)),
tl AS MATERIALIZED (SELECT t.run FROM work t JOIN x ON t.run = x.run AND t.node = x.node AND t.attempt = x.attempt
  AND t.token = x.expect WHERE (SELECT count(*) FROM l) >= 0 ORDER BY t.run, t.node, t.attempt FOR NO KEY UPDATE OF t)
-- name: flush_work_whole_update
ut AS (UPDATE work t SET status = x.status, result = x.result, error = x.error, outcome = x.outcome, finished = x.finished,
    completed = x.completed, token = x.token, gate = x.gate, due = x.due, worker = x.worker, parents = x.parents,
    ancestry = x.ancestry, failures = x.failures, losses = x.losses, started = x.started, required = x.required,
    name = x.name, kind = x.kind, queue = x.queue, timeout = x.timeout, policy = x.policy, payload = x.payload,
    codec = x.codec, priority = x.priority, created = x.created
  FROM x WHERE t.run = x.run AND t.node = x.node AND t.attempt = x.attempt AND (SELECT ok FROM a))
-- name: flush_no_work
tl AS (SELECT ''::text AS run WHERE false)

-- name: flush_waits_found
-- Rows that a batch takes away, locked after their runs. The number found is part of what is checked: a row that someone
-- else has consumed keeps the whole batch out, or it would be delivered twice.
xw AS (SELECT * FROM unnest($?::text[], $?::bigint[]) xw(run, slot)),
fw AS MATERIALIZED (SELECT 1 FROM waits w JOIN xw ON w.run = xw.run AND w.slot = xw.slot
  WHERE (SELECT count(*) FROM l) >= 0 ORDER BY w.run, w.slot FOR UPDATE OF w)
-- name: flush_waits_delete
dw AS (DELETE FROM waits w USING xw WHERE w.run = xw.run AND w.slot = xw.slot AND (SELECT ok FROM a))
-- name: flush_work_found
-- Of finished passes of a loop. Nobody else writes to a settled item, and an open one has a token that is checked above.
xk AS (SELECT * FROM unnest($?::text[], $?::text[], $?::int[]) xk(run, node, attempt)),
fk AS MATERIALIZED (SELECT 1 FROM work k JOIN xk ON k.run = xk.run AND k.node = xk.node AND k.attempt = xk.attempt
  WHERE (SELECT count(*) FROM l) >= 0 ORDER BY k.run, k.node, k.attempt FOR UPDATE OF k)
-- name: flush_work_delete
dk AS (DELETE FROM work k USING xk WHERE k.run = xk.run AND k.node = xk.node AND k.attempt = xk.attempt AND (SELECT ok FROM a))
-- name: flush_inbox_found
xv AS (SELECT * FROM unnest($?::text[], $?::text[], $?::text[], $?::bigint[]) xv(run, node, variable, slot)),
fv AS MATERIALIZED (SELECT 1 FROM inbox v JOIN xv ON v.run = xv.run AND v.node = xv.node AND v.variable = xv.variable AND v.slot = xv.slot
  WHERE (SELECT count(*) FROM l) >= 0 ORDER BY v.run, v.node, v.variable, v.slot FOR UPDATE OF v)
-- name: flush_inbox_delete
dv AS (DELETE FROM inbox v USING xv WHERE v.run = xv.run AND v.node = xv.node AND v.variable = xv.variable AND v.slot = xv.slot
  AND (SELECT ok FROM a))
-- name: flush_events_found
xe AS (SELECT * FROM unnest($?::text[]) xe(id)),
fe AS MATERIALIZED (SELECT 1 FROM events e JOIN xe ON e.id = xe.id
  WHERE (SELECT count(*) FROM l) >= 0 ORDER BY e.id FOR UPDATE OF e)
-- name: flush_events_delete
de AS (DELETE FROM events e USING xe WHERE e.id = xe.id AND (SELECT ok FROM a))
-- name: flush_inputs_found
xi AS (SELECT * FROM unnest($?::text[], $?::text[]) xi(scope, id)),
fi AS MATERIALIZED (SELECT 1 FROM inputs i JOIN xi ON i.scope = xi.scope AND i.id = xi.id
  WHERE (SELECT count(*) FROM l) >= 0 ORDER BY i.scope, i.id FOR UPDATE OF i)
-- name: flush_inputs_delete
di AS (DELETE FROM inputs i USING xi WHERE i.scope = xi.scope AND i.id = xi.id AND (SELECT ok FROM a))

-- name: flush_ok
a AS MATERIALIZED (SELECT (SELECT count(*) FROM l) = $?::bigint AND (SELECT count(*) FROM tl) = $?::bigint
  AND (NOT $?::boolean OR NOT EXISTS (SELECT 1 FROM holds)) AS ok)
-- name: flush_ok_deleting
-- `f` is all that was found of the rows to be deleted.
a AS MATERIALIZED (SELECT (SELECT count(*) FROM l) = $?::bigint AND (SELECT count(*) FROM tl) = $?::bigint
  AND (NOT $?::boolean OR NOT EXISTS (SELECT 1 FROM holds)) AND (SELECT count(*) FROM f) = $?::bigint AS ok)

-- name: flush_runs_insert
-- Reading `ur` makes the updates happen first: a restarted run must give up its key before the new one takes it.
nr AS (INSERT INTO runs ({runs}) SELECT {runs@n} FROM unnest($?::text[], $?::text[], $?::text[], $?::text[], $?::text[], $?::bigint[],
    $?::bytea[], $?::text[], $?::text[], $?::bytea[], $?::bytea[], $?::text[], $?::text[], $?::text[], $?::text[], $?::int[],
    $?::text[], $?::bigint[], $?::boolean[], $?::boolean[], $?::int[], $?::int[], $?::int[], $?::bigint[], $?::text[],
    $?::bigint[], $?::bigint[], $?::bigint[], $?::bigint[], $?::bigint[], $?::text[], $?::bigint[], $?::bigint[],
    $?::int[], $?::int[]) n({runs})
  WHERE (SELECT ok FROM a) AND (SELECT count(*) FROM ur) >= 0)
-- name: flush_work_fresh
-- First attempts of nodes without anything special about them: what is the same for all is not sent.
nw AS (INSERT INTO work (run, node, attempt, workflow, kind, name, status, required, completed, token, queue, priority, gate,
    due, worker, codec, parents, ancestry, failures, losses, created, started)
  SELECT n.run, n.node, 1, n.workflow, 'node', n.name, n.status, n.required, n.completed, n.token, n.queue, n.priority, n.gate,
    n.due, n.worker, 'json', n.parents, n.ancestry, 0, 0, n.created, n.started
  FROM unnest($?::text[], $?::text[], $?::text[], $?::text[], $?::text[], $?::int[], $?::int[], $?::bigint[], $?::text[],
    $?::int[], $?::smallint[], $?::bigint[], $?::text[], $?::text[], $?::text[], $?::bigint[], $?::bigint[])
    n(run, node, workflow, name, status, required, completed, token, queue, priority, gate, due, worker, parents, ancestry,
      created, started)
  WHERE (SELECT ok FROM a))
-- name: flush_work_insert
nw AS (INSERT INTO work ({work}) SELECT {work@n} FROM unnest($?::text[], $?::text[], $?::int[], $?::text[], $?::text[], $?::text[],
    $?::text[], $?::int[], $?::int[], $?::bigint[], $?::text[], $?::int[], $?::smallint[], $?::bigint[], $?::bigint[], $?::text[],
    $?::text[], $?::bytea[], $?::text[], $?::bytea[], $?::bytea[], $?::bytea[], $?::text[], $?::text[], $?::int[], $?::int[], $?::bigint[], $?::bigint[],
    $?::bigint[]) n({work})
  WHERE (SELECT ok FROM a))
-- name: flush_history_insert
nh AS (INSERT INTO history ({history}) SELECT {history@n}
  FROM unnest($?::text[], $?::bigint[], $?::text[], $?::bigint[], $?::bytea[], $?::text[]) n({history}) WHERE (SELECT ok FROM a))
-- name: flush_waits_insert
ni AS (INSERT INTO waits ({waits}) SELECT {waits@n}
  FROM unnest($?::text[], $?::bigint[], $?::text[], $?::bigint[], $?::text[], $?::text[], $?::text[]) n({waits}) WHERE (SELECT ok FROM a))
-- name: flush_events_insert
ne AS (INSERT INTO events ({events}) SELECT {events@n}
  FROM unnest($?::text[], $?::text[], $?::text[], $?::bytea[], $?::text[], $?::bigint[], $?::bigint[], $?::text[],
    $?::text[], $?::text[]) n({events})
  WHERE (SELECT ok FROM a))
-- name: flush_inputs_insert
nj AS (INSERT INTO inputs ({inputs}) SELECT {inputs@n}
  FROM unnest($?::text[], $?::text[], $?::text[], $?::text[], $?::bigint[]) n({inputs}) WHERE (SELECT ok FROM a))
-- name: flush_stream_insert
-- In the order of the array, which is that of each stream. The position is taken last, when the runs are locked and this
-- transaction has its id: CASE is what makes the order of these two certain.
nf AS (INSERT INTO stream ({stream}) SELECT {facts@n}, CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('stream_positions') END
  FROM unnest($?::text[], $?::bigint[], $?::text[], $?::text[], $?::text[], $?::int[], $?::bigint[], $?::bytea[], $?::text[],
    $?::boolean[], $?::text[]) n({facts}) WHERE (SELECT ok FROM a))
-- name: flush_snapshots_insert
-- Whatever was there before: the run's version guards it, and a snapshot may have been deleted at any time (I38).
ns AS (INSERT INTO snapshots ({snapshots}) SELECT {snapshots@n}
  FROM unnest($?::text[], $?::bigint[], $?::bytea[], $?::text[], $?::text[], $?::bigint[]) n({snapshots}) WHERE (SELECT ok FROM a)
  ON CONFLICT (run) DO UPDATE SET sequence = excluded.sequence, state = excluded.state, codec = excluded.codec,
    code = excluded.code, at = excluded.at)
-- name: flush_inbox_insert
nv AS (INSERT INTO inbox ({inbox}) SELECT {inbox@n}
  FROM unnest($?::text[], $?::text[], $?::text[], $?::bigint[], $?::bytea[], $?::text[]) n({inbox}) WHERE (SELECT ok FROM a)
  ON CONFLICT (run, node, variable, slot) DO UPDATE SET value = excluded.value, source = excluded.source)
-- name: flush_checkpoints_insert
nc AS (INSERT INTO checkpoints ({checkpoints}) SELECT {checkpoints@n}
  FROM unnest($?::text[], $?::bigint[], $?::boolean[], $?::bytea[], $?::text[], $?::bytea[], $?::text[], $?::text[], $?::bigint[],
    $?::bytea[]) n({checkpoints}) WHERE (SELECT ok FROM a))
-- name: flush_recorded_insert
ng AS (INSERT INTO recorded ({recorded}) SELECT {recorded@n}
  FROM unnest($?::text[], $?::text[], $?::int[], $?::int[], $?::text[], $?::text[], $?::bytea[], $?::text[], $?::bytea[], $?::text[],
    $?::bytea[], $?::bigint[], $?::bigint[]) n({recorded}) WHERE (SELECT ok FROM a)
  ON CONFLICT (run, node, attempt, call) DO UPDATE SET name = excluded.name, kind = excluded.kind,
    request = excluded.request, request_hash = excluded.request_hash, response = excluded.response,
    response_hash = excluded.response_hash, error = excluded.error, at = excluded.at, duration = excluded.duration)
-- name: flush_observations_insert
nb AS (INSERT INTO observations ({observations}) SELECT {observations@n}
  FROM unnest($?::text[], $?::bigint[], $?::text[], $?::text[], $?::bigint[], $?::bytea[], $?::text[], $?::text[], $?::text[],
    $?::text[], $?::text[], $?::text[]) n({observations}) WHERE (SELECT ok FROM a))
-- name: flush_definitions_insert
nd AS (INSERT INTO definitions ({definitions}) SELECT {definitions@n}
  FROM unnest($?::text[], $?::text[], $?::text[], $?::bytea[], $?::text[], $?::bigint[]) n({definitions}) WHERE (SELECT ok FROM a))
-- name: flush_holds_insert
no AS (INSERT INTO holds ({holds}) SELECT {holds@n}
  FROM unnest($?::text[], $?::text[], $?::text[], $?::bigint[]) n({holds}) WHERE (SELECT ok FROM a))
-- name: flush_end
SELECT a.ok, CASE WHEN a.ok THEN NULL ELSE ARRAY(SELECT id FROM l) END AS runs,
  CASE WHEN a.ok THEN NULL ELSE ARRAY(SELECT run FROM tl) END AS work,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now FROM a

-- The parts named lone_* are for what concerns one run, and one of its items at most, which by far the most flushes do. No
-- rows have to be joined and counted then: each part is there if the one before it found its row, the run first.

-- name: lone_run_locked
l AS MATERIALIZED (SELECT id FROM runs WHERE id = $? AND version = $? FOR NO KEY UPDATE)
-- name: lone_run_not_held
l AS MATERIALIZED (SELECT id FROM runs WHERE id = $? AND version = $? AND NOT EXISTS (SELECT FROM holds) FOR NO KEY UPDATE)
-- name: lone_work_settled
ut AS (UPDATE work SET {worksettled=} WHERE run = (SELECT id FROM l) AND node = $? AND attempt = $? AND token = $? RETURNING run)
-- name: lone_work_full
ut AS (UPDATE work SET {workfull=} WHERE run = (SELECT id FROM l) AND node = $? AND attempt = $? AND token = $? RETURNING run)
-- name: lone_work_whole
ut AS (UPDATE work SET {workwhole=} WHERE run = (SELECT id FROM l) AND node = $? AND attempt = $? AND token = $? RETURNING run)
-- name: lone_run_step_after_work
ur AS (UPDATE runs SET {runstep=} WHERE id = (SELECT run FROM ut) RETURNING id)
-- name: lone_run_ended_after_work
ur AS (UPDATE runs SET {runended=} WHERE id = (SELECT run FROM ut) RETURNING id)
-- name: lone_run_input_after_work
ur AS (UPDATE runs SET {runinput=} WHERE id = (SELECT run FROM ut) RETURNING id)
-- name: lone_run_full_after_work
ur AS (UPDATE runs SET {runfull=} WHERE id = (SELECT run FROM ut) RETURNING id)
-- name: lone_run_step_after_lock
ur AS (UPDATE runs SET {runstep=} WHERE id = (SELECT id FROM l) RETURNING id)
-- name: lone_run_ended_after_lock
ur AS (UPDATE runs SET {runended=} WHERE id = (SELECT id FROM l) RETURNING id)
-- name: lone_run_input_after_lock
ur AS (UPDATE runs SET {runinput=} WHERE id = (SELECT id FROM l) RETURNING id)
-- name: lone_run_full_after_lock
ur AS (UPDATE runs SET {runfull=} WHERE id = (SELECT id FROM l) RETURNING id)
-- name: lone_run_step
-- Without an item the run's version is all that has to be guarded, and its update is the lock.
ur AS (UPDATE runs SET {runstep=} WHERE id = $? AND version = $? RETURNING id)
-- name: lone_run_ended
ur AS (UPDATE runs SET {runended=} WHERE id = $? AND version = $? RETURNING id)
-- name: lone_run_input
ur AS (UPDATE runs SET {runinput=} WHERE id = $? AND version = $? RETURNING id)
-- name: lone_run_full
ur AS (UPDATE runs SET {runfull=} WHERE id = $? AND version = $? RETURNING id)
-- name: lone_ok
-- What is inserted asks for it, and so happens after the updates.
a AS (SELECT true AS ok FROM ur)
-- name: lone_end
SELECT EXISTS (SELECT FROM a) AS ok, ARRAY[]::text[] AS runs, ARRAY[]::text[] AS work,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now

-- name: lone_start
-- A run that begins with one item, as most do: neither is written if something is held back.
WITH nr AS (INSERT INTO runs ({newruns}, awaited, superseded) SELECT $?::text, $?::text, $?::text, $?::text, $?::text, $?::bigint,
    $?::bytea, $?::text, $?::text, $?::text, $?::text, $?::int, $?::text, $?::bigint, $?::int, $?::int, $?::int, $?::bigint,
    $?::bigint, $?::bigint, $?::bigint, $?::bigint, $?::text, $?::bigint, $?::bigint, $?::int, $?::int, false, false
  WHERE NOT EXISTS (SELECT FROM holds) RETURNING id),
nw AS (INSERT INTO work ({newwork}) SELECT nr.id, $?::text, $?::int, $?::text, $?::text, $?::text, $?::text, $?::int, $?::int,
    $?::bigint, $?::text, $?::int, $?::smallint, $?::bigint, $?::text, $?::bytea, $?::text, $?::text, $?::text, $?::int, $?::int,
    $?::bigint, $?::bigint FROM nr)
SELECT EXISTS (SELECT FROM nr) AS ok, ARRAY[]::text[] AS runs, ARRAY[]::text[] AS work,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now

-- name: lone_first_input
-- The input that a decider's instance begins with, with nothing but its events; its key has the last word, and reading
-- what was inserted makes the positions come after it.
WITH nr AS (INSERT INTO runs ({runs}) VALUES ({runs$}) RETURNING id),
nf AS (INSERT INTO stream ({stream}) SELECT {facts@n}, CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('stream_positions') END
  FROM nr CROSS JOIN unnest($?::text[], $?::bigint[], $?::text[], $?::text[], $?::text[], $?::int[], $?::bigint[], $?::bytea[],
    $?::text[], $?::boolean[], $?::text[]) n({facts}))
SELECT true AS ok, ARRAY[]::text[] AS runs, ARRAY[]::text[] AS work,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now

-- name: delete_waits
-- Deletes of rows whose run is not written in the same batch: on the locked path, one statement a table, rows counted.
DELETE FROM waits w USING unnest($1::text[], $2::bigint[]) d(run, slot) WHERE w.run = d.run AND w.slot = d.slot
-- name: delete_work
DELETE FROM work k USING unnest($1::text[], $2::text[], $3::int[]) d(run, node, attempt)
  WHERE k.run = d.run AND k.node = d.node AND k.attempt = d.attempt
-- name: delete_inbox
DELETE FROM inbox v USING unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) d(run, node, variable, slot)
  WHERE v.run = d.run AND v.node = d.node AND v.variable = d.variable AND v.slot = d.slot
-- name: delete_checkpoints
DELETE FROM checkpoints c USING unnest($1::text[], $2::bigint[]) d(run, step) WHERE c.run = d.run AND c.step = d.step
-- name: delete_recorded
DELETE FROM recorded r USING unnest($1::text[], $2::text[], $3::int[], $4::int[]) d(run, node, attempt, call)
  WHERE r.run = d.run AND r.node = d.node AND r.attempt = d.attempt AND r.call = d.call
-- name: delete_history
DELETE FROM history h USING unnest($1::text[], $2::bigint[]) d(run, sequence) WHERE h.run = d.run AND h.sequence = d.sequence
-- name: delete_events
DELETE FROM events WHERE id = ANY($1::text[])
-- name: delete_inputs
DELETE FROM inputs i USING unnest($1::text[], $2::text[]) d(scope, id) WHERE i.scope = d.scope AND i.id = d.id
-- name: delete_definitions
DELETE FROM definitions WHERE id = ANY($1::text[])
-- name: delete_holds
DELETE FROM holds h USING unnest($1::text[], $2::text[]) d(scope, name) WHERE h.scope = d.scope AND h.name = d.name

-- name: delete_stream
DELETE FROM stream s USING unnest($1::text[], $2::bigint[]) d(run, sequence) WHERE s.run = d.run AND s.sequence = d.sequence
-- name: delete_snapshots
DELETE FROM snapshots WHERE run = ANY($1::text[])
-- name: delete_observations
DELETE FROM observations o USING unnest($1::text[], $2::bigint[]) d(run, number) WHERE o.run = d.run AND o.number = d.number

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
-- name: database
-- Which one it is, whatever address it is known by.
SELECT s.system_identifier || '-' || d.oid FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
-- name: ensure_topics
-- In a transaction of its own, sorted: two senders of new topics must not deadlock.
INSERT INTO topics (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING
-- name: lock_topics
SELECT name FROM topics WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE
-- name: lock_runs
-- Rows are read by a later statement: after a wait, this one would see new runs with old children.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, l.id FROM (
  SELECT id FROM runs WHERE id = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE) l

-- name: get_runs
SELECT {runs} FROM runs WHERE id = ANY($1::text[])

-- name: settled_runs
SELECT {runs} FROM runs WHERE id = ANY($1::text[]) AND status IN ('completed', 'failed', 'cancelled', 'paused')
-- name: get_work
-- Locked as they are read: a claim may hold one of them for the length of its statement.
SELECT {work@w} FROM work w JOIN unnest($1::text[], $2::text[], $3::int[]) k(run, node, attempt)
  ON w.run = k.run AND w.node = k.node AND w.attempt = k.attempt ORDER BY w.run, w.node, w.attempt FOR NO KEY UPDATE OF w
-- name: get_history
SELECT {history} FROM history WHERE run = $1 AND sequence = $2
-- name: get_waits
SELECT {waits} FROM waits WHERE run = $1 AND slot = $2
-- name: get_events
SELECT {events} FROM events WHERE id = $1
-- name: get_inputs
SELECT {inputs} FROM inputs WHERE scope = $1 AND id = $2
-- name: inputs_by_keys
SELECT {inputs@i} FROM inputs i JOIN unnest($1::text[], $2::text[]) k(scope, id) ON i.scope = k.scope AND i.id = k.id
-- name: waits_of_runs
SELECT {waits} FROM waits WHERE run = ANY($1::text[]) ORDER BY run, slot
-- name: attempts_of_runs
-- Locked as they are read, as in get_work.
SELECT {work@w} FROM work w JOIN unnest($1::text[], $2::text[]) k(run, node) ON w.run = k.run AND w.node = k.node
  ORDER BY w.run, w.node, w.attempt FOR NO KEY UPDATE OF w
-- name: get_definitions
SELECT {definitions} FROM definitions WHERE id = $1
-- name: get_holds
SELECT {holds} FROM holds WHERE scope = $1 AND name = $2

-- name: get_snapshots
SELECT {snapshots} FROM snapshots WHERE run = ANY($1::text[])
-- name: get_stream
SELECT {stream} FROM stream WHERE run = $1 AND sequence = $2
-- name: get_inbox
SELECT {inbox@v} FROM inbox v JOIN unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) k(run, node, variable, slot)
  ON v.run = k.run AND v.node = k.node AND v.variable = k.variable AND v.slot = k.slot
-- name: get_checkpoints
SELECT {checkpoints} FROM checkpoints WHERE run = $1 AND step = $2
-- name: get_recorded
SELECT {recorded} FROM recorded WHERE run = $1 AND node = $2 AND attempt = $3 AND call = $4
-- name: get_observations
SELECT {observations} FROM observations WHERE run = $1 AND number = $2
-- name: streams_after
-- StreamAfter of many instances at once.
SELECT {stream@f} FROM unnest($1::text[], $2::bigint[], $3::bigint[]) k(run, after, most)
  CROSS JOIN LATERAL (SELECT {stream@s} FROM stream s WHERE s.run = k.run AND s.sequence > k.after ORDER BY s.sequence LIMIT k.most) f

-- name: RunByKey
-- runs_by_key
SELECT {runs} FROM runs WHERE workflow = $1 AND key = $2 AND NOT superseded
-- name: RunByAlias
-- runs_by_key
SELECT {runs} FROM runs WHERE workflow = $1 AND key = $2 AND NOT superseded
-- name: OpenWork
SELECT {work} FROM work WHERE run = $1 AND status IN ('blocked', 'ready', 'leased') ORDER BY run, node, attempt
-- name: AllWork
SELECT {work} FROM work WHERE run = $1 ORDER BY run, node, attempt
-- name: Attempts
SELECT {work} FROM work WHERE run = $1 AND node = ANY($2::text[]) ORDER BY run, node, attempt
-- name: WaitersOf
-- waits_by_topic
SELECT {waits} FROM waits WHERE topic = $1 ORDER BY since, run, slot LIMIT $2
-- name: WaitsOf
SELECT {waits} FROM waits WHERE run = $1 ORDER BY run, slot
-- name: QueuedEvents
-- events_queued, in its order: IS NOT DISTINCT FROM would read and sort all events of the name.
(SELECT {events} FROM events WHERE name = $1 AND $2::text IS NOT NULL AND target = $2 AND status = 'queued' ORDER BY at, id LIMIT $3)
UNION ALL
(SELECT {events} FROM events WHERE name = $1 AND $2::text IS NULL AND target IS NULL AND status = 'queued' ORDER BY at, id LIMIT $3)
-- name: EventsFor
-- events_by_target
SELECT {events} FROM events WHERE target = $1 AND status = 'queued' ORDER BY id
-- name: StrayEvents
-- events_not_queued, events_expiring
SELECT {events} FROM events WHERE (status <> 'queued' AND status = 'orphaned') OR (status = 'queued' AND expires <= $1) LIMIT $2
-- name: StoredEvent
SELECT {events} FROM events WHERE id = $1
-- name: DeadEvents
-- events_not_queued
SELECT {events} FROM events WHERE status <> 'queued' AND status = 'dead' ORDER BY at, id LIMIT $1
-- name: DueWork
SELECT {work} FROM work WHERE status = 'leased' OR (status = 'ready' AND (gate = 0 OR (gate = 1 AND due <= $1))) LIMIT $2
-- name: DelayedWork
-- work_delayed
SELECT {work} FROM work WHERE status = 'ready' AND gate = 1 AND (due, run, node) > ($1, $2, $3)
ORDER BY due, run, node LIMIT $4
-- name: HistoryPage
SELECT {history} FROM history WHERE run = $1 AND sequence > $2 ORDER BY sequence LIMIT $3
-- name: ChildrenOf
-- runs_by_parent
SELECT {runs} FROM runs WHERE parent = $1 ORDER BY id
-- name: StreamAfter
SELECT {stream} FROM stream WHERE run = $1 AND sequence > $2 ORDER BY sequence LIMIT $3
-- name: ValuesOf
SELECT {inbox} FROM inbox WHERE run = $1 ORDER BY node, variable, slot
-- name: ValuesFor
SELECT {inbox} FROM inbox WHERE run = $1 AND node = $2 AND variable = $3 ORDER BY slot
-- name: ValuesAt
SELECT {inbox} FROM inbox WHERE run = $1 AND node = ANY($2::text[]) ORDER BY node, variable, slot
-- name: StateChain
SELECT {checkpoints} FROM checkpoints WHERE run = $1 AND step <= $2 AND step >= (
  SELECT max(step) FROM checkpoints WHERE run = $1 AND step <= $2 AND whole) ORDER BY step
-- name: CheckpointsOf
SELECT {checkpoints} FROM checkpoints WHERE run = $1 AND step < $2 ORDER BY step DESC LIMIT $3
-- name: CheckpointsBetween
SELECT {checkpoints} FROM checkpoints WHERE run = $1 AND step >= $2 AND step < $3 ORDER BY step
-- name: LabelledCheckpoint
-- checkpoints_labelled
SELECT {checkpoints} FROM checkpoints WHERE run = $1 AND label IS NOT NULL AND strpos(label, chr(10) || $2::text || chr(10)) > 0
ORDER BY step DESC LIMIT 1
-- name: RecordedBy
SELECT {recorded} FROM recorded WHERE run = $1 AND node = $2 ORDER BY attempt, call
-- name: RecordedIn
SELECT {recorded} FROM recorded WHERE run = $1 AND node = ANY($2::text[]) ORDER BY node, attempt, call
-- name: RecordedOf
SELECT {recorded} FROM recorded WHERE run = $1 ORDER BY node, attempt, call
-- name: SnapshotOf
SELECT {snapshots} FROM snapshots WHERE run = $1
-- name: ObservationsOf
SELECT {observations} FROM observations WHERE run = $1 ORDER BY number
-- name: FactsCausedBy
SELECT {stream} FROM stream WHERE run = $1 AND cause = $2 ORDER BY sequence
-- name: Holds
SELECT {holds} FROM holds ORDER BY scope, name
-- name: DefinitionById
SELECT {definitions} FROM definitions WHERE id = $1
-- name: CodeGraph
-- In the shape of a definition. code (primary key)
SELECT workflow || '@' || signature, '', signature, nodes, '', seen FROM code WHERE workflow = $1 AND signature = $2
-- name: ByAncestry
-- work_by_ancestry
SELECT {work} FROM work WHERE ancestry = $1 ORDER BY run, node, attempt
-- name: RunsLeftBehind
-- runs_left_behind
SELECT {runs} FROM runs WHERE signature IS NULL AND finished IS NULL AND model = 'dag' AND definition IS NULL
  AND status <> 'paused' LIMIT $1
-- name: RunsToReshape
-- runs_open
SELECT {runs@r} FROM unnest($1::text[], $2::text[], $3::bigint[]) c(workflow, signature, seen)
  JOIN runs r ON r.workflow = c.workflow
WHERE r.finished IS NULL AND r.definition IS NULL AND r.status <> 'paused' AND r.signature IS DISTINCT FROM c.signature
  AND r.adopted <= c.seen LIMIT $4
-- name: HistoryOf
SELECT {history} FROM history WHERE run = $1 AND sequence > $2 ORDER BY sequence

-- name: claim
-- work_claimable, in its order, never waiting. Items are updated where they were found, and the run's row comes along,
-- so that a completion need not read it: once for all items of a run, of which there may be very many. OFFSET 0 keeps that
-- a look-up by key, however the tables grow.
-- What a time has brought does nothing before its next commit, which waits for the disk on behalf of the lease too. A lease
-- that the server forgets in between was never used, and its token is nobody else's: it is the time (`brought_by_time`),
-- and where the clock has gone back so that it would not be, the claim waits as any other.
-- What was let in ahead of its time starts when that has come: whoever claims it waits until then.
WITH c AS MATERIALIZED (
  SELECT w.ctid AS place, w.run, w.kind, w.token FROM work w
  WHERE w.status = 'ready' AND w.gate = 0 AND w.queue = $1 AND (w.kind IN ('job', 'call') OR w.workflow = ANY($2::text[]))
    AND w.name = ANY($3::text[]) AND w.losses < $6::int
    AND (NOT EXISTS (SELECT FROM holds) OR NOT EXISTS (SELECT FROM holds h WHERE h.scope = 'all'
      OR (h.scope = 'workflow' AND h.name = w.workflow) OR (h.scope = 'queue' AND h.name = w.queue)))
  ORDER BY w.priority DESC, w.due LIMIT $4 FOR UPDATE OF w SKIP LOCKED),
t AS MATERIALIZED (SELECT c.*, kind IN ('timer', 'sleep') OR (kind = 'turn'
  AND EXISTS (SELECT FROM runs r WHERE r.id = c.run AND r.status = 'suspended' OFFSET 0)) AS timely FROM c),
n AS MATERIALIZED (SELECT now, CASE WHEN NOT EXISTS (SELECT FROM t WHERE NOT timely OR token + 1 >= now)
  THEN set_config('synchronous_commit', 'off', true) END AS not_synced
  FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) clock),
u AS (UPDATE work w SET status = 'leased', worker = $5,
    started = CASE WHEN w.due > (SELECT now FROM n) + $7::bigint THEN (SELECT now FROM n)
      ELSE greatest(w.due, (SELECT now FROM n)) END,
    token = CASE WHEN t.timely THEN greatest(w.token + 1, (SELECT now FROM n)) ELSE w.token + 1 END
  FROM t WHERE w.ctid = t.place RETURNING {work@w}),
-- A run's status follows its first claim, where nobody holds the run. A claim column like the lease: the version stays (K4).
b AS MATERIALIZED (SELECT r.id, u.started FROM u JOIN runs r ON r.id = u.run WHERE r.status = 'pending' FOR NO KEY UPDATE OF r SKIP LOCKED),
s AS (UPDATE runs r SET status = 'running', started = b.started FROM b WHERE r.id = b.id)
SELECT {work@u}, {runs@r} FROM (SELECT u.*, row_number() OVER (PARTITION BY u.run) AS nth FROM u) u
LEFT JOIN LATERAL (SELECT * FROM runs WHERE u.nth = 1 AND runs.id = u.run OFFSET 0) r ON true

-- name: claim_items
-- The same, of what is remembered: no more comes back than tells whether it is still like that.
WITH c AS MATERIALIZED (
  SELECT w.ctid AS place, w.run, w.kind, w.token FROM work w
  WHERE w.status = 'ready' AND w.gate = 0 AND w.queue = $1 AND (w.kind IN ('job', 'call') OR w.workflow = ANY($2::text[]))
    AND w.name = ANY($3::text[]) AND w.losses < $6::int
    AND (NOT EXISTS (SELECT FROM holds) OR NOT EXISTS (SELECT FROM holds h WHERE h.scope = 'all'
      OR (h.scope = 'workflow' AND h.name = w.workflow) OR (h.scope = 'queue' AND h.name = w.queue)))
  ORDER BY w.priority DESC, w.due LIMIT $4 FOR UPDATE OF w SKIP LOCKED),
t AS MATERIALIZED (SELECT c.*, kind IN ('timer', 'sleep') OR (kind = 'turn'
  AND EXISTS (SELECT FROM runs r WHERE r.id = c.run AND r.status = 'suspended' OFFSET 0)) AS timely FROM c),
n AS MATERIALIZED (SELECT now, CASE WHEN NOT EXISTS (SELECT FROM t WHERE NOT timely OR token + 1 >= now)
  THEN set_config('synchronous_commit', 'off', true) END AS not_synced
  FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) clock),
u AS (UPDATE work w SET status = 'leased', worker = $5,
    started = CASE WHEN w.due > (SELECT now FROM n) + $7::bigint THEN (SELECT now FROM n)
      ELSE greatest(w.due, (SELECT now FROM n)) END,
    token = CASE WHEN t.timely THEN greatest(w.token + 1, (SELECT now FROM n)) ELSE w.token + 1 END
  FROM t WHERE w.ctid = t.place RETURNING w.run, w.node, w.attempt, t.token AS before, w.token, w.started),
b AS MATERIALIZED (SELECT r.id, u.started FROM u JOIN runs r ON r.id = u.run WHERE r.status = 'pending' FOR NO KEY UPDATE OF r SKIP LOCKED),
s AS (UPDATE runs r SET status = 'running', started = b.started FROM b WHERE r.id = b.id)
SELECT (SELECT now FROM n), u.token, u.run, u.node, u.attempt, u.before, r.version, r.status
FROM u LEFT JOIN LATERAL (SELECT version, status FROM runs WHERE runs.id = u.run OFFSET 0) r ON true
-- name: claimed
-- What of it was not remembered after all, unless somebody has taken it away since.
SELECT {work@w}, {runs@r} FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[]) k(run, node, attempt, token)
JOIN LATERAL (SELECT * FROM work WHERE work.run = k.run AND work.node = k.node AND work.attempt = k.attempt
  AND work.token = k.token OFFSET 0) w ON true
JOIN LATERAL (SELECT * FROM runs WHERE runs.id = k.run OFFSET 0) r ON true

-- name: promote
-- work_delayed; skips what is locked, the next poll takes it. What is due next comes back: of those that were let in
-- just now the rows are still as they were here, so only later ones count, unless there were too many for once.
-- A server that dies may forget it, and whoever asks next does it again: nobody waits for the disk.
WITH n AS MATERIALIZED (SELECT now, now + $2::bigint AS upto, set_config('synchronous_commit', 'off', true) AS not_synced
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) clock),
d AS MATERIALIZED (SELECT ctid AS place FROM work WHERE status = 'ready' AND gate = 1 AND queue = ANY($1::text[])
    AND due <= (SELECT upto FROM n) LIMIT 1000 FOR UPDATE SKIP LOCKED),
u AS (UPDATE work w SET gate = 0 FROM d WHERE w.ctid = d.place)
SELECT CASE WHEN (SELECT count(*) FROM d) = 1000 THEN now ELSE
  (SELECT min(due) FROM work WHERE status = 'ready' AND gate = 1 AND queue = ANY($1::text[]) AND due > (SELECT upto FROM n)) END, now
FROM n

-- name: hold_worker_lock
-- Held by the worker's own session: when the process dies, the server frees it.
SELECT pg_try_advisory_lock(('x' || substr(md5('holdfast-worker:' || $1::text), 1, 16))::bit(64)::bigint)
-- name: see_code
INSERT INTO code (workflow, signature, nodes, seen, served)
SELECT w, s, n, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, false
FROM unnest($1::text[], $2::text[], $3::bytea[]) c(w, s, n) ORDER BY w, s ON CONFLICT DO NOTHING
-- name: serve_code
UPDATE code SET seen = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, served = true
FROM unnest($1::text[], $2::text[]) c(w, s) WHERE workflow = w AND signature = s AND (NOT served OR $3::boolean)
-- name: code_nodes
SELECT nodes FROM code WHERE workflow = $1 AND ($2::text IS NULL OR signature = $2) ORDER BY seen DESC LIMIT 1
-- name: code_seen
SELECT workflow, signature, seen, served FROM code WHERE workflow = ANY($1::text[])

-- name: enroll
INSERT INTO workers ({workers}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::bigint, $9::bigint, $9::bigint + $10::bigint)
ON CONFLICT (id) DO UPDATE SET provable = excluded.provable, seen = excluded.seen, lease_until = excluded.lease_until
-- name: learn_names
UPDATE workers SET workflows = $2, actions = $3 WHERE id = $1
-- name: heartbeat
UPDATE workers SET seen = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  lease_until = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $2::bigint WHERE id = $1 RETURNING seen
-- name: retire
DELETE FROM workers WHERE id = $1
-- name: workers
-- A provably dead worker holds no lease, whatever its row says: its session's lock is gone.
SELECT id, host, pid, queues, workflows, actions, concurrency, provable, started, seen,
  CASE WHEN provable AND NOT EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((l.classid::bigint << 32) | l.objid::bigint)
        = ('x' || substr(md5('holdfast-worker:' || id), 1, 16))::bit(64)::bigint)
    THEN 0 ELSE lease_until END AS lease_until
FROM workers ORDER BY id
-- name: lapsed_workers
-- work_leased for the second part: leases of workers that have no row any more.
SELECT id FROM workers WHERE id <> $1 AND (lease_until < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
  OR CASE WHEN provable THEN pg_try_advisory_xact_lock(('x' || substr(md5('holdfast-worker:' || id), 1, 16))::bit(64)::bigint)
     ELSE false END)
UNION SELECT DISTINCT w.worker FROM work w WHERE w.status = 'leased' AND w.worker <> $1
  AND NOT EXISTS (SELECT 1 FROM workers k WHERE k.id = w.worker)
-- name: leased_to
-- work_leased
SELECT {work} FROM work WHERE status = 'leased' AND worker = $1 ORDER BY run, node, attempt
-- name: dead
-- work_dead
SELECT {work} FROM work WHERE status = 'dead' ORDER BY finished LIMIT $1
-- name: ready_before
SELECT {work} FROM work WHERE status = 'ready' AND gate = 0 AND due < $1 ORDER BY due LIMIT $2

-- name: stream_horizon
-- The last position first, then an id that is above those of all who took it; only if there is something new. The oldest
-- transaction that runs is as of the start of this statement, so it serves earlier marks alone.
SELECT p.position, CASE WHEN p.position > $1::bigint THEN pg_current_xact_id()::text::bigint END,
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint
FROM (SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS position FROM stream_positions OFFSET 0) p
-- name: oldest_running
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint
-- name: holding_back
-- Transactions that have written and that are older than the id given: since when the oldest of them is open.
SELECT extract(epoch FROM clock_timestamp() - min(xact_start))::float8 FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND age(backend_xid) > age(($1::text)::xid8::xid)
-- name: long_writers
SELECT pid, application_name, state, extract(epoch FROM clock_timestamp() - xact_start)::float8 FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
  AND extract(epoch FROM clock_timestamp() - xact_start)::float8 >= $1::float8 ORDER BY xact_start LIMIT 5
-- name: read_stream
-- stream_by_position
SELECT {stream} FROM stream WHERE workflow = $1 AND NOT system AND position > $2 AND position <= $3 ORDER BY position LIMIT $4
-- name: stream_lag
-- stream_by_position
SELECT count(*), (SELECT at FROM stream WHERE workflow = $1 AND NOT system AND position > $2 ORDER BY position LIMIT 1)
FROM stream WHERE workflow = $1 AND NOT system AND position > $2
-- name: stream_types
-- stream_by_position
SELECT t.type, t.version, t.count, s.run, s.sequence
FROM (SELECT type, version, count(*), max(position) AS newest FROM stream WHERE workflow = $1 AND NOT system
    GROUP BY type, version) t
  JOIN stream s ON s.workflow = $1 AND NOT s.system AND s.position = t.newest
ORDER BY t.type, t.version
-- name: transitions
-- observations_by_workflow
SELECT before, type, after, count(*) FROM observations WHERE workflow = $1 AND outcome = 'applied'
GROUP BY before, type, after ORDER BY before NULLS FIRST, type, after NULLS FIRST

-- name: open_work_types
-- for `check` only: it goes through all work
SELECT kind, name, count(*), min(run) FROM work WHERE workflow = $1 AND status IN ('blocked', 'ready', 'leased')
GROUP BY kind, name ORDER BY kind, name

-- name: marks
-- runs_open, runs_ended and the primary key. Work that was begun is counted of the runs that somebody looks at, no others.
SELECT * FROM (SELECT r.id, r.workflow, r.model, r.status, r.version, -1
  FROM runs r WHERE r.finished IS NULL LIMIT $1) open_runs
UNION ALL SELECT * FROM (SELECT r.id, r.workflow, r.model, r.status, r.version, -1
  FROM runs r WHERE r.finished >= $2 ORDER BY r.finished DESC LIMIT $3) ended_runs
UNION ALL SELECT * FROM (SELECT r.id, r.workflow, r.model, r.status, r.version,
  (SELECT COALESCE(sum(w.token), 0)::bigint FROM work w WHERE w.run = r.id AND w.status = 'leased')
  FROM runs r WHERE r.id = ANY ($4::text[])) watched_runs
-- name: count_runs
SELECT status, count(*) FROM runs GROUP BY status
-- name: count_work
SELECT status, count(*) FROM work GROUP BY status
-- name: queue_depths
SELECT queue, count(*) FILTER (WHERE status = 'ready' AND gate = 0), count(*) FILTER (WHERE status = 'ready' AND gate > 0),
  count(*) FILTER (WHERE status = 'leased'), min(due) FILTER (WHERE status = 'ready' AND gate = 0)
FROM work WHERE status IN ('ready', 'leased') GROUP BY queue ORDER BY queue
-- name: find
SELECT {runs} FROM runs WHERE ($1::text IS NULL OR workflow = $1) AND ($2::text[] IS NULL OR status = ANY($2))
  AND ($3::text IS NULL OR tags::jsonb @> $3::jsonb) AND ($4::bigint IS NULL OR created >= $4)
  AND ($5::text IS NULL OR id < $5) AND ($6::text IS NULL OR model = $6) AND ($7::text IS NULL OR starts_with(key, $7))
ORDER BY id DESC LIMIT $8
-- name: inbox
-- events_queued. A function may have been sent an event of the same name, so the run is looked at.
SELECT count(*), min(e.at) FROM events e JOIN runs r ON r.id = e.target
WHERE e.name = 'input' AND e.status = 'queued' AND r.model = 'decider'
-- name: dead_events
-- events_not_queued
SELECT count(*) FROM events WHERE status <> 'queued' AND status = 'dead'

-- name: prunable
-- runs_ended. What an instance's last decision asked for still happens (I34), and its run stays until then. A projection
-- that stopped keeps its position, however long that is ago: without it, it would take every event a second time. And
-- events that a projection has not seen stay until it has, or is cancelled (I36). And a child stays while its parent is
-- open and has not been told of its end: a function that never awaited it, a flow or graph that has still to look (G3).
WITH p AS MATERIALIZED (SELECT base, convert_from(input, 'UTF8')::jsonb AS sources FROM runs
  WHERE workflow >= 'projection:' AND workflow < 'projection;' AND key IS NOT NULL AND NOT superseded
    AND model = 'projection' AND status <> 'cancelled')
SELECT id FROM runs r WHERE status IN ('completed', 'failed', 'cancelled') AND finished IS NOT NULL AND finished < $1
  AND model <> 'projection'
  AND (model <> 'decider' OR NOT EXISTS (SELECT 1 FROM p JOIN stream s ON s.run = r.id AND s.position > p.base
    AND NOT s.system WHERE p.sources ? r.workflow))
  AND NOT EXISTS (SELECT 1 FROM work w WHERE w.run = r.id AND w.kind IN ('effect', 'timer', 'inbox')
    AND w.status IN ('blocked', 'ready', 'leased'))
  AND (parent IS NULL OR NOT EXISTS (SELECT 1 FROM runs o WHERE o.id = r.parent AND o.finished IS NULL
    AND (NOT r.awaited OR EXISTS (SELECT 1 FROM work c WHERE c.run = o.id AND c.kind = 'child' AND c.status IN ('ready', 'leased')))))
ORDER BY finished LIMIT $2 FOR UPDATE SKIP LOCKED
-- name: prune_work
DELETE FROM work WHERE run = ANY($1::text[])
-- name: prune_history
DELETE FROM history WHERE run = ANY($1::text[])
-- name: prune_waits
DELETE FROM waits WHERE run = ANY($1::text[])
-- name: prune_events
DELETE FROM events WHERE target = ANY($1::text[])
-- name: forget_commands
DELETE FROM inputs WHERE (scope, id) IN (
  SELECT i.scope, i.id FROM inputs i JOIN runs r ON r.id = i.run
  WHERE i.at < $1 AND r.workflow = $2
    AND CASE WHEN i.id LIKE 'same:%' THEN $3::bigint IS NULL OR i.answer::bigint + $3 <= r.token + r.mailbox
      ELSE i.id LIKE 'command:%' END
  ORDER BY i.at LIMIT $4
  FOR UPDATE OF i SKIP LOCKED) RETURNING id
-- name: prune_inputs
DELETE FROM inputs WHERE run = ANY($1::text[])
-- name: prune_definitions
DELETE FROM definitions WHERE run = ANY($1::text[])
-- name: prune_stream
DELETE FROM stream WHERE run = ANY($1::text[])
-- name: prune_snapshots
DELETE FROM snapshots WHERE run = ANY($1::text[])
-- name: prune_inbox
DELETE FROM inbox WHERE run = ANY($1::text[])
-- name: prune_checkpoints
DELETE FROM checkpoints WHERE run = ANY($1::text[])
-- name: prune_recorded
DELETE FROM recorded WHERE run = ANY($1::text[])
-- name: prune_observations
DELETE FROM observations WHERE run = ANY($1::text[])
-- name: prune_runs
DELETE FROM runs WHERE id = ANY($1::text[])
-- name: orphans
SELECT 'work', count(*) FROM work WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
UNION ALL SELECT 'history', count(*) FROM history WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
UNION ALL SELECT 'waits', count(*) FROM waits WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
UNION ALL SELECT 'events', count(*) FROM events WHERE target IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = target)
UNION ALL SELECT 'definitions', count(*) FROM definitions WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = run)
UNION ALL SELECT 'stream', count(*) FROM stream WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
UNION ALL SELECT 'snapshots', count(*) FROM snapshots WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
UNION ALL SELECT 'observations', count(*) FROM observations WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
UNION ALL SELECT 'inbox', count(*) FROM inbox WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
UNION ALL SELECT 'checkpoints', count(*) FROM checkpoints WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
UNION ALL SELECT 'recorded', count(*) FROM recorded WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)
-- name: miscounted
-- Runs whose counters disagree with their work: G10 says that no crash leaves one.
SELECT r.id, r.active, (SELECT count(*) FROM work w WHERE w.run = r.id AND w.status IN ('ready', 'leased'))
FROM runs r WHERE r.finished IS NULL
  AND r.active <> (SELECT count(*) FROM work w WHERE w.run = r.id AND w.status IN ('ready', 'leased')) LIMIT 20
-- name: overfull
SELECT run, node, attempt FROM work WHERE completed > required LIMIT 20
-- name: broken_streams
-- Instances whose stream has a gap, or another length than they say.
SELECT r.id, r.base, count(f.sequence), coalesce(max(f.sequence), 0) FROM runs r LEFT JOIN stream f ON f.run = r.id
WHERE r.model = 'decider' GROUP BY r.id, r.base
HAVING r.base <> count(f.sequence) OR r.base <> coalesce(max(f.sequence), 0) LIMIT 20
