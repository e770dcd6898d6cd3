"""Dead letters for people: work that could not be run and events that nobody could take, in one list."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from holdfast.core.codec import decode_error
from holdfast.core.errors import UsageError
from holdfast.core.rows import Event
from holdfast.core.stored import moment
from holdfast.documents.nodes import FailureView
from holdfast.documents.payloads import brief_payload
from holdfast.explain.unfit import plain_refusal

if TYPE_CHECKING:
    from holdfast.core.codec import Codecs
    from holdfast.core.rows import Run
    from holdfast.dead_letters import DeadLetter
    from holdfast.engine import Engine

FURTHEST: Final = 10_000


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter. Of work `id` is its run, and `node` says what of it; of an event it is the event's own.

    `key` and `run_status` are those of its run, and `payload` is what it carries.
    """

    id: str
    kind: Literal["work", "event"]
    run: str | None
    node: str | None
    name: str
    workflow: str | None
    died_at: datetime
    reason: str
    error: FailureView | None
    key: str | None = None
    run_status: str | None = None
    payload: Any = None


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, oldest first."""

    letters: tuple[LetterView, ...]
    cursor: str | None


async def page_of_letters(engine: Engine, *, limit: int, cursor: str | None) -> LetterPage:
    """So many, after as many as a cursor says."""
    begin = 0 if cursor is None else _place(cursor)
    letters = (await engine.dead(begin + limit + 1))[begin:]
    page = letters[:limit]
    targets = {target for letter in page if (target := letter.target if isinstance(letter, Event) else letter.run)}
    runs = {run.id: run for run in await engine.store.runs(sorted(targets))} if targets else {}
    return LetterPage(
        letters=tuple(_letter(letter, runs, engine.codecs) for letter in page),
        cursor=str(begin + limit) if len(letters) > limit else None,
    )


def _place(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal()) or int(cursor[:6]) > FURTHEST or len(cursor) > 5:
        raise UsageError(
            f"there is no cursor {cursor!r:.80}",
            hint=f"give the cursor of the page before; beyond {FURTHEST:,} letters, replay or discard the first ones",
        )
    return int(cursor)


def _letter(letter: DeadLetter, runs: dict[str, Run], codecs: Codecs) -> LetterView:
    if isinstance(letter, Event):
        target = runs.get(letter.target or "")
        return LetterView(
            id=letter.id,
            kind="event",
            run=letter.target,
            node=None,
            name=letter.name,
            workflow=None if target is None else target.workflow,
            died_at=moment(letter.at),
            reason=plain_refusal(letter.reason or ""),
            error=None,
            key=None if target is None else target.key,
            run_status=None if target is None else target.status,
            payload=brief_payload(codecs, letter.payload, letter.codec),
        )
    run = runs.get(letter.run)
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
        key=None if run is None else run.key,
        run_status=None if run is None else run.status,
        payload=None if letter.payload is None else brief_payload(codecs, letter.payload, letter.codec),
    )
