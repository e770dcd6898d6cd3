"""A run's record, page by page: when, what, in words, by whom, and what was stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import HistoryPage as PageOfHistory
from holdfast.core.queries import RecordedIn
from holdfast.core.stored import moment
from holdfast.documents.history_words import about, who
from holdfast.graph_reading import reader_of_run, recorded_io
from holdfast.listing import readable_entry

if TYPE_CHECKING:
    from holdfast.core.rows import History, Recorded, Run
    from holdfast.engine import Engine

ANSWERED: Final = "answered"


class EntryView(msgspec.Struct, frozen=True, kw_only=True):
    """An entry: `text` says it for people, `payload` is what was recorded."""

    sequence: int
    at: datetime
    kind: str
    text: str
    by: str
    payload: Any


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of entries, oldest first; `cursor` is the sequence to go on after."""

    entries: tuple[EntryView, ...]
    cursor: int | None


async def page_of_history(
    engine: Engine, row: Run, *, after: int, limit: int, hide: Callable[[Any], Any] = lambda value: value
) -> HistoryPage:
    """Entries after a sequence. `hide` takes out what must not be shown, before anything is put into words."""
    rows: list[History] = await engine.store.rows(PageOfHistory(row.id, after, limit + 1))
    answers = await _answers(engine, row, [entry for entry in rows[:limit] if entry.kind == ANSWERED])
    entries = []
    for entry in rows[:limit]:
        told = readable_entry(entry, engine.codecs)
        if entry.kind == ANSWERED and told.get("node") in answers:
            told["answer"] = answers[told["node"]]
        data = hide(told)
        entries.append(
            EntryView(
                sequence=entry.sequence,
                at=moment(entry.at),
                kind=entry.kind,
                text=about(entry.kind, data),
                by=who(entry.kind, data),
                payload=data,
            )
        )
    return HistoryPage(entries=tuple(entries), cursor=entries[-1].sequence if len(rows) > limit else None)


async def _answers(engine: Engine, row: Run, entries: list[History]) -> dict[str, Any]:
    """What people have answered, by the item that asked: the record says only who and when.

    An item that asked several times is left out, as nothing says which answer was whose.
    """
    if not entries:
        return {}
    nodes = frozenset(str(readable_entry(entry).get("node")) for entry in entries)
    try:
        code = reader_of_run(engine, row)
        rows: list[Recorded] = await engine.store.rows(RecordedIn(row.id, nodes))
        asked = [recorded_io(each, code) for each in rows if each.kind == "interrupt" and each.response is not None]
    except HoldfastError:  # of a damaged record: the rest can still be told
        return {}
    found = [each.node_id for each in asked]
    return {each.node_id: msgspec.to_builtins(each.response) for each in asked if found.count(each.node_id) == 1}
