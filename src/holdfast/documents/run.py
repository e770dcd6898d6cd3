"""A run as `holdfast show --json` gives it: names that scripts can rely on, and how they are gathered."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.stored import moment
from holdfast.documents.times import moment_of

if TYPE_CHECKING:
    from holdfast.core.codec import Codecs, Encoded
    from holdfast.core.graph import Graph
    from holdfast.core.rows import Run, Work
    from holdfast.documents.instance import InstanceShown
    from holdfast.documents.state_graph import GraphShown
    from holdfast.engine import Engine
    from holdfast.handle import HistoryEntry


class AttemptShown(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a node."""

    attempt: int
    state: str
    worker: str | None
    started_at: datetime | None
    finished_at: datetime | None
    error: dict[str, str] | None
    outcome: Any


class NodeShown(msgspec.Struct, frozen=True, kw_only=True):
    """A node with all of its attempts; `state` is that of the latest, `after` names what it depends on.

    `does` says of an address of a flow what is done there: an action, a barrier, a sleep, a child.
    """

    id: str
    name: str
    state: str
    detail: str
    after: tuple[str, ...]
    does: str
    attempts: tuple[AttemptShown, ...]


class WaitShown(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a run waits for: an event, or the end of a run, which then has this status."""

    event: str | None
    run: str | None
    status: str | None
    address: str
    code: str
    since: datetime


class ChildShown(msgspec.Struct, frozen=True, kw_only=True):
    """A run that this one has started and that is cancelled with it."""

    run: str
    workflow: str
    status: str
    key: str | None


class RunShown(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its nodes and its history. `signature` is that of the graph it follows, if that is known here.

    `nodes` of a flow are the addresses that were reached, in the order of its source. A function has none: they are its
    own turn, under its name, and those of its calls that went through the work table; `wakes_at` is the next time that
    it waits for. Those of an instance of a decider are what is pending or was given up, and `instance` has the rest.
    Those of a state graph are the items that were let in, as NODE@STEP, and `graph` has its steps and its frontier.
    """

    run: str
    workflow: str
    model: str
    status: str
    key: str | None
    reason: str | None
    parent: str | None
    queue: str
    priority: int
    tags: dict[str, str]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    due_at: datetime | None
    input: Any
    result: Any
    error: dict[str, str] | None
    signature: str | None
    stored_graph: bool
    waits: tuple[WaitShown, ...]
    wakes_at: datetime | None
    children: tuple[ChildShown, ...]
    nodes: tuple[NodeShown, ...]
    history: tuple[dict[str, Any], ...]
    instance: InstanceShown | None
    graph: GraphShown | None


async def gather(
    engine: Engine, row: Run, *, every_node: bool = False, whole_history: bool = False
) -> tuple[RunShown, Graph | None]:
    """All that is known about a run, and the graph it follows if this process can know it.

    Of an instance of a decider, which may have had very many, the effects and events that matter now, or all.
    """
    from holdfast.core.codec import Encoded, decode_error, unlabelled
    from holdfast.core.errors import HoldfastError
    from holdfast.core.queries import AllWork
    from holdfast.documents.instance import DECIDER, gather_instance, instance_work
    from holdfast.documents.state_graph import GRAPH, gather_graph

    handle = engine.get(row.id)
    is_instance = row.model == DECIDER
    work: list[Work] = (
        await instance_work(engine, row, every_node) if is_instance else await engine.store.rows(AllWork(row.id))
    )
    try:
        graph = await engine.definitions.load(engine.store, row)
    except HoldfastError:  # a damaged graph: whoever looks needs the rest all the more
        graph = None
    error = None
    if row.error is not None:
        record = decode_error(row.error)
        error = {"type": record.type, "message": record.message}
    shown = RunShown(
        run=row.id,
        workflow=row.workflow,
        model=row.model,
        status=await handle.status(),
        key=row.key,
        reason=row.reason,
        parent=row.parent,
        queue=row.queue,
        priority=row.priority,
        tags=json.loads(row.tags),
        created_at=moment(row.created),
        started_at=moment_of(row.started),
        finished_at=moment_of(row.finished),
        due_at=None if is_instance or row.model == GRAPH else moment_of(row.due or None),  # whose `due` is a count
        input=payload_of(Encoded(row.input, row.codec), row, engine.codecs) if row.input else None,
        result=None if row.result is None else payload_of(unlabelled(row.result), row, engine.codecs),
        error=error,
        signature=None if graph is None else graph.signature,
        stored_graph=row.definition is not None,
        waits=await waits_of(engine, row),
        wakes_at=next((moment_of(item.due) for item in work if is_asleep(row, item)), None),
        children=await children_of(engine, row),
        nodes=nodes_of(row, await in_source_order(engine, row, work), graph),
        history=tuple(_entry(entry) for entry in await handle.history()),
        instance=(
            await gather_instance(engine, row, work, every=every_node, whole=whole_history) if is_instance else None
        ),
        graph=await gather_graph(engine, row, work) if row.model == GRAPH else None,
    )
    return shown, graph


def payload_of(payload: Encoded, row: Run, codecs: Codecs) -> Any:
    """A payload without its types: showing a run needs no code. The same as JSON, whatever it was written with."""
    from holdfast.core.errors import HoldfastError

    try:
        value = codecs.decode(payload.data, where=f"a payload of run {row.id}", codec=payload.codec)
    except HoldfastError:
        return f"<{len(payload.data)} bytes of {payload.codec} that this process cannot read>"
    return msgspec.to_builtins(value)


async def waits_of(engine: Engine, row: Run) -> tuple[WaitShown, ...]:
    """What a run waits for: events, and the ends of other runs."""
    from holdfast.explain.situation import Awaited

    waits = [Awaited.of(wait) for wait in await engine.get(row.id).waits()]
    others = {other.id: other for other in await engine.store.runs([wait.ended for wait in waits if wait.ended])}
    return tuple(
        WaitShown(
            event=wait.event or None,
            run=wait.ended or None,
            status=others[wait.ended].status if wait.ended in others else None,
            address=wait.address,
            code=wait.name,
            since=moment(wait.since),
        )
        for wait in waits
    )


def is_asleep(run: Run, item: Work) -> bool:
    """Whether this is the turn of a function that waits for a time."""
    return item.kind == "turn" and item.status == "ready" and run.status == "suspended"


async def children_of(engine: Engine, row: Run) -> tuple[ChildShown, ...]:
    """The runs that a run has started, the oldest first."""
    from holdfast.core.queries import ChildrenOf

    if row.model not in ("function", "flow", "graph"):
        return ()  # only these have any
    found: list[Run] = await engine.store.rows(ChildrenOf(row.id))
    return tuple(
        ChildShown(run=child.id, workflow=child.workflow, status=child.status, key=child.key)
        for child in sorted(found, key=lambda child: (child.created, child.id))
    )


def nodes_of(run: Run, work: Iterable[Work], graph: Graph | None) -> tuple[NodeShown, ...]:
    """The nodes of a run with their attempts; those of its graph that have none too."""
    from holdfast.models.dag_items import latest_of

    attempts: dict[str, list[Work]] = {}
    for item in work:
        attempts.setdefault(item.node, []).append(item)
    order = list(attempts) if graph is None else list(dict.fromkeys([*graph.topological_order, *attempts]))
    names = _call_names(run, attempts) if graph is None else {node.id: node.name for node in graph.nodes}
    # A run that was finished early leaves nodes without a row behind, which nobody wanted any more.
    absent = "skipped" if run.status == "completed" else "pending"
    shown = []
    for node in order:
        parents = () if graph is None or node not in graph.by_id else graph.by_id[node].depends_on
        items = attempts.get(node, [])
        latest = latest_of(run, items) if items else None
        shown.append(
            NodeShown(
                id=node,
                name=names.get(node, node),
                state=absent if latest is None else latest.status,
                detail="" if latest is None else detail_of(run, latest),
                after=tuple(names[parent] for parent in parents),
                does=_does(items[0]) if run.model == "flow" and items else "",
                attempts=(*_before(items), *(_attempt(item) for item in items if item.status != "blocked")),
            )
        )
    return tuple(shown)


async def in_source_order(engine: Engine, row: Run, work: list[Work]) -> list[Work]:
    """Work of a flow as its source has it, pass by pass and element by element; other work by when it was made."""
    from holdfast.core.flow_addresses import parse_address

    if row.model != "flow":
        return sorted(work, key=lambda item: (item.created, item.node, item.attempt))
    graph = await engine.definitions.flow_graph(engine.store, row)
    position = {} if graph is None else {node.id: place for place, node in enumerate(graph.nodes)}
    addressed = [(parse_address(item.node), item) for item in work]
    addressed.sort(
        key=lambda each: (
            position.get(each[0].node, len(position)),
            each[0].node,
            each[0].passes,
            -1 if each[0].index is None else each[0].index,
            each[1].attempt,
        )
    )
    return [item for _, item in addressed]


def _does(item: Work) -> str:
    words = {"node": f"action {item.name}", "child": f"run of {item.name}"}
    return words.get(item.kind, item.kind)


def _call_names(run: Run, attempts: dict[str, list[Work]]) -> dict[str, str]:
    """What people call the work of a function: itself by its name, a call by its action and where it was made."""
    names = {}
    for node, items in attempts.items():
        if items[0].kind == "turn":
            names[node] = run.workflow
        elif items[0].kind == "call":
            names[node] = f"{items[0].name} ({node.rpartition('|')[2]})"
    return names


def _before(items: list[Work]) -> tuple[AttemptShown, ...]:
    """The first attempt of a call was made in the function's own process, and only its error is kept."""
    if not items or items[0].kind != "call" or items[0].attempt == 1:
        return ()
    first = items[0]
    return (
        AttemptShown(
            attempt=first.attempt - 1,
            state="failed",
            worker=None,
            started_at=None,
            finished_at=moment_of(first.created),
            error=failure_of(first.error) if first.error is not None and first.finished is None else None,
            outcome=None,
        ),
    )


def detail_of(run: Run, item: Work) -> str:
    """What a person wants to know of an item beside its state: what it waits for, or when it is due."""
    from holdfast.models.dag_items import awaited_by

    if item.status == "blocked" and item.kind == "effect":
        return f"one at a time, since {moment_of(item.created):%H:%M:%S}"
    if item.status == "blocked" and run.model == "graph" and item.kind == "node":
        return "asks a person" if item.completed < item.required else "waits for room"
    if item.status == "blocked" and item.kind == "child":
        return f"by its run since {moment_of(item.created):%H:%M:%S}"
    if item.status == "blocked":  # I2: whoever sees a blocked item sees what it waits for, and since when
        return f"{awaited_by(run, item)} since {moment_of(item.created):%H:%M:%S}"
    return f"due {moment_of(item.due):%Y-%m-%d %H:%M:%S}" if item.status == "ready" and item.gate == 1 else ""


def _attempt(item: Work) -> AttemptShown:
    from holdfast.listing import readable

    return AttemptShown(
        attempt=item.attempt,
        state=item.status,
        worker=item.worker,
        started_at=moment_of(item.started),
        finished_at=moment_of(item.finished),
        # A new attempt carries the error of the one before until it has an outcome of its own.
        error=None if item.error is None or item.finished is None else failure_of(item.error),
        outcome=None if item.outcome is None else readable(item.outcome),
    )


def failure_of(stored: bytes) -> dict[str, str]:
    """A stored error: its type, its message and its traceback."""
    from holdfast.core.codec import decode_error

    record = decode_error(stored)
    return {"type": record.type, "message": record.message, "traceback": record.traceback}


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    return {"sequence": entry.sequence, "kind": entry.kind, "at": entry.at, "data": entry.data}
