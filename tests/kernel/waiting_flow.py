"""A compiled flow for the kernel: it waits for the event `go` or for a day, and returns what came."""

from __future__ import annotations

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


CODE = BoundFlow(waits, waits.graph, registry=_REGISTRY, codecs=DEFAULT_CODECS, limit=DEFAULT_LIMIT_BYTES)


def begin_waiting(run: str) -> StartRun:
    """A start whose wait is leased to the worker w, which is to open it."""
    data = waits.call.encode_call((), {})
    offer = Offer(worker="w", room=1, queues=("default",))
    return StartRun(
        run=run, workflow=WAITING_FLOW, model="flow", input=data, signature=waits.graph.signature, offer=offer
    )
