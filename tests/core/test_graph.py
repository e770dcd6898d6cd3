"""The graph value: what it refuses, what it indexes, and what its signature tells apart."""

from __future__ import annotations

import copy
import gc
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import DagError, UnknownNode, UsageError
from holdfast.core.graph import MAX_NODES, Graph, Node, NodePolicy, known_names
from holdfast.core.retry import Retry


def node(name: str, *parents: str, node_id: str | None = None, **more: object) -> Node:
    return Node(id=node_id or name, name=name, job="work", depends_on=parents, **more)  # type: ignore[arg-type]


def diamond() -> Graph:
    return Graph((node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")))


@st.composite
def dags(draw: st.DrawFn) -> Graph:
    """Graphs whose edges point from an earlier number to a later one, in shuffled definition order."""
    size = draw(st.integers(1, 12))
    nodes = []
    for number in range(size):
        parents = draw(st.sets(st.integers(0, number - 1))) if number else set()
        nodes.append(node(f"n{number}", *(f"n{parent}" for parent in sorted(parents))))
    return Graph(tuple(draw(st.permutations(nodes))))


def test_an_empty_graph_is_refused() -> None:
    with pytest.raises(DagError, match="no nodes"):
        Graph(())


def test_i25_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(DagError, match="named 'a'"):
        Graph((node("a"), node("a", node_id="other")))


def test_two_nodes_of_one_id_are_refused_by_both_names() -> None:
    with pytest.raises(DagError, match=r"'a' and 'b' share the id 'n_1'"):
        Graph((node("a", node_id="n_1"), node("b", node_id="n_1")))


def test_i25_an_unknown_dependency_names_the_node_and_the_nearest_choice() -> None:
    with pytest.raises(DagError) as refused:
        Graph((node("validate"), node("charge", "validte")))
    assert "'charge'" in refused.value.message
    assert "did you mean 'validate'?" in refused.value.hint


def test_i25_a_cycle_is_shown_as_a_path_in_the_order_of_running() -> None:
    with pytest.raises(DagError, match="a -> b -> c -> a"):
        Graph((node("start"), node("a", "c", "start"), node("b", "a"), node("c", "b"), node("after", "c")))


def test_a_node_that_depends_on_itself_is_a_cycle() -> None:
    with pytest.raises(DagError, match="a -> a"):
        Graph((node("a", "a"),))


def test_a_node_runs_a_job_or_a_method_and_not_both() -> None:
    with pytest.raises(DagError, match="both"):
        Node(id="a", name="a", job="j", method="m")
    with pytest.raises(DagError, match="neither"):
        Node(id="a", name="a")


def test_g4_a_node_requires_each_distinct_parent_once_and_an_entry_requires_one() -> None:
    graph = Graph((node("a"), node("b"), node("c", "a", "b", "a")))
    assert (graph.required("a"), graph.required("c")) == (1, 2)
    assert graph.successors("a") == ("c",)
    assert graph.successors("c") == ()
    assert graph.entries == ("a", "b")


def test_an_unknown_node_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNode, match="charge"):
        Graph((node("charge"),)).node("chrage")
    with pytest.raises(UnknownNode):
        diamond().successors("x")


def test_a_node_is_found_by_name_and_by_id() -> None:
    graph = Graph((node("charge", node_id="n_1"),))
    assert graph.find("charge") is graph.find("n_1") is graph.node("n_1")
    with pytest.raises(UnknownNode):
        graph.find("n_2")


def test_i29_descendants_are_all_that_depend_on_a_node_directly_or_not() -> None:
    assert diamond().descendants("a") == ("b", "c", "d")
    assert diamond().descendants("d") == ()


def test_i30_the_path_to_a_node_is_a_shortest_one_from_an_entry() -> None:
    graph = Graph((node("a"), node("b", "a"), node("c", "b"), node("side"), node("d", "c", "side")))
    assert graph.path_from_entry("d") == ("side", "d")
    assert graph.path_from_entry("c") == ("a", "b", "c")
    assert graph.path_from_entry("a") == ("a",)


@given(dags())
def test_the_topological_order_has_every_node_after_its_parents(graph: Graph) -> None:
    position = {node_id: number for number, node_id in enumerate(graph.topological_order)}
    assert len(position) == len(graph)
    assert all(position[parent] < position[each.id] for each in graph.nodes for parent in each.depends_on)


@given(dags(), st.randoms(use_true_random=False))
def test_i31_the_signature_ignores_definition_order(graph: Graph, random: object) -> None:
    shuffled = list(graph.nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Graph(tuple(shuffled)).signature == graph.signature


@pytest.mark.parametrize(
    "changed",
    [
        Node(id="b", name="renamed", job="work", depends_on=("a",)),
        Node(id="b", name="b", job="other", depends_on=("a",)),
        Node(id="b", name="b", method="work", depends_on=("a",)),
        Node(id="b", name="b", job="work"),
        Node(id="b", name="b", job="work", depends_on=("a",), args=b"[]"),
        Node(id="b", name="b", job="work", depends_on=("a",), policy=NodePolicy(retry=Retry(attempts=2))),
        Node(id="b", name="b", job="work", depends_on=("a",), policy=NodePolicy(timeout_seconds=1)),
        Node(id="b", name="b", job="work", depends_on=("a",), policy=NodePolicy(queue="slow")),
    ],
)
def test_i31_the_signature_changes_with_any_part_of_a_node(changed: Node) -> None:
    before, after = Graph((node("a"), node("b", "a"))), Graph((node("a"), changed))
    assert before.signature != after.signature
    assert len(before.signature) == 16
    assert int(before.signature, 16) >= 0


def test_the_signature_is_the_same_in_every_process_and_release() -> None:
    """A stored definition is found again by its signature, so the formula may not drift."""
    assert diamond().signature == "15f1e3c55241c3e3"


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("a", "375af3bab3c62226"),
        ("größe", "82a584ea864d6108"),
        ("a\x7fb", "e3e1352626e2c2de"),
        ('a "quoted"\n\t\x01 one\\', "8830a0a81a3d317d"),
        ("\u2028\U0001f600", "2938b9b19872fd3e"),
    ],
)
def test_the_signature_is_the_same_in_every_release_whatever_a_node_is_called(name: str, signature: str) -> None:
    """And whatever its numbers are: they are written as Python's own JSON has them."""
    policy = NodePolicy(retry=Retry(attempts=3, base=1e-7, cap=1e16), timeout_seconds=0.1)
    assert Graph((Node(id="n", name=name, job="work", args=b"[1]", policy=policy),)).signature == signature


def test_a_graph_cannot_be_changed_but_copied_and_pickled() -> None:
    graph = diamond()
    with pytest.raises(AttributeError):
        graph.nodes = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.by_id["x"] = node("x")  # type: ignore[index]
    assert copy.deepcopy(graph) == pickle.loads(pickle.dumps(graph)) == graph  # noqa: S301 - our own bytes


def test_mermaid_shows_nodes_edges_and_states() -> None:
    text = Graph((node("a"), node('say "<hi>"', "a"))).mermaid({"a": "completed"})
    assert text.splitlines() == [
        "graph TD",
        '    n0["a<br/>completed"]:::completed',
        '    n1["say &quot;&lt;hi&gt;&quot;"]',
        "    n0 --> n1",
        "    classDef completed fill:#e8f5e9,stroke:#43a047",
    ]


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), True, "30"])
def test_i3_a_timeout_that_could_never_elapse_is_refused_with_its_value(seconds: object) -> None:
    with pytest.raises(UsageError, match="timeout="):
        NodePolicy(timeout_seconds=seconds)  # type: ignore[arg-type]


def test_i3_a_policy_refuses_what_is_no_retry_and_no_queue() -> None:
    with pytest.raises(UsageError, match="retry=3"):
        NodePolicy(retry=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="queue=''"):
        NodePolicy(queue="")


def test_choices_are_cut_short_in_a_large_graph() -> None:
    assert known_names("x", [f"name{number}" for number in range(20)]).endswith("and 12 more")
    assert known_names("x", []) == "none is defined"


def _seconds_to_build(size: int) -> float:
    nodes = [node("start")]
    nodes += [node(f"m{number}", "start") for number in range(size)]
    nodes.append(node("end", *(f"m{number}" for number in range(size))))
    gc.collect()
    gc.disable()  # whose work depends on all that the tests before have left
    try:
        began = time.process_time()
        graph = Graph(tuple(nodes))
        assert graph.required("end") == size
        assert graph.signature
        return time.process_time() - began
    finally:
        gc.enable()


def test_building_a_hundred_thousand_nodes_is_linear() -> None:
    """Ten times the nodes may cost about ten times as much; quadratic work would cost a hundred times."""
    small = min(_seconds_to_build(10_000) for _ in range(3))
    assert _seconds_to_build(MAX_NODES - 2) < 40 * small


def test_more_nodes_than_a_run_may_have_are_refused_with_the_way_out() -> None:
    shared = node("same")
    with pytest.raises(DagError, match="100,001 nodes, and a run has at most 100,000") as refused:
        Graph((shared,) * (MAX_NODES + 1))
    assert "several runs" in refused.value.hint


def test_more_dependencies_than_a_run_may_have_are_refused_before_they_are_indexed() -> None:
    """Two fan-outs of a thousand and one in a row would be a million edges."""
    first = tuple(node(f"a{number}") for number in range(1_001))
    parents = tuple(each.id for each in first)
    second = tuple(node(f"b{number}", *parents) for number in range(1_001))
    with pytest.raises(DagError, match=r"1,002,001 dependencies and may have 1,000,000; node 'b0' alone has 1,001"):
        Graph(first + second)


def test_a_drawing_for_a_terminal_goes_level_by_level() -> None:
    assert diamond().ascii() == "1  a\n2  b <- a\n2  c <- a\n3  d <- b, c\n"


def test_a_drawing_shows_states_beside_the_names() -> None:
    drawn = diamond().ascii({"a": "completed", "b": "ready", "d": "blocked (1 of 2)"})
    assert drawn == "1  a (completed)\n2  b (ready) <- a\n2  c <- a\n3  d (blocked (1 of 2)) <- b, c\n"


def fan_out(size: int) -> Graph:
    siblings = [node(f"mutation_{number}", "validate") for number in range(1, size + 1)]
    return Graph((node("validate"), *siblings, node("aggregate", *(each.id for each in siblings))))


def test_a_drawing_collapses_siblings_of_one_job() -> None:
    assert fan_out(200).ascii().splitlines() == [
        "1  validate",
        "2  mutation_1 … mutation_200 (200 nodes) <- validate",
        "3  aggregate <- mutation_1 … mutation_200",
    ]


def test_a_drawing_counts_the_states_of_collapsed_siblings() -> None:
    states = {f"mutation_{number}": "completed" if number <= 150 else "ready" for number in range(1, 200)}
    states["mutation_150"] = "blocked (1 of 2)"
    assert "mutation_1 … mutation_200 (200 nodes: 149 completed, 1 blocked, 49 ready, 1 not reached)" in fan_out(
        200
    ).ascii(states)


def test_a_drawing_keeps_a_few_siblings_and_different_ones_apart() -> None:
    assert len(fan_out(3).ascii().splitlines()) == 5
    methods = [Node(id=f"m{n}", name=f"m{n}", method="go") for n in range(9)]
    assert len(Graph(tuple(methods)).ascii().splitlines()) == 9


def test_a_drawing_cuts_a_long_list_of_parents() -> None:
    parents = [Node(id=f"m{n}", name=f"m{n}", method="go") for n in range(12)]
    drawn = Graph((*parents, node("end", *(each.id for each in parents)))).ascii()
    assert drawn.endswith("end <- m0, m1, m2, m3, m4, m5, m6, m7 and 4 more\n")


def test_a_drawing_of_a_deep_graph_stays_narrow() -> None:
    chain = [node("s0"), *(node(f"s{n}", f"s{n - 1}") for n in range(1, 3_000))]
    lines = Graph(tuple(chain)).ascii().splitlines()
    assert lines[0] == "   1  s0"
    assert lines[-1] == "3000  s2999 <- s2998"


def test_a_drawing_cannot_move_the_cursor() -> None:
    assert Graph((node("a\x1b[2J\nb"),)).ascii({"a\x1b[2J\nb": "odd\r"}) == "1  a?[2J?b (odd?)\n"


@given(dags())
def test_a_drawing_has_every_node_below_its_parents(graph: Graph) -> None:
    lines = graph.ascii().splitlines()
    level = {line.split()[1]: int(line.split()[0]) for line in lines if "…" not in line}
    for each in graph.nodes:
        for parent in each.depends_on:
            if {each.name, parent} <= level.keys():
                assert level[parent] < level[each.name]
