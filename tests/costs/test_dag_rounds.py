"""How often the locked path reads, when nothing of a large run is remembered: as another process wrote, or after a
restart. A number of rounds that grew with the graph would cost the square of it, as each decides all over again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.codec import encode_error
from holdfast.core.graph import Graph, Node
from holdfast.core.operations import CompleteWork, FailWork, Operation, RetryRun
from holdfast.core.queries import AllWork
from holdfast.core.rows import BLOCKED, FAILED, LEASED, READY, Run
from holdfast.core.view import View
from holdfast.models.decisions import decisions
from holdfast.store.contract import ClaimRequest
from holdfast.store.memory import MemoryStore
from tests.kernel.kernels import Workflows, start
from tests.support.stores import VirtualClock

WIDTH = 500
ROUNDS = 4


def _node(name: str, *parents: str) -> Node:
    return Node(id=name, name=name, job="job", depends_on=parents)


class Wide(Workflows):
    """Two that begin, very many that wait for both, as many that each wait for one of those, and one for them all."""

    first = tuple(f"a{number}" for number in range(WIDTH))
    second = tuple(f"b{number}" for number in range(WIDTH))
    wide = Graph(
        (
            _node("left"),
            _node("right"),
            *(_node(name, "left", "right") for name in first),
            *(_node(name, above) for name, above in zip(second, first, strict=True)),
            _node("end", *second),
        )
    )

    def graph(self, view: View, run: Run) -> Graph:
        return self.wide


class Kernel:
    """The kernel on a store, and how often it has read."""

    def __init__(self) -> None:
        self.store = MemoryStore(VirtualClock())
        self.coordinator = Coordinator(self.store, decisions(Wide()), VirtualClock())
        self.rounds = 0

    def count(self, name: str) -> None:
        self.rounds += name == "load.after_rows"

    async def submit_with_nothing_in_mind(self, *operations: Operation) -> list[Any]:
        self.coordinator.cache.clear()
        self.rounds = 0
        return await self.coordinator.submit_batch(operations)

    async def claim_all(self) -> None:
        names = tuple(f"wide.{node}" for node in Wide.wide.by_id)
        request = ClaimRequest(worker="w", queue="default", limit=10_000, workflows=("wide",), actions=names)
        await self.store.claim(request)

    async def statuses(self) -> dict[str, str]:
        return {work.node: work.status for work in await self.store.rows(AllWork("r"))}


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    failpoints.arm(made.count)
    yield made
    failpoints.disarm()


def completed(node: str) -> CompleteWork:
    return CompleteWork(run="r", node=node, attempt=1, token=1)


async def test_k6_what_follows_a_node_is_read_together_however_much_it_is(kernel: Kernel) -> None:
    """The first parent to finish looks for the rows of all that follow, the last one also for their other parents."""
    await kernel.coordinator.submit(start("r", "wide", lease=True))
    for node, expected in (("left", BLOCKED), ("right", READY)):
        (answer,) = await kernel.submit_with_nothing_in_mind(completed(node))
        assert answer.verdict == "recorded"
        assert 1 <= kernel.rounds <= ROUNDS
        statuses = await kernel.statuses()
        assert {statuses[name] for name in Wide.first} == {expected}


async def test_k6_nodes_that_gave_up_are_retried_together_however_many_they_are(kernel: Kernel) -> None:
    """Each of them follows another parent, and none of these is asked for alone."""
    await kernel.coordinator.submit(start("r", "wide", lease=True, on_failure="pause"))
    await kernel.coordinator.submit_batch([completed("left"), completed("right")])
    await kernel.claim_all()
    await kernel.coordinator.submit_batch([completed(node) for node in Wide.first])
    await kernel.claim_all()
    error = encode_error(ValueError("as planned"))
    await kernel.coordinator.submit_batch(
        [FailWork(run="r", node=node, attempt=1, token=1, error=error) for node in Wide.second]
    )
    statuses = await kernel.statuses()
    assert {statuses[name] for name in Wide.second} == {FAILED}
    (answer,) = await kernel.submit_with_nothing_in_mind(RetryRun(run="r"))
    assert len(answer.nodes) == WIDTH
    assert 1 <= kernel.rounds <= ROUNDS
    statuses = await kernel.statuses()
    assert {statuses[name] for name in Wide.second} == {READY}


async def test_k6_completions_of_one_batch_are_read_together(kernel: Kernel) -> None:
    """A batch of reports is a few rounds, not a few for each of them."""
    await kernel.coordinator.submit(start("r", "wide", lease=True))
    await kernel.coordinator.submit_batch([completed("left"), completed("right")])
    await kernel.claim_all()
    assert (await kernel.statuses())[Wide.first[0]] == LEASED
    answers = await kernel.submit_with_nothing_in_mind(*(completed(node) for node in Wide.first[:200]))
    assert {answer.verdict for answer in answers} == {"recorded"}
    assert 1 <= kernel.rounds <= ROUNDS
