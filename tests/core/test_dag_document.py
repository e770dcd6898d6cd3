"""The frozen JSON of a graph: exact both ways, purely structural, and precise about what an editor got wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import dag_document, dag_document_reading
from holdfast.core.codec import DEFAULT_CODECS
from holdfast.core.dag_document import document, frozen, graph_of_nodes, stored_nodes
from holdfast.core.dag_document_reading import parse_document
from holdfast.core.errors import DagError, UsageError
from holdfast.core.graph import MAX_NODES, Graph, Node, NodePolicy
from holdfast.core.retry import Retry

SLOW = NodePolicy(retry=Retry(attempts=3, base=2, cap=9, retry_on=(KeyError,)), timeout_seconds=5, queue="slow")


def order() -> Graph:
    return Graph(
        (
            Node(id="n_1", name="validate", job="check", args=b'[[],{"order_id":123}]'),
            Node(id="n_2", name="charge", method="charge_card", depends_on=("n_1",), policy=SLOW),
            Node(id="n_3", name="notify", job="notify", depends_on=("n_1", "n_2")),
        )
    )


def test_i27_the_document_has_exactly_these_keys() -> None:
    shown = document(frozen(order()), "2031-05-04T03:02:01Z")
    assert list(shown) == ["version", "signature", "frozen_at", "nodes"]
    assert (shown["version"], shown["frozen_at"]) == (1, "2031-05-04T03:02:01Z")
    assert shown["nodes"]["n_1"] == {
        "name": "validate",
        "job": "check",
        "method": None,
        "args": {"order_id": 123},
        "depends_on": [],
        "policy": {"retry": {"attempts": 1, "base": 1.0, "cap": 60.0}, "timeout_seconds": None, "queue": None},
    }
    assert shown["nodes"]["n_3"]["args"] == {}
    assert shown["nodes"]["n_3"]["depends_on"] == ["n_1", "n_2"]


def test_code_is_never_in_the_document() -> None:
    assert b"retry_on" not in stored_nodes(frozen(order()))
    assert b"KeyError" not in stored_nodes(frozen(order()))


def test_freezing_drops_code_and_settles_how_numbers_are_written() -> None:
    policy = frozen(order()).by_name["charge"].policy
    assert policy.retry == Retry(attempts=3, base=2.0, cap=9.0)
    assert isinstance(policy.retry.base, float)
    assert frozen(Graph((Node(id="a", name="a", job="work", args=b""),))).nodes[0].args is None


def test_a_frozen_graph_is_left_as_it_is() -> None:
    graph = frozen(order())
    assert frozen(graph) is graph


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=5,
)
POLICIES = st.builds(
    NodePolicy,
    retry=st.builds(
        Retry,
        attempts=st.integers(1, 9),
        base=st.integers(0, 3) | st.floats(0, 3),
        cap=st.integers(3, 9) | st.floats(3, 9),
        retry_on=st.sampled_from([(Exception,), (KeyError,), (lambda error: True)]),
    ),
    timeout_seconds=st.none() | st.integers(1, 9) | st.floats(0.5, 9),
    queue=st.none() | st.text("äq", min_size=1, max_size=3),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = []
    for number in range(draw(st.integers(1, 6))):
        job = draw(st.booleans())
        keywords = draw(st.dictionaries(st.text("xyz", min_size=1, max_size=2), JSON_VALUES, max_size=3))
        encoded = DEFAULT_CODECS.encode([[], keywords], where="a test").data
        nodes.append(
            Node(
                id=f"n_{number}",
                name=f"näme {number}",
                job="work" if job else None,
                method=None if job else "go",
                args=encoded if job else None,
                depends_on=tuple(f"n_{parent}" for parent in sorted(draw(st.sets(st.integers(0, number - 1)))))
                if number
                else (),
                policy=draw(POLICIES),
            )
        )
    return Graph(tuple(nodes))


@given(graphs())
def test_i27_what_is_stored_reads_back_as_the_same_graph(graph: Graph) -> None:
    """Byte for byte: an argument that came back as 1 instead of 1.0 would be another call."""
    kept = frozen(graph)
    read = graph_of_nodes(stored_nodes(kept))
    assert read == kept
    assert read.signature == kept.signature
    assert stored_nodes(read) == stored_nodes(kept)


@given(graphs(), st.sampled_from([None, 2]), st.booleans())
def test_i27_an_export_that_an_editor_laid_out_anew_imports_as_the_same_graph(
    graph: Graph, indent: int | None, ascii_only: bool
) -> None:
    kept = frozen(graph)
    text = json.dumps(document(kept, None), indent=indent, ensure_ascii=ascii_only)
    parsed, signature = parse_document(text)
    assert parsed == kept
    assert signature == kept.signature == parsed.signature


def test_i31_an_export_of_code_imports_as_what_freezing_it_would_give() -> None:
    """Freezing alone must not look like a change of the graph, though the code said `base=2` and a retry_on."""
    parsed, signature = parse_document(json.dumps(document(order(), None)))
    assert parsed == frozen(order())
    assert signature == order().signature == parsed.signature


def test_i27_renaming_a_node_keeps_its_id_and_its_edges() -> None:
    edited = document(frozen(order()), None)
    edited["nodes"]["n_1"]["name"] = "validate-order"
    parsed, _ = parse_document(json.dumps(edited))
    assert parsed.find("validate-order").id == "n_1"
    assert parsed.by_name["charge"].depends_on == ("n_1",)


def test_equal_policies_become_one_value() -> None:
    graph = frozen(order())
    nodes = [replace(graph.nodes[0], id=f"n_{n}", name=f"n{n}", policy=NodePolicy(queue="q")) for n in range(3)]
    for read in (
        graph_of_nodes(stored_nodes(Graph(tuple(nodes)))),
        parse_document(json.dumps(document(Graph(tuple(nodes)), None)))[0],
    ):
        assert len({id(node.policy) for node in read.nodes}) == 1


def test_positional_arguments_have_no_names_to_be_stored_under() -> None:
    with pytest.raises(DagError, match="node 'a' has positional arguments"):
        stored_nodes(Graph((Node(id="a", name="a", job="work", args=b"[[1],{}]"),)))


def test_a_damaged_stored_graph_says_so() -> None:
    with pytest.raises(DagError, match="a stored DAG cannot be read"):
        graph_of_nodes(b'{"a": 1}')


def test_a_definition_over_the_limit_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dag_document, "MAX_DEFINITION_BYTES", 100)
    monkeypatch.setattr(dag_document_reading, "MAX_DEFINITION_BYTES", 100)
    with pytest.raises(DagError, match=r"the definition of 3 nodes has \d+ bytes, and at most 100"):
        stored_nodes(frozen(order()))
    with pytest.raises(DagError, match=r"the DAG document has \d+ bytes, and at most 100"):
        parse_document(" " * 101)


# --- what a person may get wrong ---------------------------------------------------------------------------------


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    shown = document(frozen(order()), None)
    change(shown)
    return json.dumps(shown)


def in_node(**changes: Any) -> str:
    return edited(lambda shown: shown["nodes"]["n_1"].update(changes))


def without(key: str) -> str:
    return edited(lambda shown: shown["nodes"]["n_1"].pop(key))


def in_policy(**changes: Any) -> str:
    return edited(lambda shown: shown["nodes"]["n_1"]["policy"].update(changes))


def in_retry(**changes: Any) -> str:
    return edited(lambda shown: shown["nodes"]["n_1"]["policy"]["retry"].update(changes))


def with_id(node_id: str) -> str:
    return edited(lambda shown: shown["nodes"].update({node_id: shown["nodes"]["n_1"]}))


WRONG: list[tuple[str, str, str]] = [
    ("not JSON", '{"version": 1,', r"not JSON: .* at line 1, column 15"),
    ("nested beyond reading", '{"version":' + "[" * 100_000, "cannot be read"),
    ("a number beyond reading", '{"version": ' + "1" * 5_000 + "}", "cannot be read"),
    ("not a number", '{"version": NaN}', "holds NaN"),
    ("a list", "[]", "is a list, not an object"),
    ("null", "null", "is null, not an object"),
    ("no version", '{"nodes": {}}', 'no key "version"'),
    (
        "another version",
        edited(lambda d: d.update(version=2)),
        "version 2, and this process reads version 1",
    ),
    ("a version that only looks like ours", edited(lambda d: d.update(version=True)), "version the value true"),
    ("an unknown key", edited(lambda d: d.update(state={})), "the document has the unknown key 'state'"),
    ("no nodes key", edited(lambda d: d.pop("nodes")), "the document has no key 'nodes'"),
    ("nodes as a list", edited(lambda d: d.update(nodes=[])), "the document has nodes a list"),
    ("zero nodes", edited(lambda d: d.update(nodes={})), "the document has no nodes"),
    ("a signature that is no text", edited(lambda d: d.update(signature=7)), "signature the number 7"),
    ("a time that is no text", edited(lambda d: d.update(frozen_at=7)), "frozen_at the number 7"),
    ("a time that is none", edited(lambda d: d.update(frozen_at="soon")), "frozen_at 'soon', which is no time"),
    ("a node that is no object", edited(lambda d: d["nodes"].update(n_1=3)), "node 'n_1' is the number 3"),
    ("an unknown key of a node", in_node(dependson=[]), "node 'n_1' has the unknown key 'dependson'.*'depends_on'"),
    ("a node without a name", without("name"), "node 'n_1' has no key 'name'"),
    ("a node without args", without("args"), "node 'n_1' has no key 'args'"),
    ("a node without depends_on", without("depends_on"), "node 'n_1' has no key 'depends_on'"),
    ("a node without a policy", without("policy"), "node 'n_1' has no key 'policy'"),
    ("an empty id", with_id(""), "the node id '' is empty"),
    ("a long id", with_id("x" * 256), "the node id 'xx.* has 256 characters"),
    ("an unprintable id", with_id("a\u0007"), r"the node id 'a\\x07' holds a character that cannot be printed"),
    ("a name that is no text", in_node(name=7), "node 'n_1' has name the number 7"),
    ("an empty name", in_node(name=" "), "the name ' ' of node 'n_1' is empty"),
    ("a long name", in_node(name="x" * 256), "of node 'n_1'.* has 256 characters"),
    ("an unprintable name", in_node(name="a\nb"), r"the name 'a\\nb' of node 'n_1' holds a character"),
    ("a name used twice", in_node(name="charge"), "two nodes are named 'charge'"),
    ("both job and method", in_node(method="go"), r"node 'n_1' \(validate\) has both a job and a method"),
    ("neither job nor method", in_node(job=None), r"node 'n_1' \(validate\) has neither a job nor a method"),
    ("neither is even there", without("job"), r"node 'n_1' \(validate\) has neither a job nor a method"),
    ("a job that is no text", in_node(job=["check"]), r"node 'n_1' \(validate\) has job a list"),
    ("args that are no object", in_node(args=[1]), r"node 'n_1' \(validate\) has args a list"),
    ("args of a method", in_node(job=None, method="go"), r"node 'n_1' \(validate\) has args and runs a method"),
    ("an argument beyond 64 bits", in_node(args={"a": 2**70}), r"args of node 'n_1' \(validate\): \$\.a"),
    ("a lone surrogate", in_node(args={"a": "\ud800"}), r"args of node 'n_1' \(validate\)"),
    ("too large an argument", in_node(args={"a": "x" * 2**21}), r"args of node 'n_1' \(validate\) is [\d,]+ bytes"),
    ("depends_on as a text", in_node(depends_on="n_2"), r"node 'n_1' \(validate\) has depends_on the text \"n_2\""),
    ("depends_on with a number", in_node(depends_on=[1]), r"node 'n_1' \(validate\) has depends_on the number 1"),
    ("an unknown dependency", in_node(depends_on=["n_9"]), "node 'validate' depends on 'n_9'"),
    ("a cycle", in_node(depends_on=["n_3"]), "validate -> .*validate"),
    ("a policy that is no object", in_node(policy=None), r"node 'n_1' \(validate\) has policy null"),
    (
        "an unknown key of a policy",
        in_policy(retries=3),
        r"node 'n_1' \(validate\), policy, has the unknown key 'retries'",
    ),
    ("an unknown key of a retry", in_retry(retry_on=[]), "policy, retry has the unknown key 'retry_on'"),
    ("a retry that is no object", in_policy(retry=3), r"node 'n_1' \(validate\), policy, has retry the number 3"),
    ("attempts that are no number", in_retry(attempts="3"), 'policy, retry has attempts the text "3"'),
    ("attempts that are half a number", in_retry(attempts=1.5), "policy, retry has attempts the number 1.5"),
    ("zero attempts", in_retry(attempts=0), r"node 'n_1' \(validate\), policy, Retry\(attempts=0\)"),
    ("attempts beyond counting", in_retry(attempts=2**40), r"node 'n_1' \(validate\), policy, a node has Retry"),
    ("a cap below its base", in_retry(base=9, cap=1), "node 'n_1'.*cap is less than base"),
    ("a base beyond numbers", in_retry(base=10**400), "policy, retry has a base of hundreds of digits"),
    ("a truth for a time", in_policy(timeout_seconds=True), "policy, has timeout_seconds the value true"),
    ("a timeout of nothing", in_policy(timeout_seconds=0), "node 'n_1'.*timeout=0.0"),
    ("an empty queue", in_policy(queue=""), "the queue '' of node 'n_1'"),
    ("a queue that is no text", in_policy(queue=3), "policy, has queue the number 3"),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_i31_a_wrong_document_is_refused_by_node_and_field(text: str, message: str) -> None:
    with pytest.raises(DagError, match=message) as refused:
        parse_document(text)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("twice", "place"),
    [
        ('"version": 1, "version": 1, "nodes": {}', "the document has the key 'version'"),
        ('"version": 1, "nodes": {"a": {}, "a": {}}', "nodes has the key 'a'"),
        ('"version": 1, "nodes": {"a": {"name": "x", "name": "y"}}', "node 'a' has the key 'name'"),
        ('"version": 1, "nodes": {"a": {"args": {"b": [{"c": 1, "c": 2}]}}}', "node 'a', args.b.0, has the key 'c'"),
    ],
)
def test_a_key_given_twice_is_refused_where_it_is(twice: str, place: str) -> None:
    """Readers of JSON take the last one silently, and the person meant one of the two."""
    with pytest.raises(DagError, match=f"{place} twice"):
        parse_document("{" + twice + "}")


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="is a bytes, not a text"):
        parse_document(b"{}")  # type: ignore[arg-type]


def test_a_document_of_too_many_nodes_is_refused_before_it_is_read_closely() -> None:
    nodes = {f"n{number}": None for number in range(MAX_NODES + 1)}
    with pytest.raises(DagError, match="the graph has 100,001 nodes, and a run has at most 100,000"):
        parse_document(json.dumps({"version": 1, "nodes": nodes}))


def test_where_it_came_from_may_be_left_out() -> None:
    shown = document(frozen(order()), None)
    del shown["signature"], shown["frozen_at"], shown["nodes"]["n_1"]["method"]
    parsed, signature = parse_document(json.dumps(shown))
    assert (parsed, signature) == (frozen(order()), None)


def test_i31_a_document_without_any_policy_has_the_default_one_in_every_node() -> None:
    """The seed's own form has none. Out of one node only, it was lost by accident and is refused (above)."""
    shown = document(frozen(order()), None)
    for node in shown["nodes"].values():
        del node["policy"]
    parsed, _ = parse_document(json.dumps(shown))
    assert {node.policy for node in parsed.nodes} == {frozen(Graph((Node(id="a", name="a", job="a"),))).nodes[0].policy}
    assert [node.name for node in parsed.nodes] == [node.name for node in order().nodes]
