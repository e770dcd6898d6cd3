"""`holdfast ui`: where the page is, what it refuses to begin with, and how it ends. In processes where it serves."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.conftest import Shell
from tests.cli.processes import eventually, fetched, on_terminal, running
from tests.upgrade.old_databases import restore

SERVED = ("ui", "--port", "0")


def asked(address: str, path: str, token: str | None = None) -> Any:
    with fetched(address, f"api/v1{path}", token) as answer:
        assert answer.status == 200
        return json.load(answer)


def browser() -> dict[str, str]:
    """A browser that notes what it is to show, as the environment names it."""
    program = Path("browser")
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > "{Path.cwd()}/opened"\n', encoding="utf-8")
    program.chmod(0o755)
    return {"BROWSER": str(program.resolve())}


def test_the_page_shows_a_database_beside_a_running_worker_and_sigterm_ends_it_cleanly(shell: Shell) -> None:
    shell.ok("migrate")
    with running(shell, "worker", "shop") as worker, running(shell, *SERVED, "--json", env=browser()) as page:
        address = json.loads(page.line_with("address"))["address"]
        worker.until("serves default")
        run = json.loads(shell("start", "shop:greet", "Ada", "--wait", "--json").stdout)["run"]
        assert asked(address, f"/runs/{run}")["result"] == "Hello, Ada!"
        with fetched(address) as answer:
            assert b"<html" in answer.read()
        assert page.end(signal.SIGTERM) == 0
        assert page.seen.count("\n") == 1  # the address alone: no noise of the server, no traceback
        assert worker.end(signal.SIGTERM) == 0
    assert not Path("opened").exists()  # nobody was there to see it


def test_ctrl_c_ends_the_page_on_postgresql_though_somebody_looks_live(shell: Shell, postgres_url: str) -> None:
    shell.url = postgres_url
    run = shell.start("shop:greet", "Ada")
    Path("token").write_text("a-long-secret\n", encoding="utf-8")
    with running(shell, *SERVED, "--token-file", "token") as page:
        line = page.line_with("http://")
        assert line.endswith("; Ctrl-C stops it")
        address = line.split()[0]
        assert asked(address, f"/runs/{run}", "a-long-secret")["status"] == "pending"
        with fetched(address, "api/v1/live", "a-long-secret") as live:
            assert live.status == 200
            assert page.end(signal.SIGINT) == 0


def test_what_is_to_be_hidden_comes_in_addition_to_what_always_is(shell: Shell) -> None:
    """A rule more never shows a secret: `--redact iban` hides passwords as before."""
    fields = {"iban": "DE89", "card_number": "4111", "password": "hunter2", "note": "shown"}
    run = shell.start("shop:greet", "Ada", *(f"--tag={name}={value}" for name, value in fields.items()))
    with running(shell, *SERVED, "--redact", "iban", "--redact", "card_*") as page:
        address = page.line_with("http://").split()[0]
        tags = asked(address, f"/runs/{run}")["tags"]
    assert tags == {"iban": "[redacted]", "card_number": "[redacted]", "password": "[redacted]", "note": "shown"}


def test_i11_who_did_what_on_the_page_is_told_on_stderr(shell: Shell) -> None:
    """Every operation leaves a line with the run; looking leaves none."""
    run = shell.start("shop:greet", "Ada")
    with running(shell, *SERVED) as page:
        address = page.line_with("http://").split()[0]
        asked(address, f"/runs/{run}")
        pause = Request(f"{address}api/v1/runs/{run}/pause", b"{}", {"Content-Type": "application/json"})  # noqa: S310
        with urlopen(pause, timeout=10) as answer:  # noqa: S310
            assert answer.status == 200
        assert f"/pause id={run} by http:local" in page.line_with("POST /api/v1/runs/")
        assert page.end(signal.SIGTERM) == 0
        assert page.seen.count("\n") == 2  # the address, and the operation


def test_a_browser_is_opened_where_there_is_a_person(shell: Shell) -> None:
    shell.ok("migrate")
    with on_terminal(shell, *SERVED, env=browser()) as page:
        address = page.line_with("http://").split()[0]
        opened = Path("opened")
        assert eventually(lambda: opened.exists() and opened.read_text(encoding="utf-8") == address)
        assert page.end(signal.SIGINT) == 0


def test_a_database_that_is_not_there_is_not_created(shell: Shell) -> None:
    done = shell("ui")
    assert done.exit_code == 3
    assert "there is no database" in done.stderr
    assert "holdfast migrate" in done.stderr
    assert not Path("app.db").exists()


@pytest.mark.parametrize("version", ["0001", "0005"])
def test_a_schema_that_is_too_old_says_migrate_and_stays_as_it_is(shell: Shell, version: str) -> None:
    asyncio.run(restore("sqlite", shell.url, version))
    done = shell("ui", "--port", "0")
    assert done.exit_code == 4
    assert "run `holdfast migrate`" in done.stderr


def test_a_port_that_is_taken_is_told_with_the_way_out(shell: Shell) -> None:
    shell.ok("migrate")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = shell("ui", "--port", str(port))
    assert done.exit_code == 1
    assert f"127.0.0.1:{port} cannot be used" in done.stderr
    assert "name another port" in done.stderr


def test_another_address_without_a_token_is_refused(shell: Shell) -> None:
    shell.ok("migrate")
    done = shell("ui", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - which is the point
    assert done.exit_code == 1
    assert "0.0.0.0 can be reached from other machines" in done.stderr
    assert "--token-file" in done.stderr


def test_without_the_extra_it_says_what_to_install(shell: Shell) -> None:
    shell.ok("migrate")
    program = "import sys; sys.modules['uvicorn'] = None; from holdfast.cli import program; program(['ui'])"
    done = subprocess.run(
        [sys.executable, "-c", program], env=shell.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'holdfast[ui]'" in done.stderr
    assert "Traceback" not in done.stderr
