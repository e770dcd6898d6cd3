"""A graph as its author writes it, and what the engine makes of what nodes return."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pytest

import holdfast as hf
from holdfast.authoring.startable import resolve_start
from holdfast.authoring.state_code import BoundGraph
from holdfast.core.codec import DEFAULT_CODECS, MSGPACK, Codecs
from holdfast.core.errors import (
    ConflictingWrites,
    GraphError,
    PayloadRefused,
    PayloadTooLarge,
    UnknownWorkflow,
    UsageError,
)
from holdfast.core.state_outcomes import NOTHING, Outcome, Route, decode_outcome, encode_outcome, split
from holdfast.runtime.definitions import RegistryDefinitions

registry = hf.Registry()


class State(TypedDict):
    question: str
    notes: Annotated[list[str], operator.add]
    count: Annotated[int, hf.reducers.counter]
    ok: NotRequired[bool]


g = hf.StateGraph(
    State, name="research", registry=registry, max_concurrent=3, backpressure_seconds=1.5, queue="thinking"
)


@g.node
def plan(state: State) -> dict[str, Any]:
    return {"notes": ["planned"]}


@g.node(
    retry=hf.Retry(attempts=3),
    recordable=True,
    requires_idempotency=True,
    idempotency_key=lambda state: state["question"],
    label="found",
    timeout=2.5,
    queue="web",
)
async def research(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    return {"notes": [await ctx.record("search", {"q": state["question"]}, lambda: "page")]}


@g.node(goes_to=["research"])
def verify(state: State) -> Any:
    return {"ok": True}


@g.node(timeout=None)
def write(state: State) -> None:
    return None


g.start_at("plan")
g.edge("plan", "research")
g.edge("plan", "verify")
g.edge("research", "write", when=lambda state: state.get("ok", True))
g.edge("research", "plan", when=lambda state: state["count"] < 2)
g.edge("verify", "plan", when=lambda state: not state["ok"])
g.finish("write", "verify")


def bound(graph: hf.StateGraph[Any] = g, codecs: Codecs = DEFAULT_CODECS, limit: int = 10_000) -> BoundGraph:
    return BoundGraph(graph, codecs=codecs, limit=limit, registry=graph.registry)


def fields(**values: Any) -> dict[str, bytes]:
    return {name: msgspec.json.encode(value, order="sorted") for name, value in values.items()}


# -- what a graph is


def test_a_decorated_function_stays_the_plain_function() -> None:
    assert plan({"question": "q", "notes": [], "count": 0}) == {"notes": ["planned"]}
    assert g.nodes["plan"].fn is plan


def test_the_machine_sees_the_shape_that_the_author_gave() -> None:
    code = bound()
    assert (code.name, list(code.entries), code.finish) == ("research", ["plan"], frozenset({"write", "verify"}))
    assert (code.max_concurrent, code.queue_depth, code.max_steps) == (3, 1024, 10_000)
    assert (code.backpressure, code.keep_checkpoints) == (1_500_000, None)
    found = code.nodes["research"]
    assert (found.timeout, found.queue, found.label, found.subgraph) == (2_500_000, "web", "found", False)
    assert code.nodes["plan"].timeout == 30_000_000
    assert code.nodes["write"].timeout is None


def test_a_worker_finds_the_function_and_its_policies() -> None:
    node = bound().definition("research")
    assert (node.is_async, node.takes_context, node.policy.retry.attempts) == (True, True, 3)
    assert (node.effects.recordable, node.effects.requires_idempotency) == (True, True)
    assert not bound().definition("plan").takes_context
    with pytest.raises(GraphError, match=r"a run names the node 'gone', which graph 'research' does not have"):
        bound().definition("gone")


def test_the_key_of_an_author_is_a_text_and_what_it_raises_is_told() -> None:
    made = hf.StateGraph(State, name="keys", registry=hf.Registry())
    for name, key in (("number", lambda state: 7), ("raises", lambda state: state["gone"])):
        made.node(idempotency_key=key, name=name)(write)  # type: ignore[arg-type,return-value]
    made.start_at("number", "raises")
    made.finish("number", "raises")
    assert bound().own_key("research", {"question": "why"}) == "why"
    assert bound().own_key("plan", {}) is None
    with pytest.raises(GraphError, match=r"idempotency_key of node 'number' of graph 'keys' returned a int"):
        bound(made).own_key("number", {})
    with pytest.raises(
        GraphError, match=r"of node 'raises' of graph 'keys' raised KeyError: 'gone' \(test_authoring.py"
    ):
        bound(made).own_key("raises", {})


def test_the_names_that_a_worker_serves_are_the_graphs_and_its_nodes() -> None:
    definitions = RegistryDefinitions(registry)
    assert {"research", "research.plan", "research.research", "research.verify", "research.write"} <= {
        *definitions.known_actions()
    }
    assert definitions.queues() == {"thinking", "web"}
    code = definitions.state_graph("research")
    assert code is not None
    assert code is definitions.state_graph("research")
    assert definitions.state_graph("nothing") is None


def test_i15_a_graph_is_found_under_its_aliases_and_a_node_declared_later_is_served() -> None:
    own = hf.Registry()
    definitions = RegistryDefinitions(own)
    made = hf.StateGraph(State, name="new", aliases=("old",), registry=own)
    assert definitions.known_actions() == ("new", "old")
    made.node(write)
    assert definitions.known_actions() == ("new", "new.write", "old", "old.write")
    made.start_at("write")
    made.finish("write")
    code = definitions.state_graph("old")
    assert code is not None
    assert code.name == "old"


# -- starting


def test_a_start_is_the_graph_with_its_state_as_input() -> None:
    spec = resolve_start(g, ({"question": "why"},), registry)
    assert (spec.workflow, spec.model, spec.source, spec.queue) == ("research", "graph", "graph", "thinking")
    assert spec.signature == g.signature
    assert spec.input == b'{"count":0,"notes":[],"question":"why"}'
    assert bound().initial(spec.input, spec.codec) == fields(question="why", notes=[], count=0)
    assert resolve_start("research", ({"question": "why"},), registry) == spec


def test_i12_equal_states_are_the_same_input_whatever_their_order_and_codec() -> None:
    one = resolve_start(g, ({"question": "why", "count": 0},), registry)
    other = resolve_start(g, ({"notes": [], "question": "why"},), registry, codecs=Codecs(MSGPACK))
    assert one.input_digest == other.input_digest
    assert one.input != other.input
    assert one.input_digest != resolve_start(g, ({"question": "how"},), registry).input_digest


def test_i14_a_state_goes_through_the_engines_codec_and_comes_back_canonical() -> None:
    packed = Codecs(MSGPACK)
    spec = resolve_start(g, ({"question": "é", "notes": ["x"]},), registry, codecs=packed)
    code = bound(codecs=packed)
    state = code.initial(spec.input, spec.codec)
    assert state == fields(question="é", notes=["x"], count=0)
    stored = code.seal(b'{"a":[1,2.0,null],"b":"x"}')
    assert not stored.startswith(b"{")
    assert code.unseal(stored) == b'{"a":[1,2.0,null],"b":"x"}'
    assert bound().unseal(stored) == b'{"a":[1,2.0,null],"b":"x"}'
    assert code.read_result(code.result(state)) == {"question": "é", "notes": ["x"], "count": 0}
    assert bound().read_result(bound().result(state)) == {"question": "é", "notes": ["x"], "count": 0}


@pytest.mark.parametrize(
    ("thing", "args", "error", "told"),
    [
        (g, (), GraphError, "graph 'research' was started without a state"),
        (g, ({}, {}), GraphError, "graph 'research' was started with 2 arguments, and takes one"),
        (g, ("why",), GraphError, "was started with is 'why', a str, where a State is due"),
        (g, ({"qestion": 1},), GraphError, "the state that graph 'research' was started with has 'qestion'"),
        (g, ({"question": 1},), PayloadRefused, "field 'question' of the state that graph 'research' was started with"),
        (g, ({"question": "x" * 300},), PayloadTooLarge, "is 302 bytes, over the limit of 300"),
        (g, ({"question": "x" * 290},), PayloadTooLarge, "was started with is 326 bytes, over the limit of 300"),
        (hf.StateGraph, ({},), GraphError, "the class hf.StateGraph itself was started"),
    ],
)  # fmt: skip
def test_a_start_that_cannot_be_is_refused_with_the_fix(
    thing: object, args: tuple[Any, ...], error: type[UsageError], told: str
) -> None:
    with pytest.raises(error) as caught:
        resolve_start(thing, args, registry, limit=300)
    assert told in caught.value.message


def test_a_graph_of_another_registry_and_one_that_is_not_in_order_are_not_started() -> None:
    with pytest.raises(UnknownWorkflow, match=r"'research' is not in this engine's registry"):
        resolve_start(g, ({},), hf.Registry())
    own = hf.Registry()
    unfinished = hf.StateGraph(State, name="unfinished", registry=own)
    with pytest.raises(GraphError, match=r"graph 'unfinished' has no nodes"):
        resolve_start(unfinished, ({},), own)


# -- merging and going on


def test_i41_deltas_are_merged_in_the_order_given() -> None:
    state = fields(question="why", notes=["a"], count=1)
    merged = bound().merge(
        state, [("plan", fields(notes=["b"], count=2)), ("research", fields(notes=["c"], ok=False)), ("write", {})]
    )
    assert merged == fields(question="why", notes=["a", "b", "c"], count=3, ok=False)
    assert state == fields(question="why", notes=["a"], count=1)


def test_i41_two_nodes_that_write_a_field_without_reducer_conflict() -> None:
    with pytest.raises(ConflictingWrites, match=r"nodes 'plan' and 'write' wrote field 'question' of State"):
        bound().merge({}, [("plan", fields(question="a")), ("write", fields(question="b"))])


def test_i40_edges_whose_condition_holds_are_taken_with_their_numbers_in_declared_order() -> None:
    code = bound()
    assert code.taken("plan", fields(question="x")) == [(0, "research"), (1, "verify")]
    assert code.taken("research", fields(count=1)) == [(0, "write"), (1, "plan")]
    assert code.taken("research", fields(count=1, ok=False)) == [(1, "plan")]
    assert code.taken("write", fields(count=1)) == []


def test_a_condition_that_raises_is_told_with_its_edge_and_line() -> None:
    with pytest.raises(
        GraphError,
        match=r"when of the edge from 'verify' to 'plan' in graph 'research' raised KeyError: 'ok' \(test_auth",
    ):
        bound().taken("verify", fields(count=1))


def test_i40_a_condition_that_gives_a_coroutine_does_not_hold_but_is_told() -> None:
    async def no(state: Any) -> bool:
        return False

    made = hf.StateGraph(State, name="awaited", registry=hf.Registry())
    made.node(write)
    made.start_at("write")
    made.edge("write", "write", when=lambda state: no(state))
    made.finish("write")
    with pytest.raises(
        GraphError, match=r"when of the edge from 'write' to 'write' .* it gave a coroutine, which nobody"
    ):
        bound(made).taken("write", fields(count=1))


def reduced(reduce: Callable[[Any, Any], Any]) -> BoundGraph:
    made = hf.StateGraph(State, name="reduced", registry=hf.Registry(), reduce=reduce)
    made.node(write)
    made.start_at("write")
    made.finish("write")
    return bound(made)


def test_one_function_may_take_the_place_of_the_reducers() -> None:
    code = reduced(lambda state, delta: {"count": state["count"] * 10 + delta["count"]})
    merged = code.merge(fields(question="x", count=1), [("a", fields(count=2)), ("b", fields(count=3)), ("c", {})])
    assert merged == fields(question="x", count=123)
    assert reduced(lambda state, delta: {**state, **delta}).merge(
        fields(question="x", notes=["a"]), [("a", fields(notes=["b"]))]
    ) == fields(question="x", notes=["b"])


def test_what_the_one_function_raises_or_returns_wrongly_is_told() -> None:
    with pytest.raises(GraphError, match=r"reduce of graph 'reduced' raised KeyError, merging what node 'a' gave"):
        reduced(lambda state, delta: state["gone"]).merge({}, [("a", fields(count=1))])
    with pytest.raises(GraphError, match=r"reduce of graph 'reduced' returned a NoneType"):
        reduced(lambda state, delta: None).merge({}, [("a", fields(count=1))])
    with pytest.raises(GraphError, match=r"what reduce of graph 'reduced' returned has 'cnt'"):
        reduced(lambda state, delta: {"cnt": 1}).merge({}, [("a", fields(count=1))])


# -- what nodes return


def test_i41_a_sent_part_comes_before_the_merged_state_and_every_copy_is_fresh() -> None:
    code = bound()
    state = fields(question="why", notes=["a"], count=0)
    first = code.state_for(state, {"question": msgspec.Raw(b'"mine"')})
    assert first == {"question": "mine", "notes": ["a"], "count": 0}
    first["notes"].append("in place")
    assert code.state_for(state)["notes"] == ["a"]


@pytest.mark.parametrize(
    ("node", "returned", "expected"),
    [
        ("plan", None, NOTHING),
        ("plan", {}, NOTHING),
        ("plan", {"notes": ["x"]}, Outcome(delta={"notes": msgspec.Raw(b'["x"]')})),
        ("plan", hf.Goto("write"), Outcome(route=(Route("write"),))),
        ("plan", hf.Goto("write", {"count": 1}), Outcome(delta={"count": msgspec.Raw(b"1")}, route=(Route("write"),))),
        ("plan", hf.Stop(), Outcome(stop=True)),
        ("plan", hf.Stop({"ok": True}), Outcome(delta={"ok": msgspec.Raw(b"true")}, stop=True)),
        ("plan", hf.Many(["write", "verify"]), Outcome(route=(Route("write"), Route("verify")))),
        ("plan", hf.Many([]), Outcome(route=())),
        ("plan", [], Outcome(route=())),
        (
            "plan",
            hf.Many([hf.Goto("write", {"ok": True}), hf.Send("research", {"question": "x"})], {"count": 1}),
            Outcome(
                delta={"count": msgspec.Raw(b"1"), "ok": msgspec.Raw(b"true")},
                route=(Route("write"), Route("research", {"question": msgspec.Raw(b'"x"')})),
            ),
        ),
        (
            "plan",
            [hf.Send("research", {"question": "a"}), hf.Send("research", {})],
            Outcome(route=(Route("research", {"question": msgspec.Raw(b'"a"')}), Route("research", {}))),
        ),
        ("verify", hf.Send("research", {}), Outcome(route=(Route("research", {}),))),
    ],
)  # fmt: skip
def test_i40_what_a_node_returns_is_a_delta_and_perhaps_a_way(node: str, returned: object, expected: Outcome) -> None:
    found = bound().outcome(node, returned)
    assert encode_outcome(found) == encode_outcome(expected)
    assert decode_outcome(encode_outcome(found)).fields == expected.fields


async def not_awaited() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("node", "make", "error", "told"),
    [
        ("plan", lambda: {"note": 1}, GraphError, "the delta of node 'plan' of graph 'research' has 'note', which"),
        ("plan", lambda: {"notes": "x"}, PayloadRefused, "field 'notes' of the delta of node 'plan' of graph"),
        ("plan", lambda: hf.Goto("wrte"), GraphError, "what node 'plan' returned names the node 'wrte'"),
        ("plan", lambda: "write", GraphError, "node 'plan' of graph 'research' returned a str"),
        ("plan", lambda: ["write"], GraphError, "returned a list with a str"),
        ("plan", not_awaited, GraphError, "a coroutine"),
        ("plan", lambda: hf.Send("write", {"it": 1}), GraphError, "of graph 'research' sends to 'write' has 'it'"),
        ("verify", lambda: hf.Goto("write"), GraphError, "goes to 'write', and declares goes_to=['research']"),
        (
            "plan",
            lambda: hf.Many([hf.Goto("write", {"ok": True})], {"ok": False}),
            GraphError,
            "the delta of node 'plan' of graph 'research' has the field 'ok' twice",
        ),
        ("plan", lambda: {"notes": ["x" * 20_000]}, PayloadTooLarge, "over the limit of 10,000"),
    ],
)  # fmt: skip
def test_what_a_node_may_not_return_is_refused_with_the_fix(
    node: str, make: Callable[[], object], error: type[UsageError], told: str
) -> None:
    with pytest.raises(error) as caught:
        bound().outcome(node, make())
    assert told in caught.value.message


def test_a_node_that_returns_the_state_it_was_given_is_refused() -> None:
    state = {"question": "x", "notes": ["a"]}
    with pytest.raises(GraphError, match=r"node 'plan' of graph 'research' returned the whole state"):
        bound().outcome("plan", state, state)

    class Record(msgspec.Struct):
        n: int = 0

    made = hf.StateGraph(Record, name="records", registry=hf.Registry())
    made.node(write)
    made.start_at("write")
    made.finish("write")
    with pytest.raises(GraphError, match=r"returned the whole state"):
        bound(made).outcome("write", Record(n=1))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: hf.Goto(plan), "hf.Goto was given the function plan as the node"),
        (lambda: hf.Goto(""), "hf.Goto was given '', a str, as the node"),
        (lambda: hf.Goto("write", 3), "hf.Goto('write', …) was given a int, as its delta"),
        (lambda: hf.Many("write"), "hf.Many was given 'write', a str"),
        (lambda: hf.Many([3]), "hf.Many was given 3, a int, as one of its targets"),
        (lambda: hf.Many(["write"], ["x"]), "hf.Many(…) was given a list, as its delta"),
        (lambda: hf.Send("write", None), "hf.Send('write', …) was given a NoneType"),
        (lambda: hf.Send("write", "text"), "hf.Send('write', …) was given a str, as the state"),
        (lambda: hf.Stop("done"), "hf.Stop(…) was given a str, as its delta"),
    ],
)
def test_a_route_is_checked_when_it_is_made(make: Callable[[], object], told: str) -> None:
    with pytest.raises(GraphError) as caught:
        make()
    assert told in caught.value.message


# -- subgraphs


class Inner(TypedDict):
    notes: Annotated[list[str], operator.add]
    count: Annotated[int, hf.reducers.counter]
    question: str
    own: NotRequired[str]


def whole(**options: Any) -> BoundGraph:
    own = hf.Registry()
    inner = hf.StateGraph(Inner, name="inner", registry=own)
    inner.node(write)
    inner.start_at("write")
    inner.finish("write")
    made = hf.StateGraph(State, name="outer", registry=own)
    made.subgraph("part", inner, **options)
    made.start_at("part")
    made.finish("part")
    return bound(made)


def test_a_subgraph_is_given_the_common_fields_and_gives_back_how_it_changed_them() -> None:
    code = whole()
    assert code.nodes["part"].subgraph
    state = fields(question="why", notes=["a"], count=3, ok=True)
    assert code.subgraph_input("part", state) == ("inner", {"question": "why", "notes": ["a"], "count": 3})
    ended = fields(question="how", notes=["a", "b", "c"], count=5, own="x")
    assert code.subgraph_outcome("part", state, ended).fields == fields(question="how", notes=["b", "c"], count=2)
    same = fields(question="why", notes=["a"], count=3)
    assert code.subgraph_outcome("part", state, same).fields == {}


def test_a_subgraph_that_rewrites_what_its_parent_had_must_say_what_comes_back() -> None:
    with pytest.raises(GraphError, match=r"subgraph 'part' of graph 'outer' changed what field 'notes' of State held"):
        whole().subgraph_outcome("part", fields(notes=["a"]), fields(notes=["b", "c"]))


def test_an_author_may_say_what_a_subgraph_is_given_and_what_comes_back() -> None:
    code = whole(
        input=lambda state: {"question": state["question"].upper()}, output=lambda state: {"notes": [state["own"]]}
    )
    assert code.subgraph_input("part", fields(question="why")) == ("inner", {"question": "WHY"})
    assert code.subgraph_outcome("part", {}, fields(own="x")).fields == fields(notes=["x"])
    with pytest.raises(GraphError, match=r"input of subgraph 'part' of graph 'outer' raised KeyError"):
        code.subgraph_input("part", {})
    with pytest.raises(GraphError, match=r"the output of subgraph 'part' of graph 'outer' has 'own'"):
        whole(output=lambda state: state).subgraph_outcome("part", {}, fields(own="x"))


# -- for people and tools


def test_a_flowchart_shows_every_way_and_marks_the_taken_one() -> None:
    drawn = g.mermaid(states={"plan": "completed"}, taken={("", "plan"), ("plan", "verify"), ("write", "plan")})
    assert drawn == (
        "graph TD\n"
        "    start((start))\n"
        '    n0["plan<br/>completed"]:::completed\n'
        '    n1["research"]\n'
        '    n2["verify"]\n'
        '    n3["write"]\n'
        "    finish((finish))\n"
        "    start --> n0\n"
        "    n0 --> n1\n"
        "    n0 --> n2\n"
        '    n1 -.->|"when"| n3\n'
        '    n1 -.->|"when"| n0\n'
        '    n2 -.->|"when"| n0\n'
        '    n2 -.->|"goes to"| n1\n'
        "    n3 --> finish\n"
        "    n2 --> finish\n"
        '    n3 -.->|"went to"| n0\n'
        "    linkStyle 0,2,9 stroke:#1e88e5,stroke-width:3px\n"
        "    classDef completed fill:#e8f5e9,stroke:#43a047\n"
    )


def test_lines_of_text_show_where_each_node_leads() -> None:
    assert g.ascii() == (
        "plan (start) -> research, verify\n"
        "research -> write if when, plan if when\n"
        "verify -> plan if when, research by itself, finish\n"
        "write -> finish\n"
    )


def test_a_signature_tells_graphs_apart_by_their_shape_and_not_by_their_options() -> None:
    def made(**options: Any) -> hf.StateGraph[State]:
        graph = hf.StateGraph(State, name="same", registry=hf.Registry(), **options)
        graph.node(write)
        return graph

    one, other = made(), made(max_concurrent=99, default_timeout=1.0)
    assert one.signature == other.signature
    assert msgspec.json.decode(msgspec.json.encode(one.document())) == one.document()
    before = one.signature
    one.edge("write", "write")
    assert one.signature != before


def test_what_is_stored_of_an_outcome_is_split_again() -> None:
    assert split(b'{"a":1,"b":[2]}') == {"a": b"1", "b": b"[2]"}


def test_i15_a_graph_without_a_name_is_called_like_its_state() -> None:
    class Errand(TypedDict):
        done: bool

    assert hf.StateGraph(Errand, registry=hf.Registry()).name == "Errand"
