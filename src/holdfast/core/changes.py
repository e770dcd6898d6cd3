"""What a batch asks for and what it writes: questions about rows, rows that are missing, and changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec

from holdfast.core.rows import Key, R, Table


class _Missing:
    __slots__ = ()


MISSING: Final = _Missing()


class Query(msgspec.Struct, frozen=True, gc=False):
    """A question about rows that are not found by key. Subclasses say which rows match."""

    table: ClassVar[Table[Any]]
    unique: ClassVar[bool] = False  # at most one row matches, and an index guarantees it
    presumed_empty: ClassVar[bool] = False  # an optimistic View says "none"; the flush checks that it is so

    @property
    def of_run(self) -> str | None:
        """The run all matching rows belong to, if that is so: such answers are covered by its version."""
        return None

    @property
    def within(self) -> Query | None:
        """A wider question whose answer holds every row of this one's."""
        return None

    def matches(self, row: Any) -> bool:
        raise NotImplementedError

    def pick(self, look_up: Callable[[Key], Any]) -> list[Any] | None:
        """The rows that match, looked up by key; None if their keys cannot be told and all rows must be gone through.

        What a decision asks with every step is picked: going through a run's rows would cost more the larger it is.
        """
        return None

    def order(self, row: Any) -> Any:
        return self.table.key(row)


class NotLoaded(Exception):
    """A decision asked for something that this View has not loaded. Never seen by users."""

    def __init__(self, *needs: tuple[Table[Any], Key] | Query) -> None:
        super().__init__(*needs)
        self.needs = needs


class Changes:
    """What a batch writes: rows to insert, rows to update with what they replace, rows to delete."""

    __slots__ = ("_rows", "deletes", "inserts", "presumes_no_holds", "updates")

    def __init__(self, presumes_no_holds: bool = False) -> None:
        self.presumes_no_holds = presumes_no_holds  # nothing was held back when this was decided: check it
        self.inserts: dict[Table[Any], list[Any]] = {}
        self.updates: dict[Table[Any], list[tuple[Any, Any]]] = {}
        self.deletes: dict[Table[Any], list[Any]] = {}
        self._rows: dict[Table[Any], list[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self.inserts or self.updates or self.deletes)

    def rows(self, table: Table[R]) -> list[R]:
        """Every row of the table as it is after the flush, deleted ones left out. Asked once all changes are in."""
        rows = self._rows.get(table)
        if rows is None:
            rows = list(self.inserts.get(table, ()))
            rows += [new for _, new in self.updates.get(table, ())]
            self._rows[table] = rows
        return rows
