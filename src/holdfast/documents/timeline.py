"""A run over time: a lane for each place in it, and bars for what was done there and what it waited for.

Everything is read from the work table, and, of a function, from its history: what a function's own process did between
two entries has left only the time of its end, so such a bar begins where the entry before it was written.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.core.function_operations import ENTRY_KINDS, FAILURE, TIMER, TURN
from holdfast.core.queries import AllWork, ChildrenOf, HistoryPage
from holdfast.core.rows import BARRIER, BLOCKED, CHILD, GATE_DUE, LEASED, READY, SLEEP, WAIT
from holdfast.core.rows import TIMER as TIMER_KIND
from holdfast.core.stored import moment
from holdfast.documents.run import waits_of
from holdfast.documents.times import moment_of
from holdfast.listing import readable_entry

if TYPE_CHECKING:
    from holdfast.core.rows import History, Run, Work
    from holdfast.engine import Engine

BarKind = Literal["attempt", "wait", "retry", "timer", "child", "queued"]


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the picture."""

    id: str
    label: str


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """Something that took time in a lane; it goes on while it has no end."""

    lane: str
    kind: BarKind
    label: str
    state: str
    attempt: int
    begin: datetime
    end: datetime | None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The picture; `more` if lanes follow after these."""

    now: datetime
    begin: datetime
    end: datetime | None
    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]
    more: bool


async def timeline_of(engine: Engine, row: Run, *, after: str | None, limit: int) -> Timeline:
    """Lanes in the order in which they began, after one of them."""
    now = engine.store.now()
    work: list[Work] = await engine.store.rows(AllWork(row.id))
    names = _names(engine, row)
    bars: list[Bar] = []
    for item in work:
        bars += _bars(row, item, names)
    if row.model == "function":
        bars += await _entries(engine, row, limit)
    if not row.ended:
        for wait in await waits_of(engine, row):
            label = f"event {wait.event}" if wait.event else f"run {wait.run}"
            bars.append(_bar(wait.address or label, "wait", label, BLOCKED, 1, wait.since, None))
    bars += [_child(child) for child in await _children(engine, row)]
    bars.sort(key=lambda bar: (bar.begin, bar.lane, bar.attempt))
    lanes = list(dict.fromkeys(bar.lane for bar in bars))
    if after is not None:
        lanes = lanes[lanes.index(after) + 1 :] if after in lanes else []
    shown = set(lanes[:limit])
    labels = {bar.lane: bar.label for bar in reversed(bars)}
    begin = min([moment(row.started or row.created), *(bar.begin for bar in bars)])
    return Timeline(
        now=moment(now),
        begin=begin,
        end=moment_of(row.finished),
        lanes=tuple(Lane(id=lane, label=names.get(lane) or labels[lane]) for lane in lanes[:limit]),
        bars=tuple(bar for bar in bars if bar.lane in shown),
        more=len(lanes) > limit,
    )


def _names(engine: Engine, row: Run) -> dict[str, str]:
    graph = engine.definitions.at_hand(row) if row.model == "dag" else None
    named = {} if graph is None else {node.id: node.name for node in graph.nodes}
    return named | {TURN: row.workflow}


def _bars(row: Run, item: Work, names: dict[str, str]) -> list[Bar]:
    """What one attempt shows: how long it waited for others, for its time or for a worker, and how long it ran."""
    lane, label = item.node, names.get(item.node, item.node)
    begun, ended = moment_of(item.started), moment_of(item.finished)
    if begun is not None and ended is not None:
        begun = min(begun, ended)  # it was claimed ahead of its time, and cancelled before
    created = moment(item.created)
    if item.kind in (SLEEP, TIMER_KIND):
        return [_bar(lane, "timer", label, item.status, item.attempt, created, ended)]
    if item.kind == CHILD:
        return [_bar(lane, "child", item.name or label, item.status, item.attempt, created, ended)]
    if item.kind in (WAIT, BARRIER):
        return [_bar(lane, "wait", label, item.status, item.attempt, created, ended)]
    if item.status == BLOCKED and item.kind == TURN:
        return []  # what it waits for has bars of its own
    if item.status == BLOCKED:
        return [_bar(lane, "wait", label, BLOCKED, item.attempt, created, None)]
    bars = []
    ready = max(created, moment(item.due)) if item.due else created
    if item.due > item.created and item.kind != TURN:  # it waited for others, or for its time
        still = item.status == READY and begun is None and item.gate == GATE_DUE
        kind: BarKind = "retry" if item.attempt > 1 or item.failures else "timer" if still else "wait"
        until = None if still else min(ready, begun or ended or ready)
        bars.append(_bar(lane, kind, label, READY, item.attempt, created, until))
    if begun is None:
        if item.status in (READY, LEASED) and item.gate == 0:
            bars.append(_bar(lane, "queued", label, READY, item.attempt, ready, None))
        elif ended is not None:
            bars.append(_bar(lane, "attempt", label, item.status, item.attempt, ended, ended))
        return bars
    if begun > ready:
        bars.append(_bar(lane, "queued", label, READY, item.attempt, ready, begun))
    if item.kind == TURN and item.status != LEASED:
        return bars if row.model == "function" else [*bars, _bar(lane, "attempt", label, item.status, 1, begun, ended)]
    bars.append(_bar(lane, "attempt", label, item.status, item.attempt, begun, ended))
    return bars


async def _entries(engine: Engine, row: Run, limit: int) -> list[Bar]:
    rows: list[History] = await engine.store.rows(HistoryPage(row.id, row.base, limit))
    before, bars = moment(row.started or row.created), []
    for entry in rows:
        at = moment(entry.at)
        if entry.kind in ENTRY_KINDS:
            data = readable_entry(entry, engine.codecs)
            label = str(data.get("event") or data.get("name") or entry.kind)
            kind: BarKind = (
                "timer" if entry.kind == TIMER else "attempt" if entry.kind in ("result", FAILURE) else "wait"
            )
            state = "failed" if entry.kind == FAILURE else "completed"
            bars.append(_bar(str(data.get("at") or entry.sequence), kind, label, state, 1, min(before, at), at))
        before = at
    return bars


async def _children(engine: Engine, row: Run) -> list[Run]:
    if row.model not in ("function", "graph"):  # a flow's are items of work
        return []
    return await engine.store.rows(ChildrenOf(row.id))


def _child(child: Run) -> Bar:
    label = f"{child.workflow} {child.key or child.id}"
    return _bar(f"run {child.id}", "child", label, child.status, 1, moment(child.created), moment_of(child.finished))


def _bar(lane: str, kind: BarKind, label: str, state: str, attempt: int, begin: datetime, end: datetime | None) -> Bar:
    return Bar(lane=lane, kind=kind, label=label, state=state, attempt=attempt, begin=begin, end=end)
