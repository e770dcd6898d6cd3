"""Named SQL statements from the `.sql` files beside this module, and the numbered migrations.

A statement starts with a line `-- name: word`. `{work}` stands for the columns of the table `work`, in
the order of its row type, so that reading and writing cannot drift apart; nothing else is ever
substituted, and never anything that came from outside.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from functools import cache
from typing import Any, NamedTuple

from holdfast.core.errors import NotOurDatabase, SchemaTooNew
from holdfast.core.rows import RUNS, STREAM, TABLES, WORK
from holdfast.store.contract import WorkerRow
from holdfast.store.shapes import (
    RUN_COUNTS,
    RUN_END,
    RUN_FULL,
    RUN_OPEN,
    RUN_STEP,
    WORK_DEFINED,
    WORK_OPEN,
    WORK_OTHER,
    WORK_SETTLE,
)

_RESERVED = {"by", "key"}


def columns(names: tuple[str, ...], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{name}"' if name in _RESERVED else f"{prefix}{name}" for name in names)


_TABLES = {table.name: table.columns for table in TABLES} | {"workers": WorkerRow.__struct_fields__}
# A row of `stream` as it is sent: its position, the last column, is given by the store.
_COLUMNS = _TABLES | {
    "facts": STREAM.columns[:-1],
    "newruns": tuple(name for name in RUNS.columns if name not in RUN_OPEN),
    "newwork": tuple(name for name in WORK.columns if name not in WORK_OPEN),
    "runstep": RUN_STEP,
    "runinput": RUN_STEP + RUN_COUNTS,
    "runended": RUN_STEP + RUN_END,
    "runfull": RUN_FULL,
    "worksettled": WORK_SETTLE,
    "workfull": WORK_SETTLE + WORK_OTHER,
    "workwhole": WORK_SETTLE + WORK_OTHER + WORK_DEFINED,
}

# The numbered files in `migrations`, from 1 on, in this order.
MIGRATIONS = ("kernel", "stored_graphs", "functions", "deciders", "flows", "graphs", "listing", "room")

# What goes with a run that is pruned, the run last.
PRUNED = (
    *("work", "history", "waits", "events", "definitions", "inputs"),
    *("stream", "snapshots", "observations", "inbox", "checkpoints", "recorded", "runs"),
)

OUR_TABLES = frozenset({*_TABLES, "topics", "code"})


@cache
def statements(dialect: str) -> dict[str, str]:
    """All named statements of a dialect."""
    text = _text("queries", f"{dialect}.sql")
    named: dict[str, str] = {}
    for part in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        named[name.strip()] = _expand("\n".join(lines).strip().rstrip(";"))
    return named


def _expand(sql: str) -> str:
    def substitute(match: re.Match[str]) -> str:
        table, mark = match.group("table"), match.group("mark")
        if mark == "?":
            return ", ".join("?" for _ in _COLUMNS[table])
        if mark == "$":  # numbered when the statement is put together
            return ", ".join("$?" for _ in _COLUMNS[table])
        if mark == "=":
            return ", ".join(f"{name} = $?" for name in _COLUMNS[table])
        if mark and mark.startswith("@"):
            return columns(_COLUMNS[table], f"{mark[1:]}.")
        return columns(_COLUMNS[table])

    return re.sub(r"\{(?P<table>[a-z]+)(?P<mark>\?|\$|=|@[a-z]+)?\}", substitute, sql)


@cache
def for_several(insert: str, rows: int) -> str:
    """The statement that inserts so many rows, of one that inserts a single row."""
    head, values = insert.split(" VALUES ")
    row, *conflict = values.split("\n", 1)
    return "\n".join([f"{head} VALUES {', '.join([row] * rows)}", *conflict])


def _text(*place: str) -> str:
    """A file beside this module, wherever that was loaded from. `importlib.resources` would take 6 ms to import."""
    loader: Any = sys.modules[__name__].__spec__.loader  # type: ignore[union-attr]
    data: bytes = loader.get_data(os.path.join(os.path.dirname(__file__), *place))
    return data.decode().replace("\r\n", "\n")  # a checksum must not depend on how files were checked out


class Migration(NamedTuple):
    number: int
    name: str
    sql: str
    checksum: str


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """The numbered migrations of a dialect, oldest first."""
    found = []
    for number, name in enumerate(MIGRATIONS, 1):
        sql = _text("migrations", f"{number:04d}_{name}.{dialect}.sql")
        found.append(Migration(number, name, sql, hashlib.sha256(sql.encode()).hexdigest()))
    return tuple(found)


def check_applied(applied: dict[int, str], dialect: str, where: str) -> None:
    known = {migration.number: migration for migration in migrations(dialect)}
    newer = sorted(number for number in applied if number not in known)
    if newer:
        raise SchemaTooNew(
            f"{where} was migrated to schema {newer[-1]} by a newer Holdfast; this one knows up to {max(known)}",
            hint="upgrade this installation, or point it at another database",
        )
    for number, checksum in applied.items():
        if known[number].checksum != checksum:
            raise NotOurDatabase(
                f"migration {number:04d}_{known[number].name} in {where} is not the one that this Holdfast ships",
                hint="the schema was edited by hand, or by a development version; restore a backup",
            )
