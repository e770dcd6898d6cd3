"""A program that uses Holdfast is there at once, and light: heavy libraries stay out until they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import measures as m
from benchmarks.databases import Databases
from benchmarks.startup import bare_python_seconds, first_result, import_ms
from tests.costs.attempts import Try, assert_one_is_good, slower_than

FACTOR = 1.5
REFERENCE_PYTHON_SECONDS = 0.011  # `python -c pass` where the targets were set
HEAVY = ("asyncpg", "sqlite3", "pydantic", "click", "rich", "starlette", "psutil", "multiprocessing", "http")


def allowed(target: float) -> float:
    return FACTOR * target * slower_than(REFERENCE_PYTHON_SECONDS, min(bare_python_seconds() for _ in range(3)))


@pytest.mark.timing
@pytest.mark.parametrize("store", [m.SQLITE, m.POSTGRES])
def test_the_import_is_quick(store: str) -> None:
    """W9: with everything that a program with an engine needs, and the driver of its store."""
    assert_one_is_good(
        f"milliseconds to import, with the driver for {store}",
        lambda: Try(import_ms(store), allowed(m.W9_IMPORT.targets[store])),
    )


@pytest.mark.timing
@pytest.mark.parametrize("store", [m.SQLITE, m.POSTGRES])
def test_the_first_result_comes_soon_after_the_process_starts(store: str, request: pytest.FixtureRequest) -> None:
    """W9: interpreter, import, schema, worker, run, result; on an empty database."""
    databases: Databases = request.getfixturevalue("durable_postgres" if store == m.POSTGRES else "durable_sqlite")
    megabytes: list[float] = []

    def measured() -> Try:
        seconds, memory = first_result(databases.fresh_url())
        megabytes.append(memory)
        return Try(seconds, allowed(m.W9_FIRST.targets[store]))

    assert_one_is_good(f"seconds to the first result on {store}", measured)
    assert min(megabytes) <= FACTOR * m.W9_MEMORY.targets[store], "megabytes when idle"


def test_a_bare_import_loads_no_driver_and_nothing_heavy() -> None:
    """Names are found when first used; what a program does not use it does not load."""
    program = "import sys, holdfast; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )
    before = set(
        subprocess.run(
            [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert not {name for name in loaded - before if name.partition(".")[0] in HEAVY}


def test_an_engine_on_sqlite_loads_no_other_driver_and_no_command_line() -> None:
    """The same for a program that has an engine: only what its store needs."""
    program = (
        "import sys, holdfast as hf; hf.Engine, hf.Dag, hf.action; import holdfast.store.sqlite; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    heavy = set(HEAVY) - {"sqlite3"}
    assert not {name for name in loaded if name.partition(".")[0] in heavy}
