"""Core and models decide; they never look at the world. Time, ids and randomness come in as values."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import Source, below, imports_of

WORLDLY_MODULES = frozenset(
    {
        "asyncio",
        "asyncpg",
        "apsw",
        "concurrent",
        "fcntl",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "_thread",
    }
)
# The one loop that a durable function runs on is part of its model. `sys.intern` changes no value, only its memory.
ALLOWED = {("holdfast.models.runloop", "asyncio"), ("holdfast.core.row_cache", "sys")}

WORLDLY_ATTRIBUTES = frozenset(
    {
        ("datetime", "now"),
        ("datetime", "utcnow"),
        ("datetime", "today"),
        ("date", "today"),
        ("uuid", "uuid1"),
        ("uuid", "uuid4"),
        ("uuid", "uuid6"),
        ("uuid", "uuid7"),
    }
)
WORLDLY_BUILTINS = frozenset({"open", "print", "input", "breakpoint"})


def test_core_and_models_import_nothing_that_touches_the_world() -> None:
    """The same inputs give the same decision on every machine, at every time: what replay and simulation stand on."""
    wrong = []
    for source in below("core", "models"):
        for imported in imports_of(source):
            top = imported.module.partition(".")[0]
            if top in WORLDLY_MODULES and (source.module, top) not in ALLOWED:
                wrong.append(
                    f"{source.shown}:{imported.line}: imports {imported.module}; take the value as an argument"
                )
    assert not wrong, "\n".join(wrong)


def test_core_and_models_ask_for_no_time_and_no_random_id() -> None:
    """Classes of datetime and uuid are values and welcome; their functions that read a clock or a dice are not."""
    wrong = [
        f"{source.shown}:{line}: {what}; take the value as an argument"
        for source in below("core", "models")
        for line, what in _worldly_uses(source)
    ]
    assert not wrong, "\n".join(wrong)


def _worldly_uses(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name):
                if (owner, name) in WORLDLY_ATTRIBUTES:
                    yield node.lineno, f"uses {owner}.{name}"
            case ast.ImportFrom(module="uuid", names=names):
                yield from (
                    (node.lineno, f"imports uuid.{a.name}") for a in names if ("uuid", a.name) in WORLDLY_ATTRIBUTES
                )
            case ast.Call(func=ast.Name(id=name)) if name in WORLDLY_BUILTINS:
                yield node.lineno, f"calls {name}()"
            case _:
                pass
