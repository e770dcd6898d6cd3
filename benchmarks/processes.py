"""Programs that are measured: started in a group of their own, stopped when they take too long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil


class CellFailed(Exception):
    """A cell has no figure: it ended badly, or not in time. The message is its last words."""


def values_said(command: Sequence[str], *, seconds: float, extra: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run a program that prints {"values": {…}} as its last line."""
    with _started(command, extra, stdin=subprocess.DEVNULL) as program:
        try:
            said, complaint = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(program)
            raise CellFailed(f"not done after {seconds:.0f} s") from None
        finally:
            _end(program)
    if program.returncode != 0:
        raise CellFailed(f"exit code {program.returncode}: {_last_words(complaint or said)}")
    try:
        values = json.loads(said.splitlines()[-1])["values"]
        return {name: float(value) for name, value in values.items()}
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise CellFailed(f"said nothing that can be read: {_last_words(said or complaint)}") from error


def first_words(
    command: Sequence[str], expected: str, *, seconds: float, extra: Mapping[str, str] | None = None
) -> tuple[float, float]:
    """Seconds until a program prints its first line, and its megabytes then, children included."""
    started = time.perf_counter()
    with _started(command, extra, stdin=subprocess.PIPE) as program:
        assert program.stdout is not None
        # A program that says nothing must not be waited for; one that is stopped says an empty line.
        guard = subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -9 -{program.pid}"], start_new_session=True)
        try:
            line = program.stdout.readline()
            taken = time.perf_counter() - started
            if line.strip() != expected:
                raise CellFailed(f"said {line.strip()!r} and not {expected!r} within {seconds:.0f} s")
            process = psutil.Process(program.pid)
            weighed = [process, *process.children(recursive=True)]
            megabytes = sum(each.memory_info().rss for each in weighed) / 1e6
        finally:
            os.killpg(guard.pid, signal.SIGKILL)
            guard.wait()
            _end(program)
    return taken, megabytes


def _started(command: Sequence[str], extra: Mapping[str, str] | None, *, stdin: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(command),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if stdin == subprocess.DEVNULL else subprocess.DEVNULL,
        text=True,
        errors="replace",
        env=os.environ | dict(extra or {}),
        start_new_session=True,  # so that its own servers and workers can be stopped with it
    )


def _end(program: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-2:])[-300:]
