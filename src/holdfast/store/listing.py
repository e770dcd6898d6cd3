"""Listing and counting runs for people: the statements, put together from fixed pieces for each dialect.

Only pieces that are written here end up in a statement; whatever was asked for is an argument. Newest first is the
order of `runs_newest`, so that a page without filters reads its own rows and no more. Filters go through rows in that
order: an index on a status would be written at every step of every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from holdfast.core.rows import RUNS, Run
from holdfast.store.contract import FindRuns, ListRuns
from holdfast.store.statements import columns

_RUNS: Final = columns(RUNS.columns)
NEWEST: Final = 5_000
INSIDE: Final = 3


class SearchRuns(ListRuns, frozen=True, kw_only=True):
    """A listing for people who type: a key is found by any part of it that has three characters, and by its queue.

    Spaces are like dashes in keys: one reads `order 1013` where the key is `order-1013`. Ids and names of workflows are
    found by their beginnings, as in any listing.
    """

    queue: str | None = None

    @property
    def key_part(self) -> str:
        """What is looked for in keys."""
        return dashed(self.search or "")

    @property
    def is_inside(self) -> bool:
        """Whether it may be anywhere in a key; of one or two characters every key would have some."""
        return len(self.key_part) >= INSIDE

    def matches(self, run: Run, tags: Mapping[str, str]) -> bool:
        """Whether a run with these tags is meant, on whatever page."""
        if self.queue is not None and run.queue != self.queue:
            return False
        if self.search is None or not self._is_in_key(dashed(run.key or "")):
            return ListRuns.matches(self, run, tags)
        return ListRuns.matches(msgspec.structs.replace(self, search=None), run, tags)

    def _is_in_key(self, key: str) -> bool:
        return self.key_part in key if self.is_inside else key.startswith(self.key_part)


def dashed(text: str) -> str:
    """The text as it is compared with keys."""
    return text.replace(" ", "-")


class _Dialect(Protocol):
    has_status: str
    has_tag: str
    has_ended: str

    def mark(self, number: int) -> str: ...

    def list_as(self, values: tuple[str, ...]) -> Any: ...

    def tags_as(self, tags: tuple[tuple[str, str], ...]) -> list[Any]: ...

    def begins(self, name: str, mark: str) -> str: ...

    def holds(self, name: str, mark: str) -> str: ...


class _Sqlite:
    # The plus keeps it from `runs_ended`: most runs have ended, and going through the table is quicker then.
    has_ended = "+finished IS NOT NULL"
    has_status = "status IN (SELECT value FROM json_each({}))"
    has_tag = "EXISTS (SELECT 1 FROM json_each(tags) t WHERE t.key = {0} ->> 0 AND t.value = {0} ->> 1)"

    def mark(self, number: int) -> str:
        return f"?{number}"

    def list_as(self, values: tuple[str, ...]) -> str:
        return msgspec.json.encode(values).decode()

    def tags_as(self, tags: tuple[tuple[str, str], ...]) -> list[Any]:
        return [msgspec.json.encode(pair).decode() for pair in tags]

    def begins(self, name: str, mark: str) -> str:
        return f"substr({name}, 1, length({mark})) = {mark}"

    def holds(self, name: str, mark: str) -> str:
        return f"instr({name}, {mark}) > 0"


class _Postgres:
    has_ended = "finished IS NOT NULL"
    has_status = "status = ANY({}::text[])"
    has_tag = "(tags <> '{{}}' AND tags::jsonb @> {}::jsonb)"  # as runs_by_tag has it, which holds no run without tags

    def mark(self, number: int) -> str:
        return f"${number}"

    def list_as(self, values: tuple[str, ...]) -> list[str]:
        return list(values)

    def tags_as(self, tags: tuple[tuple[str, str], ...]) -> list[Any]:
        return [msgspec.json.encode(dict(tags)).decode()] if tags else []

    def begins(self, name: str, mark: str) -> str:
        return f"starts_with({name}, {mark})"

    def holds(self, name: str, mark: str) -> str:
        return f"strpos({name}, {mark}) > 0"


class Listing:
    """The statements of a listing with their arguments, for one dialect."""

    def __init__(self, dialect: str) -> None:
        self._dialect: _Dialect = _Sqlite() if dialect == "sqlite" else _Postgres()

    def page(self, ask: ListRuns) -> tuple[str, list[Any]]:
        """One page, newest first."""
        where, args = self._older(ask)
        args.append(ask.limit)
        sql = f"SELECT {_RUNS} FROM runs WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC"  # noqa: S608
        return f"{sql} LIMIT {self._dialect.mark(len(args))}", args

    def page_among_newest(self, ask: ListRuns) -> tuple[str, list[Any]]:
        """The same among the newest runs alone: what is frequent is found there, in the order of the index."""
        where, args = self._older(ask)
        place = where[-1] if ask.after is not None else "1 = 1"
        newest = f"SELECT created FROM runs WHERE {place} ORDER BY created DESC, id DESC LIMIT {NEWEST}"  # noqa: S608
        where.append(f"created >= (SELECT min(created) FROM ({newest}))")  # noqa: S608
        args.append(ask.limit)
        sql = f"SELECT {_RUNS} FROM runs WHERE {' AND '.join(where)} ORDER BY created DESC, id DESC"  # noqa: S608
        return f"{sql} LIMIT {self._dialect.mark(len(args))}", args

    def page_among_all(self, ask: ListRuns) -> tuple[str, list[Any]]:
        """The same by going through the table once, for what is rare: quicker than looking each row up by the index.

        A plus keeps it from the index, and the inner statement from sorting whole rows.
        """
        where, args = self._older(ask)
        where = [f"+{piece}" if piece.startswith("created") else piece for piece in where]
        args.append(ask.limit)
        limit = self._dialect.mark(len(args))
        found = f"SELECT id FROM runs WHERE {' AND '.join(where)} ORDER BY +created DESC, id DESC LIMIT {limit}"  # noqa: S608
        return f"SELECT {_RUNS} FROM runs WHERE id IN ({found}) ORDER BY created DESC, id DESC", args  # noqa: S608

    def _older(self, ask: ListRuns) -> tuple[list[str], list[Any]]:
        """What is asked for, and after the place of the page before."""
        where, args = self._where(ask)
        if ask.after is not None:
            args += ask.after
            created, run = self._dialect.mark(len(args) - 1), self._dialect.mark(len(args))
            where.append(f"(created, id) < ({created}, {run})")
        return where, args

    def counts(self, ask: ListRuns, most: int) -> tuple[str, list[Any]]:
        """How many there are by status: of those that have not ended, and of those that have, `most` are counted."""
        where, args = self._where(ask)
        args.append(most)
        limit = self._dialect.mark(len(args))
        parts = [
            f"SELECT status, count(*) FROM (SELECT status FROM runs WHERE {ended} AND "  # noqa: S608
            f"{' AND '.join(where)} LIMIT {limit}) counted GROUP BY status"
            for ended in ("finished IS NULL", self._dialect.has_ended)
        ]
        return " UNION ALL ".join(parts), args

    def _where(self, ask: ListRuns) -> tuple[list[str], list[Any]]:
        dialect, where, args = self._dialect, ["1 = 1"], list[Any]()

        def add(piece: str, value: Any) -> None:
            args.append(value)
            where.append(piece.format(dialect.mark(len(args))))

        if ask.workflow is not None:
            add("workflow = {}", ask.workflow)
        if ask.model is not None:
            add("model = {}", ask.model)
        if ask.status:
            add(dialect.has_status, dialect.list_as(ask.status))
        if ask.since is not None:
            add("created >= {}", ask.since)
        if ask.until is not None:
            add("created < {}", ask.until)
        for value in dialect.tags_as(ask.tags):
            add(dialect.has_tag, value)
        if ask.search is not None:
            args.append(ask.search)
            mark = dialect.mark(len(args))
            names = ("id", '"key"', "workflow")
            found = [dialect.begins(name, mark) for name in names]
            if isinstance(ask, SearchRuns):
                args.append(ask.key_part)
                looks = dialect.holds if ask.is_inside else dialect.begins
                found.append(looks("replace(\"key\", ' ', '-')", dialect.mark(len(args))))
            where.append(f"({' OR '.join(found)})")
        if isinstance(ask, SearchRuns) and ask.queue is not None:
            add("queue = {}", ask.queue)
        return where, args


def found_in_sqlite(ask: FindRuns) -> tuple[str, list[Any]]:
    """A listing by id, the greatest first."""
    where, args = ["1 = 1"], list[Any]()

    def add(piece: str, *values: Any) -> None:
        where.append(piece)
        args.extend(values)

    if ask.workflow is not None:
        add("workflow = ?", ask.workflow)
    if ask.model is not None:
        add("model = ?", ask.model)
    if ask.key_prefix is not None:
        add("substr(key, 1, length(?)) = ?", ask.key_prefix, ask.key_prefix)
    if ask.status:
        add("status IN (SELECT value FROM json_each(?))", msgspec.json.encode(ask.status).decode())
    if ask.since is not None:
        add("created >= ?", ask.since)
    if ask.after is not None:
        add("id < ?", ask.after)
    for name, value in ask.tags:
        add("EXISTS (SELECT 1 FROM json_each(tags) t WHERE t.key = ? AND t.value = ?)", name, value)
    sql = f"SELECT {_RUNS} FROM runs WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?"  # noqa: S608
    return sql, [*args, ask.limit]
