"""Actions that a process of their own imports by name."""

from __future__ import annotations

import os

import holdfast as hf

registry = hf.Registry()


@hf.action(registry=registry, isolation="process")
def own_process() -> int:
    return os.getpid()


class WithJob(hf.Dag, registry=registry, on_failure="fail"):
    go = hf.task(job=own_process, depends_on=None)
