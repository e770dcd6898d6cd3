"""What waits for its time: timers, sleeps, backed-off retries and later starts, the next one first."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.errors import UsageError
from holdfast.core.function_operations import TURN
from holdfast.core.queries import DelayedWork
from holdfast.core.rows import CALL, GATE_DUE, NODE, READY, SLEEP, TIMER
from holdfast.core.stored import moment

if TYPE_CHECKING:
    from holdfast.core.rows import Work
    from holdfast.engine import Engine

FIRST: Final = (-(2**62), "", "")


class TimerView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens later, to the run with this key; overdue is what should have happened.

    `kind` is timer, sleep, retry, or start.
    """

    run: str
    workflow: str
    node: str
    kind: str
    due_at: datetime
    overdue_seconds: float
    key: str | None = None


class TimerPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of timers."""

    timers: tuple[TimerView, ...]
    cursor: str | None


async def page_of_timers(engine: Engine, *, limit: int, cursor: str | None) -> TimerPage:
    """What is due next, after a cursor."""
    after = FIRST if cursor is None else _place(cursor)
    rows: list[Work] = await engine.store.rows(DelayedWork(after, limit + 1))
    page, now = rows[:limit], engine.store.now()
    last = f"{page[-1].due}.{page[-1].run}.{page[-1].node}" if len(rows) > limit else None
    keys = {run.id: run.key for run in await engine.store.runs(sorted({item.run for item in page}))} if page else {}
    return TimerPage(timers=tuple(timer_view(item, now, keys.get(item.run)) for item in page), cursor=last)


def timers_among(work: list[Work], now: int, key: str | None = None) -> tuple[TimerView, ...]:
    """What of these items waits for its time."""
    waiting = sorted((item for item in work if item.status == READY and item.gate == GATE_DUE), key=lambda w: w.due)
    return tuple(timer_view(item, now, key) for item in waiting)


def timer_view(item: Work, now: int, key: str | None = None) -> TimerView:
    """An item that waits for its time, of the run with this key."""
    return TimerView(
        run=item.run,
        workflow=item.workflow,
        node=item.node,
        kind=kind_of(item),
        due_at=moment(item.due),
        overdue_seconds=max(0, now - item.due) / 1e6,
        key=key,
    )


def kind_of(item: Work) -> str:
    """In a word, why this waits for its time."""
    if item.kind in (TIMER, SLEEP):
        return item.kind
    if item.kind == TURN:
        return "sleep" if item.token else "start"  # it has been driven before
    if item.failures or item.losses or item.attempt > 1 or item.kind == CALL:
        return "retry"
    return "start" if item.kind == NODE else item.kind


def _place(cursor: str) -> tuple[int, str, str]:
    due, _, rest = cursor.partition(".")
    run, _, node = rest.partition(".")
    if not (due.isascii() and due.lstrip("-").isdecimal()) or len(due) > 18 or not run or not node:
        raise UsageError(f"there is no cursor {cursor!r:.80}", hint="give the cursor of the page before, as it was")
    return int(due), run, node
