"""Commands that go on until they are stopped, as processes of their own: their lines, their screens, their ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from tests.cli.conftest import Shell

DEADLINE_SECONDS = 40.0


class Running:
    """A process whose output is collected as it comes; whoever waits for a text sees all of it if it never comes."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.seen = ""
        self._came = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()

    def _read(self, output: int) -> None:
        with contextlib.suppress(OSError):  # which is how a terminal ends
            while part := os.read(output, 65536):
                with self._came:
                    self.seen += part.decode("utf-8", "replace")
                    self._came.notify_all()
        with self._came:
            self._ended = True
            self._came.notify_all()
        os.close(output)

    def until(self, text: str, after: int = 0, seconds: float = DEADLINE_SECONDS) -> int:
        """Wait for a text beyond a place in the output; the place behind it."""
        with self._came:
            self._came.wait_for(lambda: text in self.seen[after:] or self._ended, seconds)
            assert text in self.seen[after:], f"{text!r} never came:\n{self.seen[after:]}"
            return self.seen.index(text, after) + len(text)

    def line_with(self, text: str) -> str:
        """The first line that holds a text, once it is whole."""
        begin = self.until(text)
        self.until("\n", begin)
        return next(line for line in self.seen.splitlines() if text in line)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end and the last of the output; the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end and the last of the output; the exit code."""
        code = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return code


@contextmanager
def running(shell: Shell, *words: str, env: dict[str, str] | None = None) -> Iterator[Running]:
    """The command with both outputs in one pipe. Whatever it leaves behind is killed when the context is left."""
    ours, theirs = os.pipe()
    with _started(shell, theirs, words, env) as process:
        yield Running(process, ours)


@contextmanager
def on_terminal(
    shell: Shell, *words: str, columns: int = 80, lines: int = 24, env: dict[str, str] | None = None
) -> Iterator[Running]:
    """The command on a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    with _started(shell, theirs, words, {"TERM": "xterm-256color", **(env or {})}) as process:
        yield Running(process, ours)


@contextmanager
def _started(
    shell: Shell, output: int, words: tuple[str, ...], env: dict[str, str] | None
) -> Iterator[subprocess.Popen[bytes]]:
    # A session of its own: a Ctrl-C for the group is for it and its children alone.
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        cwd=shell.folder,
        env={**shell.environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    ) as process:
        os.close(output)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that a process has started and that live."""
    return psutil.Process(process.pid).children(recursive=True)


def all_gone(processes: list[psutil.Process]) -> bool:
    """Whether these processes end within the deadline."""
    _, alive = psutil.wait_procs(processes, timeout=DEADLINE_SECONDS)
    return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something becomes true within the deadline; a file or a row, of which nobody tells us."""
    end = time.monotonic() + DEADLINE_SECONDS
    tick = threading.Event()
    while not holds():
        if time.monotonic() > end:
            return False
        tick.wait(0.05)
    return True


@contextmanager
def fetched(address: str, path: str = "", token: str | None = None) -> Iterator[HTTPResponse]:
    """The answer to a request below an address that a command has printed."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=DEADLINE_SECONDS)
    try:
        connection.request("GET", f"/{path}", headers={} if token is None else {"authorization": f"Bearer {token}"})
        yield connection.getresponse()
    finally:
        connection.close()


def write(path: Path, text: str) -> None:
    """Write a file as editors do: beside it, and then in its place."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
