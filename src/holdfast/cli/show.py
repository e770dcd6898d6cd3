"""`holdfast show` and `holdfast explain`: all that is known about one run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from holdfast.cli.finding import find_run
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import Cell, one_line, print_facts, print_heading, print_json, print_table, say, shown_state
from holdfast.cli.times import moment_of, shown_moment, shown_seconds

if TYPE_CHECKING:
    from holdfast.core.codec import Codecs, Encoded
    from holdfast.core.graph import Graph
    from holdfast.core.rows import Run, Work
    from holdfast.engine import Engine
    from holdfast.handle import HistoryEntry

RESULT_WIDTH: Final = 2000
MARKS: Final = {
    "completed": "[+]",
    "skipped": "[-]",
    "leased": "[>]",
    "failed": "[!]",
    "timed_out": "[!]",
    "dead": "[!]",
    "lost": "[!]",
    "cancelled": "[x]",
}
WAITING: Final = "[ ]"


class AttemptShown(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a node, with names that scripts can rely on."""

    attempt: int
    state: str
    worker: str | None
    started_at: datetime | None
    finished_at: datetime | None
    error: dict[str, str] | None
    outcome: Any


class NodeShown(msgspec.Struct, frozen=True, kw_only=True):
    """A node with all of its attempts; `state` is that of the latest."""

    id: str
    state: str
    detail: str
    after: tuple[str, ...]
    attempts: tuple[AttemptShown, ...]


class RunShown(msgspec.Struct, frozen=True, kw_only=True):
    """A run as `show --json` gives it."""

    run: str
    workflow: str
    status: str
    key: str | None
    reason: str | None
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
    nodes: tuple[NodeShown, ...]
    history: tuple[dict[str, Any], ...]


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--traceback", is_flag=True, help="Show the traceback of each node's last error.")
@common_options
@pass_options
@asynchronous
async def show(options: Options, run: str, traceback: bool) -> None:
    """Show a run: status, times, nodes, attempts, errors and history.

    Nodes are listed in the order in which they can run. Those that nothing has reached yet are known only to
    the code: give --app to see them too.
    """
    async with opened(options) as engine:
        row = await find_run(engine, run)
        shown = await _gather(engine, row)
    if options.as_json:
        print_json(shown)
        return
    _print_run(shown)
    _print_nodes(shown)
    _print_errors(shown)
    if traceback:
        _print_tracebacks(shown)
    _print_history(shown)


@click.command()
@click.argument("run", metavar="RUN")
@common_options
@pass_options
@asynchronous
async def explain(options: Options, run: str) -> None:
    """Say why a run is where it is, and what would move it."""
    async with opened(options) as engine:
        row = await find_run(engine, run)
        explanation = await engine.get(row.id).explain()
    if options.as_json:
        print_json(explanation)
        return
    say(explanation.summary, explanation.status)
    for reason in explanation.reasons:
        say(f"  - {reason}")
    for fix in explanation.fixes:
        say(f"  try: {fix}", "running")


async def _gather(engine: Engine, row: Run) -> RunShown:
    from holdfast.core.codec import Encoded, decode_error, unlabelled
    from holdfast.core.queries import AllWork

    handle = engine.get(row.id)
    work: list[Work] = await engine.store.rows(AllWork(row.id))
    error = None
    if row.error is not None:
        record = decode_error(row.error)
        error = {"type": record.type, "message": record.message}
    return RunShown(
        run=row.id,
        workflow=row.workflow,
        status=await handle.status(),
        key=row.key,
        reason=row.reason,
        queue=row.queue,
        priority=row.priority,
        tags=json.loads(row.tags),
        created_at=datetime.fromtimestamp(row.created / 1e6, UTC),
        started_at=moment_of(row.started),
        finished_at=moment_of(row.finished),
        due_at=moment_of(row.due or None),
        input=_plain(Encoded(row.input, row.codec), row, engine.codecs) if row.input else None,
        result=None if row.result is None else _plain(unlabelled(row.result), row, engine.codecs),
        error=error,
        nodes=_nodes(work, await engine.definitions.load(engine.store, row)),
        history=tuple(_entry(entry) for entry in await handle.history()),
    )


def _plain(payload: Encoded, row: Run, codecs: Codecs) -> Any:
    """A payload without its types: showing a run needs no code. The same as JSON, whatever it was written with."""
    from holdfast.core.errors import HoldfastError

    try:
        value = codecs.decode(payload.data, where=f"a payload of run {row.id}", codec=payload.codec)
    except HoldfastError:
        return f"<{len(payload.data)} bytes of {payload.codec} that this process cannot read>"
    return msgspec.to_builtins(value)


def _nodes(work: list[Work], graph: Graph | None) -> tuple[NodeShown, ...]:
    attempts: dict[str, list[Work]] = {}
    for item in sorted(work, key=lambda item: (item.created, item.node, item.attempt)):
        attempts.setdefault(item.node, []).append(item)
    order = list(attempts) if graph is None else list(dict.fromkeys([*graph.topological_order, *attempts]))
    shown = []
    for node in order:
        parents = () if graph is None or node not in graph.by_id else tuple(graph.by_id[node].depends_on)
        items = attempts.get(node, [])
        latest = items[-1] if items else None
        shown.append(
            NodeShown(
                id=node,
                state="pending" if latest is None else latest.status,
                detail="" if latest is None else _detail(latest),
                after=parents,
                attempts=tuple(_attempt(item) for item in items if item.status != "blocked"),
            )
        )
    return tuple(shown)


def _detail(item: Work) -> str:
    if item.status == "blocked":  # I2: whoever sees a blocked item sees what it waits for, and since when
        return f"{item.completed} of {item.required} since {moment_of(item.created):%H:%M:%S}"
    return f"due {moment_of(item.due):%Y-%m-%d %H:%M:%S}" if item.status == "ready" and item.gate == 1 else ""


def _attempt(item: Work) -> AttemptShown:
    from holdfast.core.codec import decode_error

    # A new attempt carries the error of the one before until it has an outcome of its own.
    record = None if item.error is None or item.finished is None else decode_error(item.error)
    return AttemptShown(
        attempt=item.attempt,
        state=item.status,
        worker=item.worker,
        started_at=moment_of(item.started),
        finished_at=moment_of(item.finished),
        error=None
        if record is None
        else {"type": record.type, "message": record.message, "traceback": record.traceback},
        outcome=None if item.outcome is None else msgspec.json.decode(item.outcome),
    )


def _entry(entry: HistoryEntry) -> dict[str, Any]:
    return {"sequence": entry.sequence, "kind": entry.kind, "at": entry.at, "data": entry.data}


def _print_run(shown: RunShown) -> None:
    now = datetime.now(UTC)
    facts = [("run", shown.run), ("workflow", shown.workflow), ("status", Cell(shown.status, shown.status))]
    if shown.reason:
        facts.append(("reason", shown.reason))
    if shown.key is not None:
        facts.append(("key", shown.key))
    facts.append(("queue", shown.queue + (f", priority {shown.priority}" if shown.priority else "")))
    if shown.tags:
        facts.append(("tags", " ".join(f"{name}={value}" for name, value in shown.tags.items())))
    facts.append(("created", shown_moment(shown.created_at, now)))
    if shown.due_at is not None and shown.started_at is None:
        facts.append(("due", shown_moment(shown.due_at, now)))
    if shown.started_at is not None:
        facts.append(("started", shown_moment(shown.started_at, now)))
    if shown.finished_at is not None:
        took = shown_seconds((shown.finished_at - shown.created_at).total_seconds())
        facts.append(("finished", f"{shown_moment(shown.finished_at, now)}, took {took}"))
    if shown.input is not None:
        facts.append(("input", _input(shown)))
    if shown.result is not None:
        facts.append(("result", _text(shown.result)))
    print_facts(facts)


def _input(shown: RunShown) -> str:
    """A call is stored as [[positional], {keyword}] and shown as it would be written."""
    match shown.input:
        case [list() as args, dict() as kwargs]:
            words = [_text(value) for value in args] + [f"{name}={_text(value)}" for name, value in kwargs.items()]
            return ", ".join(words)
        case other:
            return _text(other)


def _text(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), RESULT_WIDTH)


def _print_nodes(shown: RunShown) -> None:
    print_heading("nodes")
    rows = []
    for node in shown.nodes:
        last = node.attempts[-1] if node.attempts else None
        took = ""
        # A skipped node ends when somebody skips it, which says nothing about how long it ran.
        if last is not None and last.started_at and last.finished_at and node.state != "skipped":
            took = shown_seconds((last.finished_at - last.started_at).total_seconds())
        state = shown_state(node.state)
        rows.append(
            [
                Cell(MARKS.get(node.state, WAITING), node.state),
                node.id,
                Cell(f"{state} ({node.detail})" if node.detail else state, node.state),
                str(sum(each.started_at is not None for each in node.attempts) or ""),
                took,
                ", ".join(node.after),
            ]
        )
    headers = ["", "NODE", "STATE", "ATTEMPTS", "TOOK", "AFTER"]
    if not any(row[-1] for row in rows):  # a single node, or code that was not imported
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    print_table(headers, rows, whole=("NODE", "STATE", "ATTEMPTS", "TOOK"))


def _print_errors(shown: RunShown) -> None:
    facts = []
    for node in shown.nodes:
        for each in node.attempts:
            what = _what_went_wrong(each)
            if what is not None:
                facts.append((f"{node.id}, attempt {each.attempt}", Cell(what, each.state)))
    if facts:
        print_heading("errors")
        print_facts(facts)


def _what_went_wrong(attempt: AttemptShown) -> str | None:
    if attempt.state == "lost":  # nobody was left to report an error
        return f"lost with its worker {attempt.worker}, so it was repeated"
    return None if attempt.error is None else f"{attempt.error['type']}: {attempt.error['message']}"


def _print_tracebacks(shown: RunShown) -> None:
    for node in shown.nodes:
        failed = next((each for each in reversed(node.attempts) if each.error is not None), None)
        if failed is not None and failed.error is not None:
            print_heading(f"traceback of {node.id}, attempt {failed.attempt}")
            say(failed.error["traceback"].rstrip() or f"{failed.error['type']}: {failed.error['message']}")


def _print_history(shown: RunShown) -> None:
    if not shown.history:
        return
    print_heading("history")
    rows = []
    for entry in shown.history:
        data = dict(entry["data"])
        by = data.pop("by", "")
        about = ", ".join(f"{name} {value}" for name, value in data.items() if value not in ("", None))
        rows.append([f"{entry['at']:%Y-%m-%d %H:%M:%S}", entry["kind"], f"by {by}" if by else "", about])
    print_table(["AT (UTC)", "WHAT", "WHO", "ABOUT"], rows, whole=("AT (UTC)",), cut=("ABOUT",))
