"""What is wrong with a graph is told before anything of it runs, with the name and the fix."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from holdfast.core.errors import GraphError, UsageError


class State(TypedDict):
    ok: bool
    notes: Annotated[list[str], operator.add]


def graph(*names: str, **options: Any) -> hf.StateGraph[State]:
    """A graph named g with these nodes, which do nothing."""
    made = hf.StateGraph(State, name="g", registry=hf.Registry(), **options)
    for name in names:
        made.node(nothing, name=name)
    return made


def nothing(state: State) -> None:
    return None


def chain(*names: str) -> hf.StateGraph[State]:
    made = graph(*names)
    made.start_at(names[0])
    made.finish(names[-1])
    for source, target in itertools.pairwise(names):
        made.edge(source, target)
    return made


def refused(check: Callable[[], object]) -> GraphError:
    with pytest.raises(GraphError) as caught:
        check()
    return caught.value


def test_a_graph_in_order_is_accepted_and_may_have_cycles() -> None:
    made = chain("plan", "write")
    made.edge("write", "plan", when=lambda state: not state["ok"])
    made.check()


@pytest.mark.parametrize(
    ("spoil", "told", "fix"),
    [
        (lambda g: g.edge("plan", "wrte"), "edge from 'plan' to 'wrte' names the node 'wrte'", "did you mean 'write'?"),
        (lambda g: g.edge("pla", "write"), "edge from 'pla' to 'write' names the node 'pla'", "did you mean 'plan'?"),
        (lambda g: g.start_at("nowhere"), "start_at names the node 'nowhere', which graph 'g' does not", "known: "),
        (lambda g: g.finish("plan-b"), "finish names the node 'plan-b'", "did you mean 'plan'?"),
        (
            lambda g: g.node(goes_to=["wrote"], name="router")(nothing),
            "goes_to of node 'router' names the node 'wrote'",
            "did you mean 'write'?",
        ),
        (
            lambda g: g.node(nothing, name="island"),
            "no way leads from the start of graph 'g' to node 'island'",
            'goes_to=["island"]',
        ),
    ],
)  # fmt: skip
def test_a_name_that_is_no_node_and_a_node_that_nothing_leads_to_are_told(
    spoil: Callable[[hf.StateGraph[State]], object], told: str, fix: str
) -> None:
    made = chain("plan", "write")
    spoil(made)
    error = refused(made.check)
    assert told in error.message
    assert fix in error.hint


def test_a_node_reached_by_goto_is_known_by_goes_to() -> None:
    made = graph()
    made.node(goes_to=["island"])(nothing)
    made.node(nothing, name="island")
    made.start_at("nothing")
    made.finish("island")
    made.check()


def test_a_graph_without_nodes_without_start_and_without_finish_is_told() -> None:
    assert "graph 'g' has no nodes" in refused(graph().check).message
    made = graph("plan")
    assert "has no node to begin with" in refused(made.check).message
    made.start_at("plan")
    error = refused(made.check)
    assert "has no node at which it may finish" in error.message
    assert "graph.finish('plan')" in error.hint
    made.finish("plan")
    made.check()


def test_a_node_that_leads_nowhere_is_told_unless_it_says_that_it_ends_the_run() -> None:
    made = chain("plan", "write")
    made.node(nothing, name="dead-end")
    made.edge("plan", "dead-end")
    error = refused(made.check)
    assert "node 'dead-end' of graph 'g' leads nowhere" in error.message
    assert "graph.finish('dead-end')" in error.hint
    made = chain("plan", "write")
    made.node(goes_to=(), name="stop")(nothing)
    made.edge("plan", "stop")
    made.check()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a.b", "the name of a node of graph 'g' is 'a.b'"),
        ("a@1", "is 'a@1'"),
        ("", "is ''"),
        ("-a", "is '-a'"),
        ("1a", "is '1a'"),
        (7, "the name 7 of a node of graph 'g' is a int"),
    ],
)
def test_a_nodes_name_can_be_part_of_an_address(name: Any, told: str) -> None:
    made = graph()
    assert told in refused(lambda: made.node(nothing, name=name)).message
    made.node(nothing, name="plan-b_2")


def test_a_node_is_declared_once() -> None:
    made = graph("plan")
    assert "graph 'g' has the node 'plan' twice" in refused(lambda: made.node(nothing, name="plan")).message
    made.edge("plan", "plan")
    assert "has the edge from 'plan' to 'plan' twice" in refused(lambda: made.edge("plan", "plan")).message
    made.edge("plan", "plan", when=lambda state: True)
    made.start_at("plan")
    assert "start_at of graph 'g' names 'plan' twice" in refused(lambda: made.start_at("plan")).message


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_concurrent": 0}, "max_concurrent=0 of graph 'g' is not a whole number of 1 or more"),
        ({"queue_depth": -3}, "queue_depth=-3 of graph 'g'"),
        ({"max_steps": 2.5}, "max_steps=2.5 of graph 'g'"),
        ({"max_steps": True}, "max_steps=True of graph 'g'"),
        ({"keep_checkpoints": 0}, "keep_checkpoints=0 of graph 'g'"),
        ({"default_timeout": 0}, "timeout=0 of the nodes of graph 'g'"),
        ({"default_timeout": "30"}, "timeout='30' of the nodes of graph 'g'"),
        ({"backpressure_seconds": -1}, "backpressure_seconds=-1 of graph 'g'"),
        ({"backpressure_seconds": math.inf}, "backpressure_seconds=inf of graph 'g'"),
        ({"redact": "key"}, "redact='key' of graph 'g' is a str"),
        ({"redact": [3]}, "redact of graph 'g' holds 3"),
        ({"reduce": 3}, "reduce=3 of graph 'g' is a int"),
    ],
)
def test_a_bad_option_is_told_with_its_value(options: dict[str, Any], told: str) -> None:
    assert told in refused(lambda: graph(**options)).message


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"requires_idempotency": True}, "of graph 'g' has requires_idempotency=True and no idempotency_key"),
        ({"idempotency_key": "k"}, "idempotency_key='k' of node 'nothing'"),
        ({"timeout": -1}, "timeout=-1 of node 'nothing' of graph 'g'"),
        ({"timeout": math.nan}, "timeout=nan of node 'nothing'"),
        ({"retry": 3}, "retry=3 of node 'nothing' of graph 'g' is a int, not a Retry"),
        ({"recordable": 1}, "recordable=1 of node 'nothing'"),
        ({"goes_to": "write"}, "goes_to of node 'nothing' of graph 'g' is 'write'"),
        ({"goes_to": [nothing]}, "names the function nothing"),
    ],
)  # fmt: skip
def test_a_bad_policy_of_a_node_is_told_where_it_is_written(options: dict[str, Any], told: str) -> None:
    made = graph()
    assert told in refused(lambda: made.node(**options)(nothing)).message
    assert not made.nodes


def test_edges_take_names_and_conditions_that_can_be_called() -> None:
    made = graph("plan")
    assert "names the function nothing" in refused(lambda: made.edge(nothing, "plan")).message  # type: ignore[arg-type]
    assert (
        "when=True of the edge from 'plan' to 'plan'"
        in refused(
            lambda: made.edge("plan", "plan", when=True)  # type: ignore[arg-type]
        ).message
    )
    assert "finish() of graph 'g' names no node" in refused(made.finish).message


def test_i40_a_condition_that_would_have_to_be_awaited_is_refused() -> None:
    """A coroutine is true, whatever it would have said."""

    class Call:
        async def __call__(self, state: Any) -> bool:
            return False

    async def no(state: Any) -> bool:
        return False

    made = graph("plan")
    for when in (no, Call(), functools.partial(no)):
        told = refused(lambda when=when: made.edge("plan", "plan", when=when)).message  # type: ignore[misc]
        assert told == "when of the edge from 'plan' to 'plan' in graph 'g' is an async def"
    assert not made.edges


def test_a_function_that_cannot_be_called_with_a_state_is_no_node() -> None:
    made = graph()

    def none() -> None: ...
    def three(state: Any, ctx: Any, more: Any) -> None: ...
    def keyword(state: Any, *, more: Any) -> None: ...

    for function in (none, three, keyword):
        error = refused(lambda function=function: made.node(function))  # type: ignore[misc]
        assert f"{function.__name__} of graph 'g' has the signature" in error.message
    with pytest.raises(UsageError, match="is a generator"):
        made.node(lambda state: (yield))
    assert "a lambda, which has no name" in refused(lambda: made.node(lambda state: None)).message


def test_nothing_is_added_to_a_graph_after_its_first_start() -> None:
    made = chain("plan", "write")
    made.use()
    for change in (
        lambda: made.edge("write", "plan"),
        lambda: made.node(nothing, name="more"),
        lambda: made.start_at("write"),
        lambda: made.finish("plan"),
        lambda: made.subgraph("part", made),
    ):
        assert "of graph 'g' after its first start" in refused(change).message.replace(" to graph", " of graph")


def test_i15_a_second_graph_under_a_name_names_both_places() -> None:
    registry = hf.Registry()
    hf.StateGraph(State, name="twice", registry=registry)
    with pytest.raises(UsageError, match=r"'twice' is defined twice: by .*test_graph_validation.py:\d+.* and by "):
        hf.StateGraph(State, name="twice", registry=registry)
    for _ in range(2):  # the same place again is a reload
        hf.StateGraph(State, name="again", registry=registry)


class Sub(TypedDict):
    notes: Annotated[list[str], operator.add]
    other: int


class Apart(TypedDict):
    something: str


def own(current: list[str], given: list[str]) -> list[str]:
    return [*current, *given]


class Custom(TypedDict):
    notes: Annotated[list[str], own]


def with_part(state: Any, part: hf.StateGraph[Any], **options: Any) -> hf.StateGraph[Any]:
    made = hf.StateGraph(state, name="whole", registry=part.registry, reduce=options.pop("reduce", None))
    made.subgraph("part", part, **options)
    made.start_at("part")
    made.finish("part")
    return made


def part_of(state: Any) -> hf.StateGraph[Any]:
    made = hf.StateGraph(state, name="small", registry=hf.Registry())
    made.node(nothing)
    made.start_at("nothing")
    made.finish("nothing")
    return made


def test_a_subgraph_whose_changes_cannot_be_told_needs_an_output() -> None:
    with_part(State, part_of(Sub)).check()
    error = refused(with_part(Custom, part_of(Sub)).check)
    assert "subgraph 'part' of graph 'whole' shares the field 'notes', whose reducer own is not one" in error.message
    assert "output=" in error.hint
    with_part(Custom, part_of(Sub), output=lambda state: {"notes": []}).check()
    assert "with reduce=" in refused(with_part(State, part_of(Sub), reduce=lambda state, delta: delta).check).message


def test_a_subgraph_without_common_fields_needs_to_be_told_how_they_go_together() -> None:
    error = refused(with_part(State, part_of(Apart)).check)
    assert "has the state Apart, which shares no field with State" in error.message
    with_part(State, part_of(Apart), input=lambda s: {"something": "x"}, output=lambda s: {}).check()


def test_a_subgraph_is_checked_with_its_graph_and_may_be_the_graph_itself() -> None:
    unfinished = hf.StateGraph(Sub, name="small", registry=hf.Registry())
    assert "graph 'small' has no nodes" in refused(with_part(State, unfinished).check).message
    error = refused(lambda: chain("plan").subgraph("part", 3))  # type: ignore[arg-type]
    assert "the subgraph of node 'part' of graph 'g' is 3, a int" in error.message
    recursive = chain("plan", "write")
    recursive.subgraph("again", recursive)
    recursive.edge("plan", "again")
    recursive.finish("again")
    recursive.check()
    elsewhere = part_of(Sub)
    made = graph()
    made.subgraph("part", elsewhere)
    made.start_at("part")
    made.finish("part")
    assert "of another registry" in refused(made.check).message


def routing(state: State) -> Any:
    return hf.Goto("island") if state["ok"] else hf.Stop()


def test_a_node_whose_code_names_a_route_may_lead_anywhere() -> None:
    """Nobody knows where it goes unless it says so, and a graph that is right must not be refused."""
    made = graph("island")
    made.node(routing)
    made.start_at("routing")
    made.finish("island")
    made.check()
    made = graph("island")
    made.node(goes_to=())(routing)
    made.start_at("routing")
    made.finish("island")
    assert "to node 'island'" in refused(made.check).message
