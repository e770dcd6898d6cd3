"""Dead letters: work that could not be run, and events that nobody could take. One list, two ways out (I9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import ReattemptRefused, UsageError
from holdfast.core.function_operations import DropEvent, RedeliverEvent
from holdfast.core.operations import DiscardDead, ReattemptNode
from holdfast.core.queries import DeadEvents, StoredEvent
from holdfast.core.rows import DEAD_EVENT, Event, Work
from holdfast.start_options import checked_node, checked_text

if TYPE_CHECKING:
    from holdfast.engine import Engine

DeadLetter = Work | Event


async def list_dead(engine: Engine, limit: int) -> list[DeadLetter]:
    work: list[Work] = await engine.store.dead(limit)
    events: list[Event] = await engine.store.rows(DeadEvents(limit))
    letters: list[DeadLetter] = [*work, *events]
    return sorted(letters, key=_died)[:limit]


def _died(letter: DeadLetter) -> int:
    return letter.at if isinstance(letter, Event) else letter.finished or 0


async def replay(engine: Engine, id: str, node: str | None, by: str) -> bool:
    """Whether there was something to replay. A node gets a new attempt; an event goes to whoever waits for it."""
    if node is None:
        event = await _dead_event(engine, id)
        if event is None:
            return False
        again = RedeliverEvent(event=event.id, name=event.name, run=event.target)
        return bool((await engine.coordinator.submit(again)).changed)
    run, node, by = checked_text(id, "a run id"), checked_node(node), checked_text(by, "by")
    try:
        return bool((await engine.coordinator.submit(ReattemptNode(run=run, node=node, by=by, dead=True))).changed)
    except ReattemptRefused:
        return False


async def discard(engine: Engine, id: str, node: str | None, by: str) -> bool:
    """Whether there was something to discard. A node fails its run; an event is gone."""
    if node is None:
        return bool((await engine.coordinator.submit(DropEvent(event=_event_id(id)))).changed)
    wish = DiscardDead(run=checked_text(id, "a run id"), node=checked_node(node), by=checked_text(by, "by"))
    return bool((await engine.coordinator.submit(wish)).changed)


async def _dead_event(engine: Engine, id: str) -> Event | None:
    found: list[Event] = await engine.store.rows(StoredEvent(_event_id(id)))
    return next((event for event in found if event.status == DEAD_EVENT), None)


def _event_id(id: object) -> str:
    # Longer than a run's may be: it holds the id that its sender chose.
    if not isinstance(id, str) or not id or not id.isprintable():
        raise UsageError(
            f"an event id is {id!r:.80}", hint="give the id that engine.dead() and `holdfast dead list` show"
        )
    return id
