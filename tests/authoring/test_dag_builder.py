"""DagBuilder: what depends on what, ids that repeat, policies that freeze, and what is refused with which fix."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from datetime import date
from typing import Any

import pytest

from holdfast.authoring.actions import action
from holdfast.authoring.dag_builder import BuiltDag, BuiltNode, DagBuilder
from holdfast.authoring.dag_nodes import PREVIOUS
from holdfast.authoring.registry import Registry
from holdfast.core.dag_document import frozen, graph_of_nodes
from holdfast.core.dag_document_reading import parse_document
from holdfast.core.errors import DagError, PayloadRefused, PayloadTooLarge, UsageError
from holdfast.core.graph import MAX_NODES
from holdfast.core.retry import Retry

registry = Registry()


@action(registry=registry, retry=Retry(attempts=4, base=2, retry_on=(KeyError,)), timeout=9, queue="slow")
async def process(mutation_id: int, day: date | None = None) -> None: ...


@action(registry=registry, aliases=("summarise",))
async def aggregate(user_id: int = 7, **more: int) -> None: ...


@action(registry=registry)
def notify() -> None: ...


def builder(name: str = "mutations") -> DagBuilder:
    return DagBuilder(name, registry=registry)


def edges(built: BuiltDag) -> dict[str, list[str]]:
    return {node.name: [built.graph.by_id[parent].name for parent in node.depends_on] for node in built.graph.nodes}


def fan(w: DagBuilder, count: int = 2, prefix: str = "m", **more: Any) -> list[BuiltNode]:
    return w.fan_out(
        range(count), name=lambda i: f"{prefix}{i}", job=process, args=lambda i: {"mutation_id": i}, **more
    )


# --- dependencies ------------------------------------------------------------------------------------------------


def test_i27_a_node_follows_the_one_added_before_unless_it_says_otherwise() -> None:
    w = builder()
    w.node("a", job=notify)
    w.node("b", job=notify)
    w.node("c", job=notify, depends_on=None)
    d = w.node("d", job=notify, depends_on="a")
    w.node("e", job=notify, depends_on=["c", d])
    w.node("f", job=notify, depends_on=[])
    w.node("g", job=notify)
    assert edges(w.build()) == {"a": [], "b": ["a"], "c": [], "d": ["a"], "e": ["c", "d"], "f": [], "g": ["f"]}


def test_i27_siblings_of_a_fan_out_share_what_they_follow_and_are_followed_together() -> None:
    w = builder()
    w.node("start", job=notify)
    handles = fan(w)
    w.node("end", job=notify)
    assert [handle.name for handle in handles] == ["m0", "m1"]
    assert edges(w.build()) == {"start": [], "m0": ["start"], "m1": ["start"], "end": ["m0", "m1"]}


def test_i27_a_fan_out_may_say_what_its_siblings_follow() -> None:
    w = builder()
    first = w.node("first", job=notify)
    w.node("second", job=notify)
    fan(w, prefix="by_handle", depends_on=first)
    fan(w, prefix="entry", depends_on=None)
    fan(w, 1, prefix="all", depends_on=["second", PREVIOUS])
    drawn = edges(w.build())
    assert drawn["by_handle1"] == ["first"]
    assert drawn["entry1"] == []
    assert drawn["all0"] == ["second", "entry0", "entry1"]


def test_a_fan_out_in_a_fan_out_follows_every_one_of_the_first() -> None:
    w = builder()
    fan(w, prefix="a")
    fan(w, prefix="b")
    assert edges(w.build()) == {"a0": [], "a1": [], "b0": ["a0", "a1"], "b1": ["a0", "a1"]}


def test_a_fan_out_of_nothing_changes_nothing() -> None:
    w = builder()
    w.node("start", job=notify)
    assert fan(w, 0) == []
    w.node("end", job=notify)
    assert edges(w.build()) == {"start": [], "end": ["start"]}


def test_i27_a_fan_out_of_nothing_stands_for_what_its_nodes_would_have_waited_for() -> None:
    """Else who waits for all of none would begin beside what was to come before them."""
    w = builder()
    w.node("start", job=notify)
    w.node("load", job=notify)
    w.node("end", job=notify, depends_on=fan(w, 0))
    w.node("report", job=notify, depends_on=fan(w, 0, depends_on="start"))
    w.node("entry", job=notify, depends_on=fan(w, 0, depends_on=None))
    w.node("own", job=notify, depends_on=[])
    expected = {"start": [], "load": ["start"], "end": ["load"], "report": ["start"], "entry": [], "own": []}
    assert edges(w.build()) == expected


def test_i27_previous_works_in_depends_on_and_is_never_stored() -> None:
    w = builder()
    w.node("a", job=notify, depends_on=PREVIOUS)  # nothing came before: an entry point
    w.node("b", job=notify, depends_on=None)
    w.node("c", job=notify, depends_on=["a", PREVIOUS])
    built = w.build()
    assert edges(built) == {"a": [], "b": [], "c": ["a", "b"]}
    assert b"previous" not in built.nodes_json.lower()
    assert "previous" not in built.to_json().lower()


def test_a_parent_given_twice_is_one_parent() -> None:
    w = builder()
    a = w.node("a", job=notify)
    w.node("b", job=notify, depends_on=["a", a, PREVIOUS])
    assert edges(w.build())["b"] == ["a"]


# --- identity ----------------------------------------------------------------------------------------------------


def test_i27_ids_are_n_and_eight_hex_digits_and_the_same_in_every_build() -> None:
    def built() -> BuiltDag:
        w = builder()
        w.node("start", job=notify)
        fan(w, 50)
        return w.build()

    first, second = built(), built()
    assert first == second
    assert first.dag_signature() == second.dag_signature()
    assert first.nodes_json == second.nodes_json
    assert all(re.fullmatch("n_[0-9a-f]{8}", node.id) for node in first.graph.nodes)


def test_ids_differ_between_builders_of_different_names() -> None:
    one, other = builder("one"), builder("other")
    assert one.node("a", job=notify).id != other.node("a", job=notify).id


def test_i27_ids_are_unique_where_hashes_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among 100,000 names two that share eight digits are to be expected."""
    monkeypatch.setattr("holdfast.authoring.dag_builder.hashed", lambda *parts: f"{len(parts):08x}{parts}")
    w = builder()
    assert [w.node(name, job=notify).id for name in ("a", "b")] == ["n_00000002", "n_00000003"]


def test_a_handle_shows_its_id_and_name() -> None:
    handle = builder().node("a", job=notify)
    assert (handle.name, handle.id[:2]) == ("a", "n_")
    assert repr(handle) == f"BuiltNode(id={handle.id!r}, name='a')"


# --- jobs, arguments, policies -----------------------------------------------------------------------------------


def test_a_job_is_an_action_or_its_name_or_its_alias() -> None:
    w = builder()
    w.node("a", job=aggregate)
    w.node("b", job="aggregate")
    w.node("c", job="summarise")
    assert [node.job for node in w.build().graph.nodes] == ["aggregate"] * 3


def test_arguments_are_encoded_by_name_in_the_order_of_the_signature() -> None:
    w = builder()
    w.node("a", job=process, args={"day": date(2031, 5, 4), "mutation_id": 1})
    w.node("b", job=aggregate, args={"z": 1, "y": 2, "user_id": 3})
    w.node("c", job=notify, args={})
    a, b, c = w.build().graph.nodes
    assert a.args == b'[[],{"mutation_id":1,"day":"2031-05-04"}]'
    assert b.args == b'[[],{"user_id":3,"y":2,"z":1}]'
    assert c.args is None
    assert process.call.decode_call(a.args, "json") == ((), {"mutation_id": 1, "day": date(2031, 5, 4)})


def test_the_arguments_of_a_fan_out_may_be_the_same_for_all() -> None:
    w = builder()
    w.fan_out(["ab", "c"], name=str, job=aggregate, args={"user_id": 1})
    assert {node.args for node in w.build().graph.nodes} == {b'[[],{"user_id":1}]'}


def test_arguments_changed_after_adding_change_nothing() -> None:
    w, args = builder(), {"user_id": 1}
    w.node("a", job=aggregate, args=args)
    args["user_id"] = 2
    assert w.build().graph.nodes[0].args == b'[[],{"user_id":1}]'


def test_policies_are_the_actions_with_what_is_given_on_top_as_numbers() -> None:
    w = builder()
    w.node("a", job=process, args={"mutation_id": 1})
    w.node("b", job=process, args={"mutation_id": 1}, retry=Retry(attempts=2, base=3, cap=9), timeout=None, queue="q")
    w.node("c", job=process.options(timeout=1), args={"mutation_id": 1})
    a, b, c = (node.policy for node in w.build().graph.nodes)
    assert (a.retry, a.timeout_seconds, a.queue) == (Retry(attempts=4, base=2.0), 9.0, "slow")
    assert (b.retry, b.timeout_seconds, b.queue) == (Retry(attempts=2, base=3.0, cap=9.0), None, "q")
    assert c.timeout_seconds == 1.0


def test_nodes_of_one_policy_share_its_value() -> None:
    w = builder()
    fan(w, 3, timeout=5)
    w.node("same", job=process, args={"mutation_id": 9}, timeout=5)
    assert len({id(node.policy) for node in w.build().graph.nodes}) == 1


def test_a_retry_on_that_is_the_actions_own_is_welcome() -> None:
    w = builder()
    w.node("a", job=process, args={"mutation_id": 1}, retry=replace(process.policy.retry, attempts=9))
    assert w.build().graph.nodes[0].policy.retry == Retry(attempts=9, base=2.0)


# --- what is built -----------------------------------------------------------------------------------------------


def test_i27_what_is_built_is_frozen_and_stored_as_it_is() -> None:
    w = builder()
    fan(w)
    built = w.build()
    assert (built.name, built.on_failure, len(built)) == ("mutations", "pause", 2)
    assert repr(built) == "<BuiltDag mutations of 2 nodes>"
    assert frozen(built.graph) is built.graph
    assert graph_of_nodes(built.nodes_json) == built.graph
    assert parse_document(built.to_json()) == (built.graph, built.dag_signature())
    assert json.loads(built.to_json())["frozen_at"] is None
    assert "m0" in built.mermaid()
    assert "m0" in built.ascii()
    with pytest.raises(FrozenInstanceError):
        built.name = "other"  # type: ignore[misc]


def test_a_builder_can_be_built_and_added_to_and_built_again() -> None:
    w = DagBuilder("grows", on_failure="skip", registry=registry)
    w.node("a", job=notify)
    first = w.build()
    w.node("b", job=notify)
    second = w.build()
    assert (len(first), len(second), len(w)) == (1, 2, 2)
    assert first == DagBuilder.build(_only_a())
    assert second.on_failure == "skip"
    assert repr(w) == "<DagBuilder grows of 2 nodes>"


def _only_a() -> DagBuilder:
    w = DagBuilder("grows", on_failure="skip", registry=registry)
    w.node("a", job=notify)
    return w


@pytest.mark.timing
def test_a_hundred_thousand_nodes_are_built_in_seconds() -> None:
    began = time.process_time()
    w = builder()
    fan(w, MAX_NODES)
    assert len(w.build()) == MAX_NODES
    assert time.process_time() - began < 10


# --- what is refused ---------------------------------------------------------------------------------------------

Wrong = Callable[[DagBuilder], object]


def node(name: Any = "b", **options: Any) -> Wrong:
    return lambda w: w.node(name, **{"job": notify, **options})


def fan_out(items: Any, **options: Any) -> Wrong:
    return lambda w: w.fan_out(items, **{"job": notify, "name": str, **options})


def foreign(w: DagBuilder) -> object:
    return w.node("b", job=notify, depends_on=builder("other").node("x", job=notify))


ITSELF = "node 'b' depends on itself"
NOT_YET = "node 'b' depends on 'c', and there is no such node yet.*define it first"
FOREIGN = "node 'b' depends on 'x', which is a node of another builder .*DagBuilder other"
UNCALLABLE = "node 'b': action process cannot be called like this"
OWN_RETRY = Retry(retry_on=KeyError)


def wrong_calls() -> dict[str, tuple[type[UsageError], str, Wrong]]:
    return {
        "a name used twice": (DagError, "has a node 'a' already", node("a")),
        "an empty name": (UsageError, "the name '' of a node of DAG 'mutations'", node("")),
        "a name that is no text": (UsageError, "the name 7 of", node(7)),
        "a dependency that is not there yet": (DagError, NOT_YET, node(depends_on="c")),
        "a misspelt dependency": (DagError, "did you mean 'alpha'", node(depends_on="alhpa")),
        "itself": (DagError, ITSELF, node(depends_on="b")),
        "a handle of another builder": (DagError, FOREIGN, foreign),
        "an odd dependency": (DagError, "depends_on holds 7, a int", node(depends_on=7)),
        "odd dependencies": (DagError, "depends_on holds None", node(depends_on=["a", None])),
        "bytes": (DagError, "depends_on holds b'a'", node(depends_on=b"a")),
        "an unknown job": (DagError, "node 'b': no action is registered as 'proces'.*'process'", node(job="proces")),
        "a function for a job": (DagError, "node 'b': job=.* is a function, not an action", node(job=print_it)),
        "missing arguments": (UsageError, UNCALLABLE, node(job=process)),
        "an unknown argument": (UsageError, r"node 'b': .*its signature is notify\(\)", node(args={"x": 1})),
        "a name that is a number": (UsageError, "keywords must be strings", node(job=aggregate, args={1: 1})),
        "arguments in a list": (DagError, r"node 'b': args is \[1\], a list", node(job=process, args=[1])),
        "an argument of another type": (
            *(PayloadRefused, "node 'b': argument 'mutation_id'", node(job=process, args={"mutation_id": "x"})),
        ),
        "a large argument": (PayloadTooLarge, "node 'b': ", node(job=loose, args={"data": "x" * 3_000_000})),
        "a retry_on of its own": (DagError, "node 'b' .*put it on the action", node(retry=OWN_RETRY)),
        "a retry_on in options": (DagError, "put it on the action", node(job=notify.options(retry=OWN_RETRY))),
        "a bad timeout": (UsageError, "timeout=-1 of node 'b' of DAG 'mutations'", node(timeout=-1)),
        "a bad queue": (UsageError, "the queue of node 'b'", node(queue="")),
        "a retry that is a number": (UsageError, "retry=3", node(retry=3)),
        "items that are a text": (DagError, "fan_out was given 'abc', a str", fan_out("abc")),
        "items that are a number": (DagError, "fan_out was given 3, a int", fan_out(3)),
        "one name for all": (DagError, "fan_out was given name='m'", fan_out([1], name="m")),
        "names that collide": (
            *(DagError, "two items the name 'x', the second is 2", fan_out([1, 2], name=lambda i: "x")),
        ),
        "a name that is taken": (DagError, "has a node 'a' already", fan_out([1, 2], name=lambda i: "1a"[i - 1])),
        "names that are no text": (UsageError, "the name 1 of a node of", fan_out([1], name=lambda i: i)),
        "arguments of one item": (
            UsageError,
            "node '2': action notify cannot be called",
            fan_out([1, 2], args=lambda i: {"x": 1} if i == 2 else {}),
        ),
        "arguments of an item that are no mapping": (
            *(DagError, "node '1': args is 1, a int", fan_out([1], args=lambda i: i)),
        ),
    }


def print_it() -> None: ...


@action(registry=registry)
async def loose(data: Any) -> None: ...


@pytest.mark.parametrize("case", wrong_calls())
def test_what_is_wrong_is_refused_at_once_and_nothing_is_added(case: str) -> None:
    kind, message, wrong = wrong_calls()[case]
    w = builder()
    w.node("a", job=notify)
    w.node("alpha", job=notify)
    with pytest.raises(kind) as refused:
        wrong(w)
    assert re.search(message, str(refused.value)), str(refused.value)
    assert list(edges(w.build())) == ["a", "alpha"]


def test_a_builder_without_nodes_cannot_be_built() -> None:
    with pytest.raises(DagError, match="DAG 'mutations' has no nodes"):
        builder().build()


def test_a_builder_needs_a_name_and_a_known_reaction_to_failure() -> None:
    with pytest.raises(UsageError, match="the name '' of a DagBuilder"):
        DagBuilder("")
    with pytest.raises(DagError, match=r"on_failure='stop'.*known: 'cancel'"):
        DagBuilder("x", on_failure="stop")  # type: ignore[arg-type]


def test_more_nodes_than_a_run_may_have_are_refused_also_from_an_endless_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.authoring.dag_builder.MAX_NODES", 3)
    w = builder()
    fan(w, 3)
    with pytest.raises(DagError, match="the graph has 4 nodes"):
        w.node("b", job=notify)
    with pytest.raises(DagError, match="the graph has 4 nodes"):
        w.fan_out(iter(lambda: object(), None), name=lambda item: str(id(item)), job=notify)
    assert len(w) == 3


def test_what_a_function_of_an_item_raises_says_for_which_item() -> None:
    with pytest.raises(KeyError) as raised:
        builder().fan_out([{"id": 1}, {}], name=lambda item: str(item["id"]), job=notify)
    assert raised.value.__notes__ == ["raised by name= of fan_out in DAG 'mutations', for the item {}"]
