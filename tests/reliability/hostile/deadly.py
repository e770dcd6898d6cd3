"""Actions that would take their process with them, each in a process of its own."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

import holdfast as hf

registry = hf.Registry()
MEMORY_BYTES = 1 << 29


@hf.action(registry=registry, isolation="process")
def crash() -> None:
    """Reads where nothing is."""
    ctypes.string_at(0)


@hf.action(registry=registry, isolation="process")
def leave() -> None:
    os._exit(7)


@hf.action(registry=registry, isolation="process")
def leave_politely() -> None:
    sys.exit("so long")


@hf.action(registry=registry, isolation="process")
def eat_memory() -> int:
    """More than the machine gives: here, than a limit of this process's own."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    eaten = []
    while True:
        eaten.append(bytearray(1 << 24))


@hf.action(registry=registry, isolation="process", timeout=1.5)
def never_end() -> None:
    """Holds the interpreter, so that nothing inside this process could stop it."""
    while True:
        sum(range(1_000_000))


@hf.action(registry=registry, isolation="process")
def close_everything() -> None:
    os.closerange(0, 1024)


@hf.action(registry=registry, isolation="process")
def add(number: int) -> int:
    return number + 1
