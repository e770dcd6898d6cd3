"""A run's record, page by page: when, what, in words, by whom, and what was stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.queries import HistoryPage as PageOfHistory
from holdfast.core.stored import moment
from holdfast.documents.history_words import about, who
from holdfast.listing import readable_entry

if TYPE_CHECKING:
    from holdfast.core.rows import History, Run
    from holdfast.engine import Engine


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
    entries = []
    for entry in rows[:limit]:
        data = hide(readable_entry(entry, engine.codecs))
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
