"""Actions that a process of their own imports by name."""

from __future__ import annotations

import os
import threading
import time

import holdfast as hf

registry = hf.Registry()


@hf.action(registry=registry, isolation="process")
def own_process() -> int:
    return os.getpid()


@hf.action(registry=registry, isolation="process")
def crash() -> None:
    os._exit(3)


@hf.action(registry=registry, isolation="process", timeout=1.0)
def hang() -> None:
    threading.Event().wait(60)


class WithJob(hf.Dag, registry=registry, on_failure="fail"):
    go = hf.task(job=own_process, depends_on=None)


@hf.action(registry=registry, isolation="process")
def whose() -> int:
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    hf.current().note(repr(hf.current().workflow))
    return 42


@hf.action(registry=registry, isolation="process", retry=hf.Retry(attempts=1))
def compute_and_fail() -> None:
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    raise ValueError("no")


class Order(hf.Dag, registry=registry, on_failure="fail"):
    number: int
    lines: list[str]
    go = hf.task(job=whose, depends_on=None)
