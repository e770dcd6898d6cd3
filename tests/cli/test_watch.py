"""`holdfast watch`: a live screen on a terminal, a line a change elsewhere, and exit codes that scripts can use."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import threading
from pathlib import Path

import pytest
from rich.console import Console

import holdfast as hf
from holdfast.cli.watch_run import RunLook, RunLooker
from holdfast.cli.watch_runs import RunsLooker
from tests.cli.conftest import Shell
from tests.cli.processes import on_terminal, running
from tests.cli.test_json_shapes import promised

ENTERS_SCREEN, LEAVES_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
GATE = """
import asyncio
from pathlib import Path

import holdfast as hf


@hf.action
async def gate() -> str:
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "through"


@hf.action
async def link(number: int) -> None:
    assert number != 33


@hf.dag_template
def chain(count: int) -> hf.DagBuilder:
    builder, before = hf.DagBuilder("chain"), None
    for number in range(count):
        before = builder.node(f"link_{number}", job=link, args={"number": number}, depends_on=before)
    return builder


@hf.workflow
async def approval() -> str:
    await hf.wait_for("approved")
    return "yes"
"""


@hf.action
async def greeting(name: str) -> str:
    return f"Hello, {name}!"


@pytest.fixture
def desk(shell: Shell) -> Shell:
    (shell.folder / "desk.py").write_text(GATE, encoding="utf-8")
    return shell


def screen_of(look: RunLook | object, columns: int = 80, lines: int = 24) -> list[str]:
    """The lines that a terminal of this size would show."""
    out = io.StringIO()
    console = Console(file=out, width=columns, height=lines, highlight=False, markup=False, emoji=False)
    console.print(look.screen(columns, lines), end="")  # type: ignore[attr-defined]
    return out.getvalue().splitlines()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_run_is_followed_line_by_line_until_it_completes(
    desk: Shell, database: str, request: pytest.FixtureRequest
) -> None:
    if database == "postgresql":
        desk.url = request.getfixturevalue("postgres_url")
    run = desk.start("desk:gate")
    with running(desk, "watch", run) as watch:
        watch.until("gate waits for gate to be started")
        working = threading.Thread(target=desk.work, args=(run,))
        working.start()
        watch.until("gate: running")
        Path("go").touch()
        watch.until("gate completed at")
        assert watch.wait() == 0
        working.join()
    assert all(re.match(r"\d\d:\d\d:\d\d  \S", line) for line in watch.seen.splitlines())


def test_a_run_that_is_paused_or_cancelled_ends_with_1_as_start_wait_does(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    paused = shell("watch", run, "--json")
    assert paused.exit_code == 1
    changes = [json.loads(line) for line in paused.stdout.splitlines()]
    by_kind = {change["kind"]: change for change in changes}
    assert by_kind["status"]["status"] == "paused"
    assert [(each["name"], each["state"]) for each in changes if each["kind"] == "node"] == [
        ("validate", "completed"),
        ("charge", "failed"),
    ]
    always, status, node, history = promised()["watch RUN"]
    assert [set(by_kind[kind]) for kind in ("status", "node", "history")] == [
        always | status,
        always | node,
        always | history,
    ]
    assert by_kind["node"]["error"]["message"] == "card refused"
    assert by_kind["history"]["entry"]["kind"] == "paused"
    assert all(change["run"] == run and change["at"].endswith("Z") for change in changes)
    shell.ok("cancel", run)
    cancelled = shell("show", run, "--watch")
    assert (cancelled.exit_code, "was cancelled" in cancelled.stdout) == (1, True)


async def test_of_everything_programs_are_told_each_change_once(sqlite_url: str) -> None:
    async with hf.Engine(sqlite_url) as engine:
        async with engine.worker():
            for name in ("Ada", "Bob"):
                await engine.run(greeting, name)
        looker = RunsLooker(engine, sqlite_url)
        changes = (await looker.look(0)).changes()
        assert [change.facts["status"] for change in changes] == ["completed", "completed"]
        assert [{"at", *change.facts} for change in changes] == promised()["watch"] * 2
        assert (await looker.look(0)).changes() == ()


def test_a_paused_run_is_watched_on_by_those_who_stay(desk: Shell) -> None:
    run = desk.start("desk:gate")
    desk.ok("pause", run)
    with running(desk, "watch", run, "--stay") as watch:
        paused = watch.until("gate is paused")
        paused = watch.until("\n", paused)
        desk.ok("resume", run)
        watch.until("  resumed by", paused)
        Path("go").touch()
        desk.work(run)
        assert watch.wait() == 0


def test_everything_is_followed_line_by_line_until_ctrl_c(desk: Shell) -> None:
    first = desk.start("desk:approval", "--key", "a1")
    with running(desk, "watch") as watch:
        watch.until(f"{first}  approval/a1  pending")
        second = desk.start("desk:gate")
        watch.until(f"{second}  gate  pending")
        Path("go").touch()
        desk.work(first, until="suspended")
        watch.until("approval/a1  suspended: waits for event approved")
        assert watch.end(signal.SIGINT) == 0
    assert "error" not in watch.seen


def test_on_a_terminal_one_run_has_the_screen_until_somebody_leaves(desk: Shell) -> None:
    run = desk.start("desk:approval", "--key", "a1")
    desk.work(run, until="suspended")
    with on_terminal(desk, "watch", "approval/a1") as watch:
        watch.until("event approved")
        assert ENTERS_SCREEN in watch.seen
        os.killpg(watch.process.pid, signal.SIGINT)
        assert watch.wait() == 130  # it did not see the end, and a script must not go on as if it had
    after = watch.seen[watch.seen.index(LEAVES_SCREEN) :]
    assert f"holdfast send approved PAYLOAD --to {run}" in after  # what was seen last stays
    assert "interrupted" not in after


def test_on_a_terminal_everything_has_the_screen_and_ctrl_c_is_its_end(desk: Shell) -> None:
    desk.start("desk:approval", "--key", "a1")
    with on_terminal(desk, "watch", env={"NO_COLOR": "1"}) as watch:
        watch.until("approval/a1")
        watch.until("Ctrl-C leaves")
        os.killpg(watch.process.pid, signal.SIGINT)
        assert watch.wait() == 0
    assert watch.seen.index(ENTERS_SCREEN) < watch.seen.index(LEAVES_SCREEN)


def test_a_run_that_is_not_there_is_refused_before_the_screen_is_taken(shell: Shell) -> None:
    shell.ok("migrate")
    assert shell("watch", "order/17").exit_code == 3


def test_a_wide_graph_fits_a_small_terminal_and_what_failed_is_on_it(shell: Shell) -> None:
    """Fan-outs are one line, and what failed has a line of its own, however little room there is."""
    run = shell.start("shop:batch", "300", "7")
    shell.work(run)

    async def looked() -> RunLook:
        async with hf.Engine(shell.url) as engine:
            (row,) = await engine.store.runs([run])
            return await RunLooker(engine, row, stay=True).look(24)

    look = asyncio.run(looked())
    assert len(screen_of(look, 50, 5)) == 5
    for columns, lines in ((80, 24), (50, 14), (200, 60)):
        shown = screen_of(look, columns, lines)
        assert len(shown) <= lines
        assert max(map(len, shown)) <= columns
        assert any("item_7 " in line and "failed" in line for line in shown)


def test_of_many_nodes_those_that_failed_have_a_line_before_those_that_are_done(desk: Shell) -> None:
    run = desk.start("desk:chain", "40")
    desk.work(run)

    async def looked() -> RunLook:
        async with hf.Engine(desk.url) as engine:
            (row,) = await engine.store.runs([run])
            return await RunLooker(engine, row, stay=True).look(24)

    shown = screen_of(asyncio.run(looked()))
    assert any(re.match(r"\[!\] +link_33 +failed", line) for line in shown)
    assert any("more lines" in line for line in shown)


def test_the_screen_of_everything_fits_and_says_why_nothing_happens(shell: Shell) -> None:
    for number in range(30):
        shell.start("shop:greet", f"Ada {number}")

    async def looked() -> object:
        async with hf.Engine(shell.url) as engine:
            return await RunsLooker(engine, "sqlite:///app.db").look(24)

    look = asyncio.run(looked())
    shown = screen_of(look)
    assert len(shown) == 24
    assert max(map(len, shown)) <= 80
    assert "30 pending" in shown[1]
    assert shown[-3].startswith("queues   default: 30 ready")
    assert shown[-2].rstrip() == "workers  none is running"
    assert any("no worker is running" in line for line in screen_of(look, columns=160))
