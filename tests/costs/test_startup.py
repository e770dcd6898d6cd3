"""A program that uses Holdfast is there at once, and light: heavy libraries stay out until they are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from benchmarks import measures as m
from benchmarks.databases import Databases
from benchmarks.startup import bare_python_seconds, first_result, import_ms
from tests.costs.attempts import Try, assert_one_is_good, slower_than

FACTOR = 1.5
REFERENCE_PYTHON_SECONDS = 0.011  # `python -c pass` where the targets were set
ROOT = Path(__file__).parents[2]
HEAVY = ("asyncpg", "sqlite3", "pydantic", "click", "rich", "starlette", "psutil", "multiprocessing", "http")
# What a program of DAGs and actions needs nothing of: the other models, and what only some calls want.
OF_OTHERS = (
    *("holdfast.authoring.decider_code", "holdfast.authoring.deciders", "holdfast.authoring.recorded"),
    *("holdfast.authoring.conditions", "holdfast.authoring.events", "holdfast.authoring.function_commands"),
    *("holdfast.authoring.state_graphs", "holdfast.authoring.flow_compiler", "holdfast.core.flow_graph"),
    *("holdfast.authoring.dag_builder", "holdfast.authoring.dag_template"),
    *("holdfast.core.dag_document_reading", "holdfast.instance_documents", "holdfast.settling"),
)
# Large for what they would be used for.
OF_FEW = ("difflib", "pathlib", "random", "urllib.parse")


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


def loaded_by(program: str) -> set[str]:
    """The modules that a process has loaded after this, and that a bare interpreter has not."""

    def names(text: str) -> set[str]:
        command = [sys.executable, "-c", f"{text}; import sys; print(*sys.modules, sep='\\n')"]
        path = os.pathsep.join([str(Path(holdfast.__path__[0]).parent), str(ROOT)])
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        return set(done.stdout.split("\n"))

    return names(program) - names("pass")


def heavy(loaded: set[str], *needed: str) -> set[str]:
    return {name for name in loaded if name.partition(".")[0] in set(HEAVY) - set(needed)}


def test_a_bare_import_loads_no_driver_and_nothing_heavy() -> None:
    """Names are found when first used; what a program does not use it does not load."""
    assert not heavy(loaded_by("import holdfast"))


def test_an_engine_on_sqlite_loads_no_other_driver_and_no_command_line() -> None:
    """The same for a program that has an engine: only what its store needs."""
    loaded = loaded_by("import holdfast as hf; hf.Engine, hf.Dag, hf.action, hf.step; import holdfast.store.sqlite")
    assert not heavy(loaded, "sqlite3")
    assert not loaded & {*OF_OTHERS, *OF_FEW}


def test_a_worker_loads_no_model_that_nobody_defined(tmp_path: Path) -> None:
    """An action and its worker: neither the loops of functions nor anything of deciders, graphs and flows."""
    url = f"sqlite:///{tmp_path / 'hello.db'}"
    loaded = loaded_by(
        f"import sys, asyncio; sys.argv = ['hello', {url!r}]; from benchmarks import hello; asyncio.run(hello.main())"
    )
    assert "holdfast.runtime.worker" in loaded
    assert not heavy(loaded, "sqlite3")
    assert not loaded & {*OF_OTHERS, *OF_FEW, "holdfast.runtime.function_run", "holdfast.runtime.run_loop"}
