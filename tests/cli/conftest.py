"""A user's directory with a module of workflows, and the command line run in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import holdfast as hf
from holdfast.authoring.registry import default_registry
from holdfast.cli import program

MODULE = """
import datetime
import threading

import holdfast as hf


@hf.action
async def greet(name: str, times: int = 1) -> str:
    return ", ".join([f"Hello, {name}!"] * times)


@hf.action
async def fragile(number: int) -> int:
    raise ValueError(f"no way with {number} \\x1b[31m")


@hf.action
def slow() -> None:
    hf.current().logger.info("it began")
    threading.Event().wait(60)


@hf.action(queue="payments")
async def pay(*, cents: int, on: datetime.date) -> str:
    return f"{cents} on {on:%d.%m.%Y}"


class Order(hf.Dag):
    order_id: int
    note: str = ""

    @hf.step
    async def validate(self) -> None: ...

    @hf.step
    async def charge(self) -> None:
        if self.order_id == 13:
            raise RuntimeError("card refused")

    @hf.step
    async def ship(self) -> None: ...


@hf.dag_template
def batch(count: int, bad: int = -1) -> hf.DagBuilder:
    builder = hf.DagBuilder("batch-of-items")
    builder.fan_out(range(count), name=lambda i: f"item_{i}", job=process, args=lambda i: {"item": i, "bad": i == bad})
    builder.node("report", job=greet, args={"name": "Ada"})
    return builder


@hf.action
async def process(item: int, bad: bool) -> None:
    if bad:
        raise ValueError(f"item {item} is bad")


not_startable = 7
"""


class Shell:
    """The command line in a directory of its own, with HOLDFAST_URL pointing at one database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def __call__(self, *words: str, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(program, list(words), env={"HOLDFAST_URL": self.url, **(env or {})})

    def ok(self, *words: str) -> str:
        """What a command that must succeed prints."""
        done = self(*words)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def start(self, *words: str) -> str:
        return self.ok("start", *words).strip()

    def work(self, *runs: str, until: str = "paused") -> None:
        """Run a worker in this process until these runs have ended or have this status."""

        async def until_done() -> None:
            engine = hf.Engine(self.url, poll_seconds=0.02)
            async with engine, engine.worker():
                for run in runs:
                    await engine.watch.wait(run, lambda row: row.ended or row.status in ("paused", until), 30)

        asyncio.run(until_done())

    def forget_code(self) -> None:
        """As in a new process: nothing is imported."""
        default_registry._workflows.clear()
        default_registry._actions.clear()
        default_registry._events.clear()
        default_registry.version += 1
        for name in ("shop", "desk"):
            sys.modules.pop(name, None)

    def environment(self) -> dict[str, str]:
        """That of a process which imports what this one imports."""
        source = str(Path(hf.__file__).parents[1])
        return {**os.environ, "HOLDFAST_URL": self.url, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}

    def terminal(self, *words: str, columns: int = 80, code: int = 0) -> str:
        """What a person with NO_COLOR sees on a terminal, both outputs in one."""
        ours, theirs = pty.openpty()
        environment = {**self.environment(), "TERM": "xterm-256color", "COLUMNS": str(columns), "NO_COLOR": "1"}
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words], cwd=self.folder, env=environment, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            shown = bytearray()
            with contextlib.suppress(OSError):  # which is how a terminal ends
                while part := os.read(ours, 65536):
                    shown += part
            os.close(ours)
            assert process.wait(30) == code
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r\n", "\n")

    @contextmanager
    def process(self, *words: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """The command line as a process of its own, which is gone when the context is left."""
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            cwd=self.folder,
            env={**self.environment(), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with a module `shop`; what it registers and logs is forgotten afterwards."""
    (tmp_path / "shop.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(default_registry, "_actions", {})
    monkeypatch.setattr(default_registry, "_workflows", {})
    monkeypatch.setattr(default_registry, "_events", {})
    loggers = [logging.getLogger(name) for name in (None, "holdfast", "holdfast.web")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    loaded = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - loaded:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)) or name in ("shop", "desk"):  # a test may have moved them elsewhere
            del sys.modules[name]
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def shell(folder: Path, sqlite_url: str) -> Shell:
    """The command line on a SQLite file that does not exist yet."""
    return Shell(folder, sqlite_url)
