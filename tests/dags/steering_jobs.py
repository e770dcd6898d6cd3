"""Jobs that tell the engine what becomes of their node or run, from a coroutine, a thread and a process of its own.

A module of its own, because a process imports what it runs. What they did is in a file, and so is that they did it.
"""

from __future__ import annotations

from pathlib import Path

import holdfast as hf

registry = hf.Registry()


def journal(folder: str) -> list[str]:
    """What was done so far."""
    path = Path(folder) / "journal"
    return path.read_text().split() if path.exists() else []


def _steer(wish: str, folder: str, after: float) -> None:
    context = hf.current()
    _write(folder, f"{context.node}:{context.attempt}")
    if context.attempt > 1:
        return
    if wish == "reattempt":
        context.reattempt(after=after, reason="the report is not there yet")
    getattr(context, wish)(reason="as agreed")


def _write(folder: str, line: str) -> None:
    with (Path(folder) / "journal").open("a") as file:
        file.write(f"{line}\n")


@hf.action(registry=registry)
async def steer_async(wish: str, folder: str, after: float = 0.0) -> None:
    _steer(wish, folder, after)


@hf.action(registry=registry)
def steer_sync(wish: str, folder: str, after: float = 0.0) -> None:
    _steer(wish, folder, after)


@hf.action(registry=registry, isolation="process")
def steer_process(wish: str, folder: str, after: float = 0.0) -> None:
    _steer(wish, folder, after)


@hf.action(registry=registry)
async def note_down(folder: str) -> None:
    _write(folder, f"{hf.current().node}:{hf.current().attempt}")


JOBS = {"async": steer_async, "sync": steer_sync, "process": steer_process}


def steered(kind: str, wish: str, folder: str, after: float = 0.0) -> hf.BuiltDag:
    """before, then the node that steers, then after."""
    w = hf.DagBuilder("steered", registry=registry)
    w.node("before", job=note_down, args={"folder": folder})
    w.node("steer", job=JOBS[kind], args={"wish": wish, "folder": folder, "after": after})
    w.node("after", job=note_down, args={"folder": folder})
    return w.build()
