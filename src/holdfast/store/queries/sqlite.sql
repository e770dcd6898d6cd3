-- Statements for SQLite. One name, one statement; the index that serves it is named where it matters.

-- name: insert_runs
INSERT INTO runs ({runs}) VALUES ({runs?})
-- name: insert_work
INSERT INTO work ({work}) VALUES ({work?})
-- name: insert_history
INSERT INTO history ({history}) VALUES ({history?})
-- name: insert_waits
INSERT INTO waits ({waits}) VALUES ({waits?})
-- name: insert_events
INSERT INTO events ({events}) VALUES ({events?})
-- name: insert_inputs
INSERT INTO inputs ({inputs}) VALUES ({inputs?})
-- name: insert_definitions
INSERT INTO definitions ({definitions}) VALUES ({definitions?})
-- name: insert_holds
INSERT INTO holds ({holds}) VALUES ({holds?})
-- name: insert_stream
-- The position is the rowid, given at the write.
INSERT INTO stream ({facts}) VALUES ({facts?})
-- name: insert_snapshots
-- Whatever was there before: a snapshot may have been deleted at any time (I38).
INSERT INTO snapshots ({snapshots}) VALUES ({snapshots?})
ON CONFLICT (run) DO UPDATE SET sequence = excluded.sequence, state = excluded.state, codec = excluded.codec,
  code = excluded.code, at = excluded.at
-- name: insert_inbox
INSERT INTO inbox ({inbox}) VALUES ({inbox?})
ON CONFLICT (run, node, variable, slot) DO UPDATE SET value = excluded.value, source = excluded.source
-- name: insert_checkpoints
INSERT INTO checkpoints ({checkpoints}) VALUES ({checkpoints?})
-- name: insert_recorded
INSERT INTO recorded ({recorded}) VALUES ({recorded?})
ON CONFLICT (run, node, attempt, call) DO UPDATE SET name = excluded.name, kind = excluded.kind,
  request = excluded.request, request_hash = excluded.request_hash, response = excluded.response,
  response_hash = excluded.response_hash, error = excluded.error, at = excluded.at, duration = excluded.duration
-- name: insert_observations
INSERT INTO observations ({observations}) VALUES ({observations?})

-- name: update_runs_step
-- What an ordinary step changes: half the work, and no index of runs is looked at.
UPDATE runs SET version = ?, status = ?, remaining = ?, active = ?, gave_up = ?, entries = ?, started = ?, updated = ?
WHERE id = ? AND version = ?
-- name: update_runs_ended
-- With what its last step changes besides.
UPDATE runs SET version = ?, status = ?, remaining = ?, active = ?, gave_up = ?, entries = ?, started = ?, updated = ?,
  result = ?, finished = ?
WHERE id = ? AND version = ?
-- name: update_runs_input
-- With what a decider counts at every input.
UPDATE runs SET version = ?, status = ?, remaining = ?, active = ?, gave_up = ?, entries = ?, started = ?, updated = ?,
  token = ?, base = ?, mailbox = ?, due = ?
WHERE id = ? AND version = ?
-- name: update_runs_full
-- Guarded by the version that the decision saw.
UPDATE runs SET version = ?, status = ?, remaining = ?, active = ?, gave_up = ?, entries = ?, started = ?, updated = ?,
  token = ?, base = ?, mailbox = ?, due = ?, result = ?, finished = ?, error = ?, definition = ?, awaited = ?, superseded = ?,
  reason = ?, signature = ?, adopted = ?
WHERE id = ? AND version = ?

-- name: insert_runs_new
INSERT INTO runs ({newruns}, awaited, superseded) VALUES ({newruns?}, 0, 0)
-- name: insert_work_new
INSERT INTO work ({newwork}) VALUES ({newwork?})
-- name: update_work_done
UPDATE work SET status = ?, result = ?, error = NULL, outcome = ?, finished = ?
WHERE run = ? AND node = ? AND attempt = ? AND token = ?
-- name: update_work_settled
UPDATE work SET status = ?, result = ?, error = ?, outcome = ?, finished = ?
WHERE run = ? AND node = ? AND attempt = ? AND token = ?
-- name: update_work_full
-- Guarded by the token that the decision saw.
UPDATE work SET status = ?, result = ?, error = ?, outcome = ?, finished = ?, completed = ?, token = ?, gate = ?, due = ?,
  worker = ?, parents = ?, ancestry = ?, failures = ?, losses = ?, started = ?
WHERE run = ? AND node = ? AND attempt = ? AND token = ?
-- name: update_work_whole
-- Work that follows another graph, and timers that are set anew.
UPDATE work SET status = ?, result = ?, error = ?, outcome = ?, finished = ?, completed = ?, token = ?, gate = ?, due = ?,
  worker = ?, parents = ?, ancestry = ?, failures = ?, losses = ?, started = ?, required = ?, name = ?, kind = ?, queue = ?,
  timeout = ?, policy = ?, payload = ?, codec = ?, priority = ?, created = ?
WHERE run = ? AND node = ? AND attempt = ? AND token = ?

-- name: delete_work
DELETE FROM work WHERE run = ? AND node = ? AND attempt = ?
-- name: delete_inbox
DELETE FROM inbox WHERE run = ? AND node = ? AND variable = ? AND slot = ?
-- name: delete_checkpoints
DELETE FROM checkpoints WHERE run = ? AND step = ?
-- name: delete_recorded
DELETE FROM recorded WHERE run = ? AND node = ? AND attempt = ? AND call = ?
-- name: delete_waits
DELETE FROM waits WHERE run = ? AND slot = ?
-- name: delete_history
DELETE FROM history WHERE run = ? AND sequence = ?
-- name: delete_events
DELETE FROM events WHERE id = ?
-- name: delete_inputs
DELETE FROM inputs WHERE scope = ? AND id = ?
-- name: delete_definitions
DELETE FROM definitions WHERE id = ?
-- name: delete_holds
DELETE FROM holds WHERE scope = ? AND name = ?
-- name: delete_stream
DELETE FROM stream WHERE run = ? AND sequence = ?
-- name: delete_snapshots
DELETE FROM snapshots WHERE run = ?
-- name: delete_observations
DELETE FROM observations WHERE run = ? AND number = ?

-- name: get_runs
SELECT {runs} FROM runs WHERE id = ?
-- name: runs_by_id
SELECT {runs} FROM runs WHERE id IN (SELECT value FROM json_each(?))
-- name: settled_runs
SELECT {runs} FROM runs WHERE id IN (SELECT value FROM json_each(?))
  AND status IN ('completed', 'failed', 'cancelled', 'paused')
-- name: get_work
SELECT {work} FROM work WHERE run = ? AND node = ? AND attempt = ?
-- name: get_history
SELECT {history} FROM history WHERE run = ? AND sequence = ?
-- name: get_waits
SELECT {waits} FROM waits WHERE run = ? AND slot = ?
-- name: get_events
SELECT {events} FROM events WHERE id = ?
-- name: get_inputs
SELECT {inputs} FROM inputs WHERE scope = ? AND id = ?
-- name: get_definitions
SELECT {definitions} FROM definitions WHERE id = ?
-- name: get_holds
SELECT {holds} FROM holds WHERE scope = ? AND name = ?
-- name: get_stream
SELECT {stream} FROM stream WHERE run = ? AND sequence = ?
-- name: get_snapshots
SELECT {snapshots} FROM snapshots WHERE run = ?
-- name: get_inbox
SELECT {inbox} FROM inbox WHERE run = ? AND node = ? AND variable = ? AND slot = ?
-- name: get_checkpoints
SELECT {checkpoints} FROM checkpoints WHERE run = ? AND step = ?
-- name: get_recorded
SELECT {recorded} FROM recorded WHERE run = ? AND node = ? AND attempt = ? AND call = ?
-- name: get_observations
SELECT {observations} FROM observations WHERE run = ? AND number = ?

-- name: RunByKey
-- runs_by_key
SELECT {runs} FROM runs WHERE workflow = ? AND key = ? AND superseded = 0
-- name: RunByAlias
-- runs_by_key
SELECT {runs} FROM runs WHERE workflow = ? AND key = ? AND superseded = 0
-- name: OpenWork
SELECT {work} FROM work WHERE run = ? AND status IN ('blocked', 'ready', 'leased') ORDER BY run, node, attempt
-- name: AllWork
SELECT {work} FROM work WHERE run = ? ORDER BY run, node, attempt
-- name: Attempts
SELECT {work} FROM work WHERE run = ? AND node IN (SELECT value FROM json_each(?)) ORDER BY run, node, attempt
-- name: WaitersOf
-- waits_by_topic
SELECT {waits} FROM waits WHERE topic = ? ORDER BY since, run, slot LIMIT coalesce(?, -1)
-- name: WaitsOf
SELECT {waits} FROM waits WHERE run = ? ORDER BY run, slot
-- name: QueuedEvents
-- events_queued
SELECT {events} FROM events WHERE name = ? AND target IS ? AND status = 'queued' ORDER BY at, id LIMIT coalesce(?, -1)
-- name: EventsFor
-- events_by_target
SELECT {events} FROM events WHERE target = ? AND status = 'queued' ORDER BY id
-- name: StrayEvents
-- events_not_queued, events_expiring
SELECT {events} FROM events WHERE (status <> 'queued' AND status = 'orphaned') OR (status = 'queued' AND expires <= ?) LIMIT ?
-- name: StoredEvent
SELECT {events} FROM events WHERE id = ?
-- name: DeadEvents
-- events_not_queued
SELECT {events} FROM events WHERE status <> 'queued' AND status = 'dead' ORDER BY at, id LIMIT ?
-- name: DueWork
SELECT {work} FROM work WHERE status = 'leased' OR (status = 'ready' AND (gate = 0 OR (gate = 1 AND due <= ?))) LIMIT ?
-- name: DelayedWork
-- work_delayed
SELECT {work} FROM work WHERE status = 'ready' AND gate = 1 AND (due, run, node) > (?, ?, ?) ORDER BY due, run, node LIMIT ?
-- name: HistoryPage
SELECT {history} FROM history WHERE run = ? AND sequence > ? ORDER BY sequence LIMIT ?
-- name: ChildrenOf
-- runs_by_parent
SELECT {runs} FROM runs WHERE parent = ? ORDER BY id
-- name: StreamAfter
SELECT {stream} FROM stream WHERE run = ? AND sequence > ? ORDER BY sequence LIMIT ?
-- name: ValuesOf
SELECT {inbox} FROM inbox WHERE run = ? ORDER BY node, variable, slot
-- name: ValuesFor
SELECT {inbox} FROM inbox WHERE run = ? AND node = ? AND variable = ? ORDER BY slot
-- name: ValuesAt
SELECT {inbox} FROM inbox WHERE run = ? AND node IN (SELECT value FROM json_each(?)) ORDER BY node, variable, slot
-- name: StateChain
SELECT {checkpoints} FROM checkpoints WHERE run = ?1 AND step <= ?2 AND step >= (
  SELECT max(step) FROM checkpoints WHERE run = ?1 AND step <= ?2 AND whole = 1) ORDER BY step
-- name: CheckpointsOf
SELECT {checkpoints} FROM checkpoints WHERE run = ? AND step < ? ORDER BY step DESC LIMIT ?
-- name: CheckpointsBetween
SELECT {checkpoints} FROM checkpoints WHERE run = ? AND step >= ? AND step < ? ORDER BY step
-- name: LabelledCheckpoint
-- checkpoints_labelled
SELECT {checkpoints} FROM checkpoints WHERE run = ? AND label IS NOT NULL AND instr(label, char(10) || ? || char(10)) > 0
ORDER BY step DESC LIMIT 1
-- name: RecordedBy
SELECT {recorded} FROM recorded WHERE run = ? AND node = ? ORDER BY attempt, call
-- name: RecordedIn
SELECT {recorded} FROM recorded WHERE run = ? AND node IN (SELECT value FROM json_each(?)) ORDER BY node, attempt, call
-- name: RecordedOf
SELECT {recorded} FROM recorded WHERE run = ? ORDER BY node, attempt, call
-- name: SnapshotOf
SELECT {snapshots} FROM snapshots WHERE run = ?
-- name: ObservationsOf
SELECT {observations} FROM observations WHERE run = ? ORDER BY number
-- name: FactsCausedBy
SELECT {stream} FROM stream WHERE run = ? AND cause = ? ORDER BY sequence
-- name: Holds
SELECT {holds} FROM holds ORDER BY scope, name
-- name: DefinitionById
SELECT {definitions} FROM definitions WHERE id = ?
-- name: CodeGraph
-- In the shape of a definition. code (primary key)
SELECT workflow || '@' || signature, '', signature, nodes, '', seen FROM code WHERE workflow = ? AND signature = ?
-- name: ByAncestry
-- work_by_ancestry
SELECT {work} FROM work WHERE ancestry = ? ORDER BY run, node, attempt
-- name: RunsLeftBehind
-- runs_left_behind
SELECT {runs} FROM runs WHERE signature IS NULL AND finished IS NULL AND model = 'dag' AND definition IS NULL
  AND status <> 'paused' LIMIT ?
-- name: RunsToReshape
-- runs_open
SELECT {runs@r} FROM (SELECT w.value AS workflow, s.value AS signature, t.value AS seen
    FROM json_each(?) w JOIN json_each(?) s ON s.key = w.key JOIN json_each(?) t ON t.key = w.key) c
  CROSS JOIN runs r INDEXED BY runs_open ON r.workflow = c.workflow
WHERE r.finished IS NULL AND r.definition IS NULL AND r.status <> 'paused' AND r.signature IS NOT c.signature
  AND r.adopted <= c.seen LIMIT ?
-- name: HistoryOf
SELECT {history} FROM history WHERE run = ? AND sequence > ? ORDER BY sequence

-- name: claimable
-- work_claimable, in its order. Holds are looked at here, so that maintenance stops every claim at once.
SELECT {work@w} FROM work w INDEXED BY work_claimable
WHERE w.queue = ? AND w.status = 'ready' AND w.gate = 0
  AND (w.kind IN ('job', 'call') OR w.workflow IN (SELECT value FROM json_each(?)))
  AND w.name IN (SELECT value FROM json_each(?)) AND w.losses < ?
  AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.scope = 'all' OR (h.scope = 'workflow' AND h.name = w.workflow)
                  OR (h.scope = 'queue' AND h.name = w.queue))
ORDER BY w.priority DESC, w.due LIMIT ?
-- name: claimable_items
-- The same, of what is remembered: no more than tells whether it is still like that.
SELECT w.run, w.node, w.attempt, w.token, r.version, r.status FROM work w INDEXED BY work_claimable CROSS JOIN runs r
WHERE w.queue = ? AND w.status = 'ready' AND w.gate = 0
  AND (w.kind IN ('job', 'call') OR w.workflow IN (SELECT value FROM json_each(?)))
  AND w.name IN (SELECT value FROM json_each(?)) AND w.losses < ?
  AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.scope = 'all' OR (h.scope = 'workflow' AND h.name = w.workflow)
                  OR (h.scope = 'queue' AND h.name = w.queue))
  AND r.id = w.run
ORDER BY w.priority DESC, w.due LIMIT ?
-- name: lease
UPDATE work SET status = 'leased', token = ?, worker = ?, started = ? WHERE run = ? AND node = ? AND attempt = ?

-- name: begin
-- A run's status follows its first claim. A claim column like the lease: the version stays (K4).
UPDATE runs SET status = 'running', started = ? WHERE id = ? AND status = 'pending'

-- name: promote
-- work_delayed
UPDATE work SET gate = 0 WHERE status = 'ready' AND gate = 1 AND queue = ? AND due <= ?
-- name: next_due
SELECT min(due) FROM work INDEXED BY work_delayed WHERE status = 'ready' AND gate = 1 AND queue = ?

-- name: see_code
INSERT INTO code (workflow, signature, nodes, seen, served) VALUES (?, ?, ?, ?, 0) ON CONFLICT DO NOTHING
-- name: serve_code
UPDATE code SET seen = ?, served = 1 WHERE workflow = ? AND signature = ? AND (served = 0 OR ?)
-- name: code_nodes
SELECT nodes FROM code WHERE workflow = ? AND signature = coalesce(?, signature) ORDER BY seen DESC LIMIT 1
-- name: code_seen
SELECT workflow, signature, seen, served FROM code WHERE workflow IN (SELECT value FROM json_each(?))

-- name: enroll
INSERT OR REPLACE INTO workers ({workers}) VALUES ({workers?})
-- name: learn_names
UPDATE workers SET workflows = ?, actions = ? WHERE id = ?
-- name: heartbeat
UPDATE workers SET seen = ?, lease_until = ? WHERE id = ?
-- name: retire
DELETE FROM workers WHERE id = ?
-- name: workers
SELECT {workers} FROM workers ORDER BY id
-- name: leased_to
-- work_leased
SELECT {work} FROM work INDEXED BY work_leased WHERE status = 'leased' AND worker = ? ORDER BY run, node, attempt
-- name: ownerless
-- Leases of workers that have no row any more.
SELECT DISTINCT worker FROM work INDEXED BY work_leased WHERE status = 'leased' AND worker <> ?
  AND worker NOT IN (SELECT id FROM workers)
-- name: dead
-- work_dead
SELECT {work} FROM work WHERE status = 'dead' ORDER BY finished LIMIT ?
-- name: ready_before
SELECT {work} FROM work WHERE status = 'ready' AND gate = 0 AND due < ? ORDER BY due LIMIT ?

-- name: stream_bound
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'stream'), 0)
-- name: read_stream
-- stream_by_position
SELECT {stream} FROM stream INDEXED BY stream_by_position WHERE workflow = ? AND system = 0 AND position > ? AND position <= ?
ORDER BY position LIMIT ?
-- name: stream_lag
-- stream_by_position
SELECT count(*), (SELECT at FROM stream INDEXED BY stream_by_position WHERE workflow = ?1 AND system = 0 AND position > ?2
    ORDER BY position LIMIT 1)
FROM stream INDEXED BY stream_by_position WHERE workflow = ?1 AND system = 0 AND position > ?2
-- name: stream_types
-- stream_by_position
SELECT t.type, t.version, t.count, s.run, s.sequence
FROM (SELECT type, version, count(*) AS count, max(position) AS newest FROM stream INDEXED BY stream_by_position
    WHERE workflow = ? AND system = 0 GROUP BY type, version) t
  CROSS JOIN stream s ON s.position = t.newest
ORDER BY t.type, t.version
-- name: transitions
-- observations_by_workflow
SELECT before, type, after, count(*) FROM observations WHERE workflow = ? AND outcome = 'applied'
GROUP BY before, type, after ORDER BY before, type, after

-- name: open_work_types
-- for `check` only: it goes through all work
SELECT kind, name, count(*), min(run) FROM work WHERE workflow = ? AND status IN ('blocked', 'ready', 'leased')
GROUP BY kind, name ORDER BY kind, name

-- name: marks
-- runs_open, runs_ended and the primary key. Work that was begun is counted of the runs that somebody looks at, no others.
SELECT * FROM (SELECT r.id, r.workflow, r.model, r.status, r.version, -1
  FROM runs r WHERE r.finished IS NULL LIMIT ?1) open_runs
UNION ALL SELECT * FROM (SELECT r.id, r.workflow, r.model, r.status, r.version, -1
  FROM runs r WHERE r.finished >= ?2 ORDER BY r.finished DESC LIMIT ?3) ended_runs
UNION ALL SELECT * FROM (SELECT r.id, r.workflow, r.model, r.status, r.version,
  (SELECT COALESCE(sum(w.token), 0) FROM work w WHERE w.run = r.id AND w.status = 'leased')
  FROM runs r WHERE r.id IN (SELECT value FROM json_each(?4))) watched_runs
-- name: count_runs
SELECT status, count(*) FROM runs GROUP BY status
-- name: count_work
SELECT status, count(*) FROM work GROUP BY status
-- name: queue_depths
SELECT queue, sum(status = 'ready' AND gate = 0), sum(status = 'ready' AND gate > 0), sum(status = 'leased'),
  min(CASE WHEN status = 'ready' AND gate = 0 THEN due END)
FROM work WHERE status IN ('ready', 'leased') GROUP BY queue ORDER BY queue

-- name: inbox
-- events_queued. A function may have been sent an event of the same name, so the run is looked at.
SELECT count(*), min(e.at) FROM events e CROSS JOIN runs r ON r.id = e.target
WHERE e.name = 'input' AND e.status = 'queued' AND r.model = 'decider'
-- name: dead_events
-- events_not_queued
SELECT count(*) FROM events WHERE status <> 'queued' AND status = 'dead'

-- name: prunable
-- runs_ended. What an instance's last decision asked for still happens (I34), and its run stays until then. A projection
-- that stopped keeps its position, however long that is ago: without it, it would take every event a second time. And
-- events that a projection has not seen stay until it has, or is cancelled (I36). And a child stays while its parent is
-- open and has not been told of its end: a function that never awaited it, a flow or graph that has still to look (G3).
SELECT id FROM runs WHERE status IN ('completed', 'failed', 'cancelled') AND finished IS NOT NULL AND finished < ?
  AND model <> 'projection'
  AND (model <> 'decider' OR NOT EXISTS (SELECT 1 FROM runs p JOIN stream s ON s.run = runs.id AND s.position > p.base
    AND s.system = 0 WHERE p.workflow >= 'projection:' AND p.workflow < 'projection;' AND p.key IS NOT NULL
    AND p.superseded = 0 AND p.model = 'projection' AND p.status <> 'cancelled' AND runs.workflow IN (SELECT value FROM json_each(CAST(p.input AS TEXT)))))
  AND NOT EXISTS (SELECT 1 FROM work w WHERE w.run = runs.id AND w.kind IN ('effect', 'timer', 'inbox')
    AND w.status IN ('blocked', 'ready', 'leased'))
  AND (parent IS NULL OR NOT EXISTS (SELECT 1 FROM runs o WHERE o.id = runs.parent AND o.finished IS NULL
    AND (runs.awaited = 0 OR EXISTS (SELECT 1 FROM work c WHERE c.run = o.id AND c.kind = 'child' AND c.status IN ('ready', 'leased')))))
ORDER BY finished LIMIT ?
-- name: prune_work
DELETE FROM work WHERE run = ?
-- name: prune_history
DELETE FROM history WHERE run = ?
-- name: prune_waits
DELETE FROM waits WHERE run = ?
-- name: prune_events
DELETE FROM events WHERE target = ?
-- name: forget_commands
DELETE FROM inputs WHERE (scope, id) IN (
  SELECT i.scope, i.id FROM inputs i JOIN runs r ON r.id = i.run
  WHERE i.at < ?1 AND r.workflow = ?2
    AND CASE WHEN i.id LIKE 'same:%' THEN ?3 IS NULL OR CAST(i.answer AS INTEGER) + ?3 <= r.token + r.mailbox
      ELSE i.id LIKE 'command:%' END
  ORDER BY i.at LIMIT ?4)
-- name: prune_inputs
DELETE FROM inputs WHERE run = ?
-- name: prune_definitions
DELETE FROM definitions WHERE run = ?
-- name: prune_stream
DELETE FROM stream WHERE run = ?
-- name: prune_snapshots
DELETE FROM snapshots WHERE run = ?
-- name: prune_inbox
DELETE FROM inbox WHERE run = ?
-- name: prune_checkpoints
DELETE FROM checkpoints WHERE run = ?
-- name: prune_recorded
DELETE FROM recorded WHERE run = ?
-- name: prune_observations
DELETE FROM observations WHERE run = ?
-- name: prune_runs
DELETE FROM runs WHERE id = ?

-- name: orphans
SELECT 'work', count(*) FROM work WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'history', count(*) FROM history WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'waits', count(*) FROM waits WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'events', count(*) FROM events WHERE target IS NOT NULL AND target NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'definitions', count(*) FROM definitions WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'stream', count(*) FROM stream WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'snapshots', count(*) FROM snapshots WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'observations', count(*) FROM observations WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'inbox', count(*) FROM inbox WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'checkpoints', count(*) FROM checkpoints WHERE run NOT IN (SELECT id FROM runs)
UNION ALL SELECT 'recorded', count(*) FROM recorded WHERE run NOT IN (SELECT id FROM runs)
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
