"""Dead letters for people: work that could not be run and events that nobody could take, in one list."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from holdfast.core.codec import decode_error
from holdfast.core.errors import UsageError
from holdfast.core.rows import Event
from holdfast.core.stored import moment
from holdfast.documents.nodes import FailureView

if TYPE_CHECKING:
    from holdfast.dead_letters import DeadLetter
    from holdfast.engine import Engine

FURTHEST: Final = 10_000


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter. Of work `id` is its run, and `node` says what of it; of an event it is the event's own."""

    id: str
    kind: Literal["work", "event"]
    run: str | None
    node: str | None
    name: str
    workflow: str | None
    died_at: datetime
    reason: str
    error: FailureView | None


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, oldest first."""

    letters: tuple[LetterView, ...]
    cursor: str | None


async def page_of_letters(engine: Engine, *, limit: int, cursor: str | None) -> LetterPage:
    """So many, after as many as a cursor says."""
    begin = 0 if cursor is None else _place(cursor)
    letters = (await engine.dead(begin + limit + 1))[begin:]
    page = letters[:limit]
    targets = [letter.target for letter in page if isinstance(letter, Event) and letter.target]
    workflows = {run.id: run.workflow for run in await engine.store.runs(targets)} if targets else {}
    return LetterPage(
        letters=tuple(_letter(letter, workflows) for letter in page),
        cursor=str(begin + limit) if len(letters) > limit else None,
    )


def _place(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal()) or int(cursor[:6]) > FURTHEST or len(cursor) > 5:
        raise UsageError(
            f"there is no cursor {cursor!r:.80}",
            hint=f"give the cursor of the page before; beyond {FURTHEST:,} letters, replay or discard the first ones",
        )
    return int(cursor)


def _letter(letter: DeadLetter, workflows: dict[str, str]) -> LetterView:
    if isinstance(letter, Event):
        return LetterView(
            id=letter.id,
            kind="event",
            run=letter.target,
            node=None,
            name=letter.name,
            workflow=workflows.get(letter.target or ""),
            died_at=moment(letter.at),
            reason=letter.reason or "",
            error=None,
        )
    error = None
    if letter.error is not None:
        record = decode_error(letter.error)
        error = FailureView(type=record.type, message=record.message, traceback=record.traceback or None)
    return LetterView(
        id=letter.run,
        kind="work",
        run=letter.run,
        node=letter.node,
        name=letter.name,
        workflow=letter.workflow,
        died_at=moment(letter.finished or letter.created),
        reason="" if error is None else error.message,
        error=error,
    )
