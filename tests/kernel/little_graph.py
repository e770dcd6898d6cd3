"""A state graph for the kernel without authors: `a` leads to `b` and `c`, which lead to `d`.

From there it goes back to `a` while `n` is 1 or 2, and else it ends. Two items run at once, one more may wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.errors import ConflictingWrites
from holdfast.core.operations import CompleteWork, Offer, StartRun
from holdfast.core.state_outcomes import Fields, Route, joined, split
from holdfast.models.state_code import NodePlan

LITTLE = "little"
EDGES = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
OFFER = Offer(worker="w", room=10, queues=("default",))


class LittleGraph:
    """Implements GraphCode. Fields that begin with `all` are lists that are added to; others have one writer."""

    name = LITTLE
    nodes: Mapping[str, NodePlan] = {name: NodePlan(name=name, label="done" if name == "d" else None) for name in EDGES}
    entries = ("a",)
    finish = frozenset({"d"})
    max_concurrent = 2
    queue_depth = 1
    max_steps = 30
    backpressure = 50_000_000
    keep_checkpoints = 2

    def initial(self, data: bytes, codec: str) -> dict[str, bytes]:
        return split(data)

    def merge(self, state: Fields, deltas: Sequence[tuple[str, Fields]]) -> dict[str, bytes]:
        merged, writers = dict(state), dict[str, str]()
        for node, delta in deltas:
            for field, value in delta.items():
                if field.startswith("all") and len(merged.get(field, b"[]")) > 2:
                    merged[field] = merged[field][:-1] + b"," + value[1:]
                elif field in writers and not field.startswith("all"):
                    raise ConflictingWrites(f"{field} was written by {writers[field]} and by {node}")
                else:
                    merged[field] = value
                writers[field] = node
        return merged

    def taken(self, node: str, state: Fields) -> list[tuple[int, str]]:
        if node == "d" and state.get("n") in (b"1", b"2"):
            return [(0, "a")]
        return list(enumerate(EDGES[node]))

    def route_to(self, route: Route) -> str:
        return route.node

    def seal(self, data: bytes) -> bytes:
        return data

    def unseal(self, stored: bytes) -> bytes:
        return stored

    def result(self, state: Fields) -> bytes:
        return joined(state)


def begin(run: str) -> StartRun:
    """A start whose first item is leased to the worker w."""
    return StartRun(run=run, workflow=LITTLE, model="graph", input=b'{"n":0,"all":[]}', offer=OFFER)


def done(run: str, node: str, delta: str = "{}", *, attempt: int = 1, token: int = 1) -> CompleteWork:
    """An item that has succeeded; what follows is leased to the worker w too."""
    result = b'{"delta":' + delta.encode() + b"}"
    return CompleteWork(run=run, node=node, attempt=attempt, token=token, result=result, offer=OFFER)
