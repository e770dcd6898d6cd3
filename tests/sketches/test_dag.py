"""A diamond, sketched and real."""

from __future__ import annotations

import pytest

from holdfast.core.graph import Graph, Node
from holdfast.core.operations import CompleteWork, StartRun
from holdfast.core.rows import BLOCKED, COMPLETED, READY, Run
from holdfast.core.view import View
from holdfast.models.decisions import decisions
from tests.kernel.kernels import Workflows
from tests.sketches.dag import DagSketch, Finish, Start
from tests.sketches.kernel import both_ways, claims

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
SKETCH = DagSketch(DIAMOND).decisions()


class KnownGraph(Workflows):
    """Definitions that know the diamond."""

    def graph(self, view: View, run: Run) -> Graph:
        return Graph(tuple(Node(id=node, name=node, job=node, depends_on=above) for node, above in DIAMOND.items()))


def finish(node: str) -> Finish:
    return Finish(run="r", node=node, attempt=1, token=1)


@pytest.mark.parametrize("order", [("b", "c"), ("c", "b")])
async def test_g4_the_last_node_of_a_diamond_is_ready_once_both_sides_are_in(order: tuple[str, str]) -> None:
    """G4: blocked (1 of 2) after the first side, ready with the second, whichever that is; a repeat adds nothing."""
    first, second = order
    begun = [Start(run="r"), claims("r", "a"), finish("a"), claims("r", "b"), claims("r", "c"), finish(first)]
    halfway = await both_ways(SKETCH, begun)
    waiting = halfway.rows["work"][("r", "d", 1)]
    assert (waiting.status, waiting.completed, waiting.required) == (BLOCKED, 1, 2)

    ended = await both_ways(SKETCH, [*begun, finish(first), finish(second), claims("r", "d"), finish("d")])
    assert ended.results[-4:] == ["repeated", "recorded", "recorded", "recorded"]
    assert ended.rows["runs"][("r",)].status == COMPLETED


async def test_a_node_counted_once_too_often_undoes_that_operation_alone() -> None:
    """I23 and K7: an overflow is refused with the node's name, and the rest of the batch stands."""
    wrong = DagSketch(DIAMOND)
    wrong.children["a"] = ["b", "c", "b"]  # a broken graph: b would be counted twice
    played = await both_ways(wrong.decisions(), [Start(run="r"), claims("r", "a"), finish("a"), Start(run="other")])
    assert "node b of run r was counted 2 times" in played.results[2]
    assert {key[1] for key in played.rows["work"] if key[0] == "r"} == {"a"}
    assert ("other",) in played.rows["runs"]


async def test_the_sketch_and_the_real_machine_count_alike() -> None:
    """The dag machine of the package is this sketch with attempts, failures and hand-over added."""
    real = decisions(KnownGraph())
    nodes = ("a", "c", "b")
    steps = [step for node in nodes for step in (claims("r", node), finish(node))]
    really = [
        step if not isinstance(step, Finish) else CompleteWork(run="r", node=step.node, attempt=1, token=1)
        for step in steps
    ]
    sketched = await both_ways(SKETCH, [Start(run="r"), *steps])
    played = await both_ways(real, [StartRun(run="r", workflow="sketch", model="dag"), *really])

    def counts(rows: dict[str, dict[tuple[object, ...], object]]) -> object:
        return {key: (w.status, w.completed, w.required) for key, w in rows["work"].items()}  # type: ignore[attr-defined]

    assert counts(sketched.rows) == counts(played.rows)
    assert played.rows["work"][("r", "d", 1)].status == READY
