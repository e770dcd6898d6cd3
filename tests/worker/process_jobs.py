"""Actions that a process of their own imports by name."""

from __future__ import annotations

import os
import threading

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
