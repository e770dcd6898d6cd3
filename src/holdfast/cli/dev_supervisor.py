"""The process behind `holdfast dev` that stays: it starts a child, watches the files, and starts it again.

Nothing of a user's code is ever imported here, so whatever that code does, this process goes on. A child is asked to
stop (SIGTERM), asked again, which gives running work back, and then killed; its successor takes up at once what a
killed one has left, because a lock that only a living process can hold says that it is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.cli.dev_child import NOT_BEGUN, NOT_IMPORTED
from holdfast.cli.dev_files import WatchedFiles
from holdfast.cli.failures import FAILED, Failure

LOOK_SECONDS: Final = 0.4
QUIET_SECONDS: Final = 0.1
POLITE_SECONDS: Final = 1.0
HURRIED_SECONDS: Final = 4.0
LARGEST_REPORT: Final = 16 * 1024 * 1024
NAMES_SHOWN: Final = 3

What = Literal["stop", "changed", "ended"]


class Child:
    """One worker with its page: a process, and what it has reported."""

    def __init__(self, process: asyncio.subprocess.Process, alive: int) -> None:
        self.process = process
        self.address: str | None = None
        self.failed: dict[str, Any] | None = None
        self._alive = alive

    async def stop(self) -> None:
        """Ask, ask again, kill; return when it is gone."""
        for number, seconds in ((signal.SIGTERM, POLITE_SECONDS), (signal.SIGTERM, HURRIED_SECONDS)):
            if self.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self.process.send_signal(number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.process.wait(), seconds)
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def forget(self) -> None:
        """Let go of the pipe that tells it that we live."""
        os.close(self._alive)


class Supervisor:
    """Keeps one child running with the newest code until told to stop.

    `command` makes the line of a child from its two pipes and its port. `say` is told of what a person should know:
    the name of an event, a sentence, and the facts for programs.
    """

    def __init__(
        self,
        command: Callable[[tuple[int, int], int], Sequence[str]],
        *,
        port: int,
        reload: bool,
        say: Callable[..., None],
        ready: Callable[[str], None],
        stop: asyncio.Event,
    ) -> None:
        self._command = command
        self._port = port
        self._reload = reload
        self._say = say
        self._ready = ready
        self._files = WatchedFiles(Path.cwd())
        self._was_ready = False
        self._stop = stop

    async def run(self) -> None:
        """Supervise until `stop` is set; no child is left behind."""
        while not self._stop.is_set():
            child, reading = await self._start()
            try:
                what, changed = await self._watch(child, reading)
                if what == "changed":
                    self._tell_changed(changed)
            finally:
                await child.stop()
                await reading
                child.forget()
            if what == "ended":
                await self._after_end(child)

    async def _start(self) -> tuple[Child, asyncio.Task[None]]:
        reports, theirs = os.pipe()
        lives, alive = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command((theirs, lives), self._port), pass_fds=(theirs, lives)
            )
        finally:
            os.close(theirs)
            os.close(lives)
        child = Child(process, alive)
        reading = asyncio.get_running_loop().create_task(self._listen(child, reports), name="holdfast-reports")
        return child, reading

    async def _listen(self, child: Child, pipe: int) -> None:
        """Take what the child tells until it has closed the pipe, which it does by ending."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LARGEST_REPORT)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb"))
        try:
            async for line in reader:
                self._heard(child, json.loads(line))
        except ValueError:  # it died while it was telling
            pass
        finally:
            transport.close()

    def _heard(self, child: Child, report: dict[str, Any]) -> None:
        if "files" in report:
            self._files.follow(report["files"])
        if "failed" in report:
            child.failed = report["failed"]
        if "address" in report:
            child.address = report["address"]
            self._port = int(report["address"].rstrip("/").rpartition(":")[2])  # the same after every change
            if not self._was_ready:
                self._was_ready = True
                self._ready(report["address"])
            self._say("ready", f"runs {', '.join(report['workflows'])}", workflows=report["workflows"])

    async def _watch(self, child: Child, reading: asyncio.Task[None]) -> tuple[What, list[str]]:
        """What happens next: somebody wants to stop, a file changes, or the child ends by itself."""
        ended = asyncio.ensure_future(child.process.wait())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            while True:
                await asyncio.wait([ended, stopped], timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    return "stop", []
                if ended.done():
                    await reading
                    return "ended", []
                changed = await self._changed()
                if changed:
                    return "changed", changed
        finally:
            ended.cancel()
            stopped.cancel()

    async def _changed(self) -> list[str]:
        """What has changed, once nothing changes any more: editors and version control write several files."""
        if not self._reload:
            return []
        changed: dict[str, None] = {}
        while more := self._files.changed():
            changed.update(dict.fromkeys(more))
            await asyncio.sleep(QUIET_SECONDS)
        return list(changed)

    async def _after_end(self, child: Child) -> None:
        """It ended by itself: because of the code, which may change; because it cannot begin; or somebody killed it."""
        code = child.process.returncode
        failed = child.failed or {"message": _ended_with(code), "hint": "correct the code; its output is above"}
        refused = code == NOT_BEGUN and not self._was_ready
        if refused or (not self._reload and child.address is None):
            raise Failure(failed["message"], hint=failed["hint"], code=failed.get("exit_code", FAILED))
        if child.address is not None and child.failed is None:
            self._say("ended", f"{failed['message']}; starting it again", exit_code=code)
            return
        self._say("failed", failed["message"], hint=failed["hint"])
        if not self._reload:
            raise Failure("nothing is running", hint="correct that and start again", code=FAILED)
        if code == NOT_IMPORTED or child.address is None:
            self._files.follow_everything()
        await self._until_changed()

    async def _until_changed(self) -> None:
        self._say("waiting", "waiting for a file to change")
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            while not stopped.done():
                await asyncio.wait([stopped], timeout=LOOK_SECONDS)
                changed = await self._changed()
                if changed:
                    self._tell_changed(changed)
                    return
        finally:
            stopped.cancel()

    def _tell_changed(self, changed: list[str]) -> None:
        more = f" and {len(changed) - NAMES_SHOWN:,} more" if len(changed) > NAMES_SHOWN else ""
        self._say("changed", f"{', '.join(changed[:NAMES_SHOWN])}{more} changed; starting again", files=changed)


def _ended_with(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"the worker was killed ({signal.Signals(-code).name})"
    return f"the worker ended with exit code {code}"


def child_command(*words: str) -> list[str]:
    """This program, in a process of its own, without the current directory before Python's own modules."""
    return [sys.executable, "-P", "-m", "holdfast", *words]


__all__ = ["Supervisor", "child_command"]
