"""Every example runs, from the file that readers are sent to."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.documents import ROOT, environment, run_program

EXAMPLES = ROOT / "examples"
QUICK = ("--orders", "8", "--pace", "0.3")


def test_hello_runs_once_for_each_name(tmp_path: Path) -> None:
    """I12: the second run under the same key finds the results and runs nothing."""
    first = run_program(EXAMPLES / "hello.py", "Ada", folder=tmp_path)
    assert "(greeting Ada)\nHello, Ada!\n" in first
    assert [first.index(f"{what} …") for what in ("boiling water", "brewing tea", "serving Ada")] == sorted(
        first.index(f"{what} …") for what in ("boiling water", "brewing tea", "serving Ada")
    )
    assert first.index("toasting bread …") < first.index("serving Ada …")
    assert run_program(EXAMPLES / "hello.py", "Ada", folder=tmp_path) == "Hello, Ada!\nBreakfast is served.\n"


def test_g3_a_transactional_debit_happens_once_although_it_was_attempted_twice(tmp_path: Path) -> None:
    """The first attempt fails after its UPDATE: its write is rolled back, and asking again takes nothing."""
    printed = run_program(EXAMPLES / "transactional.py", folder=tmp_path)
    assert re.findall(r"attempt (\d)", printed) == ["1", "2"]
    again = run_program(EXAMPLES / "transactional.py", folder=tmp_path)
    assert "attempt" not in again
    with sqlite3.connect(tmp_path / "holdfast.db") as database:
        assert database.execute("SELECT cents FROM account WHERE name = 'Ada'").fetchone() == (7500,)
    database.close()


def test_orders_are_worked_on_by_a_worker_in_another_process(tmp_path: Path) -> None:
    """The program only starts runs; `holdfast worker examples.orders` does them, on two queues, with a retry."""
    command = ["-m", "holdfast", "worker", "examples.orders", "--queue", "default", "--queue", "payments"]
    with _running(command, tmp_path):
        printed = run_program(EXAMPLES / "orders.py", folder=tmp_path)
    assert printed.split("\n") == ["order-1: completed", "order-2: completed", "order-3: completed", ""]
    with sqlite3.connect(tmp_path / "holdfast.db") as database:
        attempts = database.execute(
            "SELECT node, status, count(*) FROM work GROUP BY node, status ORDER BY node, status"
        ).fetchall()
    database.close()
    assert attempts == [
        ("charge_card", "completed", 3),
        ("label", "completed", 3),
        ("ship", "completed", 3),
        ("ship", "failed", 3),
        ("validate", "completed", 3),
    ]


def test_the_demo_keeps_its_promises_and_says_what_it_saw(tmp_path: Path) -> None:
    """G1, G2, G9: a worker is killed with SIGKILL, another goes on at once, nothing is lost or done twice."""
    printed = run_program(EXAMPLES / "demo" / "run.py", *QUICK, "--keep", "kept", folder=tmp_path)
    assert "Worker 1 is killed with SIGKILL" in printed
    assert "cut off by the kill" in printed
    assert printed.count("✓") == 7
    assert "NOT KEPT" not in printed
    assert "\x1b" not in printed  # a pipe gets plain text
    assert (tmp_path / "kept" / "shop.db").exists()


def test_the_demo_fails_when_something_happens_twice(tmp_path: Path) -> None:
    """Its verdict is worth something: with a world that ignores idempotency keys the exit code is 1."""
    demo = tmp_path / "demo"
    shutil.copytree(EXAMPLES / "demo", demo, ignore=shutil.ignore_patterns("__pycache__"))
    world = (demo / "world.py").read_text(encoding="utf-8")
    careless = world.replace('"known" if self._take_effect() else "done"', '"done"')
    assert careless != world
    (demo / "world.py").write_text(careless, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(demo / "run.py"), *QUICK],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "NOT KEPT: nothing happened twice outside" in done.stdout


@contextmanager
def _running(arguments: list[str], folder: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment(), stderr=subprocess.PIPE)
    try:
        yield
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said.decode()
