"""The durable functions that processes of these tests drive. Every action journals what it does.

`registry` holds all of it. `journey` makes more than thirty recorded calls and waits for everything that can be waited
for; what it returns depends on nothing but its code, so a run that was killed must return the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import holdfast as hf
from tests.endtoend.programs.app import wait_for_file
from tests.endtoend.programs.journal import BEGUN, DONE, write

registry = hf.Registry()
done_something: list[Callable[[], None]] = []  # called when an action has had its effect, and nobody knows of it yet
go = hf.event("go", int, registry=registry)
news = hf.event("news", str, registry=registry)


def act(journal: str) -> None:
    write(journal, BEGUN)
    for each in done_something:
        each()


@hf.action(registry=registry)
async def step(journal: str, name: str, number: int) -> str:
    act(journal)
    return f"{name}{number}"


@hf.action(registry=registry)
async def refuse(journal: str) -> None:
    act(journal)
    raise ValueError("refused")


@hf.action(registry=registry)
async def undo(journal: str, what: str) -> None:
    act(journal)


@hf.action(registry=registry)
async def hold(journal: str) -> int:
    """Run until the file `<journal>.go` exists; the process that did."""
    write(journal, BEGUN)
    await wait_for_file(Path(f"{journal}.go"))
    write(journal, DONE)
    return os.getpid()


# --- more than thirty recorded calls -------------------------------------------------------------------------------


async def branch(journal: str, name: str, length: int) -> list[str]:
    return [await step(journal, name, number) for number in range(length)]


@hf.workflow(registry=registry)
async def child(journal: str, length: int) -> list[str]:
    return await branch(journal, "child", length)


@hf.workflow(registry=registry)
async def doomed(journal: str) -> None:
    """Fails, and takes back what it did, in reverse."""
    hf.on_rollback(undo, journal, "first")
    await step(journal, "doomed", 1)
    hf.on_rollback(undo, journal, "second")
    await refuse(journal)


async def told(journal: str) -> str:
    received = await hf.wait_for(go)
    return await step(journal, "told", received.value)


async def tell(journal: str, run: str) -> None:
    await step(journal, "tell", 1)
    await hf.send(go, 7, to=run)


@hf.workflow(registry=registry)
async def journey(journal: str) -> list[str]:
    trail = await branch(journal, "a", 4)
    for found in await asyncio.gather(branch(journal, "left", 3), branch(journal, "right", 3)):
        trail += found
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(told(journal))
        group.create_task(tell(journal, hf.current().run_id))
        others = [group.create_task(branch(journal, f"g{number}", 2)) for number in range(2)]
    trail += [waiting.result(), *others[0].result(), *others[1].result()]
    await hf.sleep(0.02)
    trail.append(await step(journal, "slept", 1))
    trail += await child(journal, 2)
    started = await hf.start_child(child, journal, 1)
    ended = await hf.wait_for(hf.ended(started.id))
    trail.append(f"{ended.status} {ended.result}")
    try:
        await doomed(journal)
    except hf.RunFailed as error:
        trail.append(f"{type(error.__cause__).__name__}: {error.__cause__}")
    match await hf.wait_for(news | hf.after(seconds=0.02)):
        case hf.TimeReached():
            trail.append(await step(journal, "late", 1))
        case hf.Received():
            trail.append("nobody sends news")
    trail.append(await hf.side_effect(lambda: "aside", name="aside"))
    return trail + await branch(journal, "end", 6)


# --- smaller ones --------------------------------------------------------------------------------------------------


@hf.workflow(registry=registry)
async def holds(journal: str) -> list[int | str]:
    """A held action between two others."""
    first = await step(journal, "before", 1)
    pid = await hold(journal)
    return [first, pid, await step(journal, "after", 1)]


@hf.workflow(registry=registry)
async def waits(journal: str) -> list[str]:
    first = await step(journal, "before", 1)
    received = await hf.wait_for(news)
    return [first, received.value, await step(journal, "after", 1)]


@hf.workflow(registry=registry)
async def holds_and_hears(journal: str) -> list[str]:
    """Waits for news while an action is running."""

    async def hear() -> str:
        received = await hf.wait_for(news)
        return await step(journal, received.value, 1)

    async with asyncio.TaskGroup() as group:
        holding = group.create_task(hold(journal))
        hearing = group.create_task(hear())
    assert holding.result()
    return [hearing.result()]
