"""The actions of all programs. Each call tells the ledger, takes virtual time, and fails as often as it is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypedDict

import holdfast as hf
from tests.reliability.simulation.ledger import Execution
from tests.reliability.simulation.loop import current_lane

if TYPE_CHECKING:
    from tests.reliability.simulation.world import World

registry = hf.Registry()
RETRY = hf.Retry(attempts=4, base=0.2, cap=1.0)
ALWAYS = 99  # more often than anything is tried

_worlds: list[World] = []


class Failing(Exception):
    """A failure by plan."""


class Job(TypedDict):
    """What an action is to do: `label` is this call's own, over all runs."""

    label: str
    takes: float
    fails: int


class Done(TypedDict):
    """What it returns: `nonce` tells this execution from every other one."""

    label: str
    nonce: int


def enter(world: World | None) -> None:
    """From now on actions belong to this world, or to none."""
    _worlds[:] = [] if world is None else [world]


def here() -> World:
    return _worlds[0]


async def perform(job: Job, run: str, node: str, attempt: int) -> Done:
    """Do a job: the one place where user code happens."""
    world = here()
    ledger, lane = world.ledger, current_lane()
    execution = ledger.begin(
        Execution(run, node, attempt, job["label"], lane.name, world.loop.time()),
    )
    world.executed(lane.name, run, node, attempt, job["label"])
    try:
        if job["takes"]:
            await asyncio.sleep(job["takes"])
    except asyncio.CancelledError:
        execution.end, execution.ended = "cut", world.loop.time()
        raise
    if ledger.raised(job["label"]) < job["fails"]:
        execution.end, execution.ended = "raised", world.loop.time()
        raise Failing(job["label"])
    return Done(label=job["label"], nonce=ledger.returned(execution, world.loop.time()))


@hf.action(registry=registry, retry=RETRY)
async def act(job: Job) -> Done:
    context = hf.current()
    return await perform(job, context.run_id, context.node.id, context.node.attempt)


@hf.action(registry=registry, retry=RETRY, queue="side")
async def act_elsewhere(job: Job) -> Done:
    context = hf.current()
    return await perform(job, context.run_id, context.node.id, context.node.attempt)


@hf.action(registry=registry, retry=RETRY)
async def number(label: str, value: int) -> int:
    """For flows, which compute with what they get: returns what it is given."""
    context = hf.current()
    job = Job(label=label, takes=(value % 3) * 0.1, fails=1 if value % 5 == 4 else 0)
    await perform(job, context.run_id, context.node.id, context.node.attempt)
    return value


@hf.action(registry=registry)
async def refuse(label: str) -> int:
    """Always fails, at the first attempt."""
    context = hf.current()
    await perform(Job(label=label, takes=0.0, fails=ALWAYS), context.run_id, context.node.id, context.node.attempt)
    return 0
