"""What the reducers make of values, and that those which work on bytes make the same."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast.authoring.state_fields import Field
from holdfast.authoring.state_laws import law_of
from holdfast.core.errors import ConflictingWrites, GraphError, PayloadRefused, PayloadTooLarge

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def field(annotation: Any, reducer: Any = None) -> Field:
    law = None if reducer is None else law_of(reducer, annotation, "field 'it' of State")
    return Field("it", annotation, owner="State", law=law)


def merged(annotation: Any, reducer: Any, *values: Any) -> Any:
    """The first value and what nodes a, b, c … gave, through canonical JSON and back."""
    it = field(annotation, reducer)
    first, *rest = (it.encode(value, "a value") for value in values)
    return it.decode(it.merged(first, [(chr(97 + number), data) for number, data in enumerate(rest)]))


@pytest.mark.parametrize(
    ("annotation", "reducer", "values", "expected"),
    [
        (str, hf.reducers.last_writer, ("x", "y", "z"), "z"),
        (list[str], hf.reducers.append, (["x"], ["y"], [], ["z", "y"]), ["x", "y", "z", "y"]),
        (list[str], hf.reducers.append, ([], [], []), []),
        (tuple[int, ...], hf.reducers.append, ((1,), (2, 3)), (1, 2, 3)),
        (list[int], operator.add, ([1], [2], [3]), [1, 2, 3]),
        (tuple[int, ...], operator.add, ((), (2,), ()), (2,)),
        (str, operator.add, ("a\n", "", 'b"\\'), 'a\nb"\\'),
        (int, operator.add, (1, 2, 3), 6),
        (Any, operator.add, ([1], [2.5, "x"]), [1, 2.5, "x"]),
        (Any, operator.add, (1, 2), 3),
        (set[str], hf.reducers.union, ({"b"}, {"a", "b"}, set()), {"a", "b"}),
        (frozenset[int], hf.reducers.union, (frozenset({2}), frozenset({1})), frozenset({1, 2})),
        (list[int], hf.reducers.union, ([3, 1], [1, 2], [2]), [3, 1, 2]),
        (int, hf.reducers.counter, (1, 2, -5), -2),
        (float, hf.reducers.counter, (0.5, 2.0), 2.5),
        (int, hf.reducers.maximum, (1, 7, 3), 7),
        (int, hf.reducers.minimum, (5, 1, 3), 1),
        (int | None, hf.reducers.maximum, (None, 7, 3), 7),
        (int | None, hf.reducers.maximum, (3, None, 7), 7),
        (int | None, hf.reducers.maximum, (None, None), None),
        (int | None, hf.reducers.minimum, (None, 7, 3), 3),
        (int | None, max, (None, 7, 3), 7),
        (int | None, min, (None, 7, 3), 3),
        (int | None, hf.reducers.counter, (None, 7, 3), 10),
        (list[str] | None, hf.reducers.append, (None, ["a"], ["b"]), ["a", "b"]),
        (set[str] | None, hf.reducers.union, (None, {"a"}, {"b"}), {"a", "b"}),
        (dict[str, int] | None, hf.reducers.merge_dicts, (None, {"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
        (int | None, hf.reducers.last_writer, (1, None), None),
        (int, max, (1, 7, 3), 7),
        (int, min, (1, 7, -3), -3),
        (dict[str, int], hf.reducers.merge_dicts, ({"b": 1, "c": 3}, {"a": 2, "b": 5}), {"a": 2, "b": 5, "c": 3}),
        (dict[int, str], hf.reducers.merge_dicts, ({10: "x"}, {9: "y"}), {9: "y", 10: "x"}),
        (int, lambda a, b: a * 10 + b, (1, 2, 3), 123),
    ],
)  # fmt: skip
def test_i41_a_reducer_merges_what_nodes_gave_in_their_order(
    annotation: Any, reducer: Any, values: tuple[Any, ...], expected: Any
) -> None:
    assert merged(annotation, reducer, *values) == expected


@pytest.mark.parametrize(
    ("reducer", "annotation", "values"),
    [
        (hf.reducers.append, list[Any], st.lists(plain, max_size=3)),
        (operator.add, list[Any], st.lists(plain, max_size=3)),
        (operator.add, str, texts),
        (hf.reducers.merge_dicts, dict[str, Any], st.dictionaries(texts, plain, max_size=3)),
        (hf.reducers.last_writer, Any, plain),
    ],
)
def test_g8_a_reducer_on_bytes_makes_the_same_canonical_json_as_its_function(
    reducer: Callable[[Any, Any], Any], annotation: Any, values: st.SearchStrategy[Any]
) -> None:
    """Byte for byte: digests are taken over it, and a replay may run on either way."""
    by_hand = field(annotation, lambda current, given: reducer(current, given))
    on_bytes = field(annotation, reducer)
    assert on_bytes.law is not None
    assert on_bytes.law.on_bytes is not None

    @given(st.lists(values, min_size=2, max_size=4))
    def check(parts: list[Any]) -> None:
        first, *rest = (on_bytes.encode(part, "a value") for part in parts)
        written = [("node", data) for data in rest]
        assert on_bytes.merged(first, written) == by_hand.merged(first, written)

    check()


def test_a_field_begins_with_the_empty_value_of_its_reducer() -> None:
    empties = {
        (list[str], hf.reducers.append): b"[]",
        (list[str], operator.add): b"[]",
        (str, operator.add): b'""',
        (int, operator.add): b"0",
        (int, hf.reducers.counter): b"0",
        (float, hf.reducers.counter): b"0.0",
        (set[str], hf.reducers.union): b"[]",
        (dict[str, int], hf.reducers.merge_dicts): b"{}",
        (int, hf.reducers.maximum): None,
        (str, hf.reducers.last_writer): None,
    }
    for (annotation, reducer), empty in empties.items():
        law = field(annotation, reducer).law
        assert law is not None
        assert law.empty == empty, (annotation, reducer)


def test_a_reducer_of_ones_own_begins_with_an_empty_container_and_otherwise_with_what_is_written_first() -> None:
    def own(current: Any, added: Any) -> Any:
        raise AssertionError("not called for the first value")

    assert field(list[str], own).law.empty == b"[]"  # type: ignore[union-attr]
    number = field(int, own)
    assert number.law.empty is None  # type: ignore[union-attr]
    assert number.merged(None, [("a", b"4")]) == b"4"


def test_i41_two_writers_of_a_field_without_reducer_are_a_conflict_that_names_field_and_nodes() -> None:
    with pytest.raises(ConflictingWrites, match=r"nodes 'a' and 'b' wrote field 'it' of State in one step") as caught:
        merged(int, None, 0, 1, 1)
    assert "it: Annotated[int, hf.reducers.last_writer]" in caught.value.hint
    it = field(int)
    with pytest.raises(ConflictingWrites, match=r"3 items of node 'fetch' wrote"):
        it.merged(None, [("fetch", b"1"), ("fetch", b"1"), ("fetch", b"2")])
    assert it.merged(b"0", [("a", b"1")]) == b"1"


def test_a_reducer_that_raises_is_named_with_its_field_the_node_and_the_line() -> None:
    def picky(current: int, given: int) -> int:
        raise ValueError("no more")

    with pytest.raises(
        GraphError, match=r"picky of field 'it' of State raised ValueError.*node 'a'.*no more"
    ) as caught:
        merged(int, picky, 1, 2)
    assert "test_reducers.py" in caught.value.message


def test_what_a_reducer_returns_must_fit_the_field() -> None:
    with pytest.raises(PayloadRefused, match=r"what the reducer .* of field 'it' of State returned does not fit"):
        merged(int, lambda a, b: "text", 1, 2)


def test_a_field_that_grows_over_the_limit_is_refused_with_its_name() -> None:
    it = field(list[str], hf.reducers.append)
    with pytest.raises(PayloadTooLarge, match=r"field 'it' of State has grown to 23 bytes, over the limit of 20"):
        it.merged(b'["aaaaaaaa"]', [("a", b'["bbbbbbbb"]')], 20)


@pytest.mark.parametrize(
    ("annotation", "reducer", "told"),
    [
        (set[str], hf.reducers.append, "is annotated set[str] and has the reducer append, which is for list or tuple"),
        (list[str], hf.reducers.counter, "has the reducer counter, which is for int or float"),
        (set[str], operator.add, "has the reducer add, but two of these cannot be added"),
        (dict[str, int], operator.add, "has the reducer add, but two of these cannot be added"),
        (int, hf.reducers.merge_dicts, "has the reducer merge_dicts, which is for dict"),
    ],
)
def test_a_reducer_that_cannot_work_on_a_fields_type_is_refused_with_the_graph(
    annotation: Any, reducer: Any, told: str
) -> None:
    State = TypedDict("State", {"it": Annotated[annotation, reducer]})  # type: ignore[misc]  # noqa: UP013
    with pytest.raises(GraphError) as caught:
        hf.StateGraph(State, name="refused", registry=hf.Registry())
    assert told in caught.value.message


class AwaitedCall:
    async def __call__(self, current: Any, given: Any) -> Any:
        return given


async def awaited(current: Any, given: Any) -> Any:
    return given


@pytest.mark.parametrize("reducer", [awaited, AwaitedCall(), functools.partial(awaited)])
def test_i41_a_reducer_that_would_have_to_be_awaited_is_refused_with_the_graph(reducer: Any) -> None:
    State = TypedDict("State", {"it": Annotated[list[str], reducer]})  # type: ignore[misc]  # noqa: UP013
    with pytest.raises(GraphError, match=r"the reducer .* of field 'it' of State is an async def"):
        hf.StateGraph(State, name="refused", registry=hf.Registry())
    Plain = TypedDict("Plain", {"it": list[str]})  # noqa: UP013
    with pytest.raises(GraphError, match="reduce of graph 'refused' is an async def"):
        hf.StateGraph(Plain, name="refused", registry=hf.Registry(), reduce=reducer)


def one(current: Any) -> Any:
    return current


class Merging:
    def merge(self, current: Any, given: Any) -> Any:
        return [*current, *given]

    def __call__(self, current: Any, given: Any) -> Any:
        return [*current, *given]


class Rule:
    """What another library puts into an annotation: callable, and no reducer."""

    def __call__(self, value: Any) -> Any:
        raise AssertionError("nobody calls this")


def graph_with(annotation: Any, *metadata: Any) -> hf.StateGraph[Any]:
    State = TypedDict("State", {"it": Annotated[(annotation, *metadata)]})  # type: ignore[misc]  # noqa: UP013
    return hf.StateGraph(State, name="one field", registry=hf.Registry())


@pytest.mark.parametrize(
    ("annotation", "reducer"),
    [
        (set[str], set.union),
        (set[str], set.__or__),
        (frozenset[str], frozenset.union),
        (list[str], Merging().merge),
        (list[str], Merging()),
        (list[str], functools.partial(Merging.merge, None)),
        (list[str], lambda *values: values[-1]),
        (list[str], lambda current, given, more=(): [*current, *given, *more]),
    ],
)
def test_i41_whatever_can_be_called_with_two_is_the_reducer_also_without_a_signature(
    annotation: Any, reducer: Any
) -> None:
    law = graph_with(annotation, reducer).state_type.fields["it"].law
    assert law is not None
    assert law.reduce is reducer


async def test_i41_a_method_of_a_builtin_merges_what_nodes_gave() -> None:
    """I41: `set.union` was passed over, and what a node gave took the place of the set."""
    graph = graph_with(set[str], set.union)
    for name in ("b", "a"):
        graph.node(name=name)(lambda state, name=name: {"it": {name}})
    graph.start_at("a", "b")
    graph.finish("a", "b")
    async with hf.Engine("memory://", registry=graph.registry) as engine, engine.worker():
        assert await engine.run(graph, {"it": {"start"}}, timeout=60) == {"it": {"a", "b", "start"}}


@pytest.mark.parametrize("reducer", [one, lambda a, b, c: a, len, functools.partial(one), Merging.merge])
def test_i41_a_function_that_does_not_take_two_is_refused_with_the_graph(reducer: Any) -> None:
    with pytest.raises(GraphError, match=r"the reducer .* of field 'it' of State cannot be called with two") as caught:
        graph_with(list[str], reducer)
    assert "def merge(value, given)" in caught.value.hint


@pytest.mark.parametrize(
    "metadata", [annotated_types.Gt(0), pydantic.Field(gt=0), Rule(), Rule, "text", msgspec.Meta()]
)
def test_what_other_libraries_put_into_an_annotation_is_no_reducer(metadata: Any) -> None:
    assert graph_with(int, metadata).state_type.fields["it"].law is None
