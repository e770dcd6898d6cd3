"""`holdfast dev`: new code at every change, work that survives that, and nothing left behind. In real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.cli.dev_files import WatchedFiles
from tests.cli.conftest import Shell
from tests.cli.processes import all_gone, children, eventually, fetched, running, write

DEV = ("dev", "desk", "--port", "0", "--no-open")
DESK = """
import asyncio
from pathlib import Path

import holdfast as hf

EDITION = "first"


@hf.action
async def patient() -> str:
    Path(f"begun-{EDITION}").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return EDITION
"""


@pytest.fixture
def desk(shell: Shell) -> Shell:
    (shell.folder / "desk.py").write_text(DESK, encoding="utf-8")
    return shell


def result_of(shell: Shell, run: str) -> object:
    shell.ok("watch", run)
    return shell.json("show", run)["result"]


def test_a_change_brings_the_new_code_and_what_was_running_is_taken_up(desk: Shell) -> None:
    with running(desk, *DEV) as dev:
        address = dev.line_with("http://").split()[0]
        dev.until("dev: runs patient")
        run = desk.start("desk:patient")
        assert eventually(Path("begun-first").exists)
        write(desk.folder / "desk.py", DESK.replace("first", "second"))
        changed = dev.until("dev: desk.py changed; starting again")
        dev.until("dev: runs patient", changed)
        assert eventually(Path("begun-second").exists)  # though the first edition never ended
        with fetched(address) as answer:  # at the same address
            assert answer.status == 200
        Path("go").touch()
        assert result_of(desk, run) == "second"
        assert dev.end(signal.SIGINT) == 0


def test_a_module_that_does_not_import_is_told_and_waited_for(desk: Shell) -> None:
    write(desk.folder / "desk.py", "import helper\n" + DESK)
    with running(desk, *DEV) as dev:
        dev.until("it needs 'helper', which is not installed")
        waits = dev.until("dev: waiting for a file to change")
        write(desk.folder / "helper.py", "1 / 0\n")  # which nobody has imported yet, so everything is looked at
        waits = dev.until("ZeroDivisionError: division by zero (helper.py:1)", waits)
        waits = dev.until("dev: waiting for a file to change", waits)
        write(desk.folder / "helper.py", "")
        dev.until("dev: runs patient", waits)
        assert dev.end() == 0


def test_a_worker_that_is_killed_is_replaced_and_its_work_taken_up_at_once(desk: Shell) -> None:
    """Within much less than a lease: the lock that the dead one held proves its death."""
    with running(desk, *DEV) as dev:
        dev.until("dev: runs patient")
        run = desk.start("desk:patient")
        assert eventually(Path("begun-first").exists)
        (child,) = children(dev.process)
        Path("begun-first").unlink()
        child.kill()
        again = dev.until("the worker was killed (SIGKILL); starting it again")
        dev.until("dev: runs patient", again)
        assert eventually(Path("begun-first").exists)
        Path("go").touch()
        assert result_of(desk, run) == "first"
        assert [each["state"] for each in desk.json("show", run)["nodes"][0]["attempts"]] == ["lost", "completed"]
        os.killpg(dev.process.pid, signal.SIGINT)  # as a terminal does it: for everybody
        assert dev.wait() == 0
        assert "Traceback" not in dev.seen


def test_nothing_is_left_behind_when_the_supervisor_is_killed(desk: Shell) -> None:
    with running(desk, *DEV) as dev:
        dev.until("dev: runs patient")
        desk.start("desk:patient")
        assert eventually(Path("begun-first").exists)
        left = children(dev.process)
        assert left
        dev.process.kill()
        assert all_gone(left)


def test_a_port_that_is_taken_ends_it(desk: Shell) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        running(desk, "dev", "desk", "--port", str(taken.getsockname()[1])) as dev,
    ):
        assert dev.wait() == 1
    assert "cannot be used" in dev.seen


def test_without_a_module_it_says_so(shell: Shell) -> None:
    done = shell("dev")
    assert (done.exit_code, "name those that define your workflows" in done.stderr) == (2, True)
    assert shell("dev", "shop", "--postgres", "--url", "sqlite:///x.db").exit_code == 2


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that the account of PostgreSQL may enter, which pytest's own is not for root."""
    with tempfile.TemporaryDirectory(prefix="hf-dev-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        with contextlib.suppress(OSError, psutil.NoSuchProcess):  # a test that failed must not leave its server running
            postmaster(Path(folder)).kill()


def postmaster(folder: Path) -> psutil.Process:
    """The PostgreSQL that `holdfast dev` runs in a directory."""
    return psutil.Process(int((folder / ".holdfast/postgres/postmaster.pid").read_text("utf-8").split()[0]))


def test_it_brings_a_postgresql_of_its_own_and_takes_it_away(
    desk: Shell, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (reachable / "desk.py").write_text(DESK, encoding="utf-8")
    monkeypatch.chdir(reachable)
    desk.folder = reachable
    with running(desk, *DEV, "--postgres", "--json") as dev:
        dev.until('"ready"')
        exported = dev.line_with("export HOLDFAST_URL=")
        desk.url = exported.partition("export HOLDFAST_URL=")[2].strip("'")
        assert desk.url.startswith("postgresql://")
        Path("go").touch()
        run = desk.start("desk:patient")
        assert result_of(desk, run) == "first"
        with running(desk, *DEV, "--postgres") as second:
            assert second.wait() == 1
        assert "another `holdfast dev --postgres` runs in" in second.seen
        left = [postmaster(reachable), *children(dev.process)]
        dev.process.kill()  # and its child stops the server in its place
        assert all_gone(left)
    with running(desk, *DEV, "--postgres", "--json") as dev:
        ready = json.loads(dev.line_with('"ready"'))
        assert ready["ready"]["workflows"] == ["patient"]
        assert desk.json("show", run)["status"] == "completed"  # the data stayed
        left = [postmaster(reachable)]
        assert dev.end(signal.SIGINT) == 0
        assert all_gone(left)
    assert Path(".holdfast/.gitignore").read_text("utf-8") == "*\n"


def test_of_files_those_count_that_were_loaded_and_what_is_new_in_their_packages(tmp_path: Path) -> None:
    def touched(name: str, text: str = "") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    loaded = [touched("app/__init__.py"), touched("app/flows.py"), touched("single.py")]
    touched("unrelated.py")
    files = WatchedFiles(tmp_path)
    files.follow(loaded)
    assert files.changed() == []
    touched("unrelated.py", "1")
    touched("app/__pycache__/flows.py")
    touched("app/.venv/lib.py")
    assert files.changed() == []
    touched("app/new.py")
    touched("single.py", "changed")
    assert files.changed() == ["app/new.py", "single.py"]
    (tmp_path / "app/flows.py").unlink()
    assert files.changed() == ["app/flows.py"]
    files.follow_everything()
    touched("unrelated.py", "12")
    assert files.changed() == ["unrelated.py"]


def test_a_change_between_the_import_and_the_report_is_not_missed(tmp_path: Path) -> None:
    """Files that are followed already keep the mark that they had when they were looked at last."""
    path = tmp_path / "app.py"
    path.write_text("1", encoding="utf-8")
    files = WatchedFiles(tmp_path)
    files.follow([str(path)])
    path.write_text("12", encoding="utf-8")
    files.follow([str(path)])
    assert files.changed() == ["app.py"]
