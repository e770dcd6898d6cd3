"""Compiled flows for the kernel: one waits for the event `go` or for a day, and returns what came; others sleep."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast as hf
from holdfast.authoring.flow_code import BoundFlow
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES
from holdfast.core.operations import Offer, StartRun

WAITING_FLOW = "waiting flow"
_REGISTRY = hf.Registry()


@hf.flow(registry=_REGISTRY, name=WAITING_FLOW)
async def waits() -> str:
    got = await hf.wait_for(hf.any_of("go", hf.after(days=1)))
    return str(got.value)


@hf.action(registry=_REGISTRY)
async def act(number: int) -> int:
    return number


@hf.flow(registry=_REGISTRY)
async def sleeps_and_acts() -> int:
    await hf.sleep(seconds=10)
    return await act(1)


@hf.flow(registry=_REGISTRY)
async def sleeps_and_spreads() -> list[int]:
    await hf.sleep(seconds=10)
    return await asyncio.gather(*[act(number) for number in [1, 2, 3]])


@hf.flow(registry=_REGISTRY)
async def sleeps_and_returns() -> int:
    await hf.sleep(seconds=10)
    return 1


@hf.flow(registry=_REGISTRY)
async def sleeps_and_fails(zero: int = 0) -> float:
    await hf.sleep(seconds=10)
    return 1 / zero


@hf.flow(registry=_REGISTRY)
async def sleeps_beside() -> list[int | None]:
    return await asyncio.gather(hf.sleep(seconds=10), act(1))


_FLOWS: tuple[Any, ...] = (
    waits,
    sleeps_and_acts,
    sleeps_and_spreads,
    sleeps_and_returns,
    sleeps_and_fails,
    sleeps_beside,
)
CODES = {
    each.name: BoundFlow(each, each.graph, registry=_REGISTRY, codecs=DEFAULT_CODECS, limit=DEFAULT_LIMIT_BYTES)
    for each in _FLOWS
}


def begin_waiting(run: str) -> StartRun:
    """A start whose wait is leased to the worker w, which is to open it."""
    data = waits.call.encode_call((), {})
    offer = Offer(worker="w", room=1, queues=("default",))
    return StartRun(
        run=run, workflow=WAITING_FLOW, model="flow", input=data, signature=waits.graph.signature, offer=offer
    )


def begin_flow(run: str, flow: Any) -> StartRun:
    """A start of one that sleeps: nobody has claimed anything of it."""
    data = flow.call.encode_call((), {})
    return StartRun(run=run, workflow=flow.name, model="flow", input=data, signature=flow.graph.signature)
