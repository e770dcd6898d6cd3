"""States of every kind: read field by field, kept as canonical JSON, given back as they were."""

from __future__ import annotations

import dataclasses
import enum
import operator
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

import holdfast as hf
from holdfast.authoring.state_types import StateType
from holdfast.core.codec import DEFAULT_CODECS
from holdfast.core.errors import GraphError, PayloadRefused


class Colour(enum.Enum):
    RED = "red"


class Typed(TypedDict):
    name: str
    seen: Annotated[set[str], hf.reducers.union]
    notes: Annotated[list[str], operator.add]
    when: NotRequired[datetime]
    table: NotRequired[dict[str, Any]]


@dataclasses.dataclass
class Data:
    name: str
    seen: Annotated[set[str], hf.reducers.union] = dataclasses.field(default_factory=set)
    notes: Annotated[list[str], operator.add] = dataclasses.field(default_factory=lambda: ["first"])
    when: datetime | None = None


class Struct(msgspec.Struct):
    name: str
    seen: Annotated[set[str], hf.reducers.union] = msgspec.field(default_factory=set)
    notes: Annotated[list[str], operator.add] = msgspec.field(default_factory=lambda: ["first"])
    when: datetime | None = None


class Model(pydantic.BaseModel):
    name: str
    seen: Annotated[set[str], hf.reducers.union] = set()
    notes: Annotated[list[str], operator.add] = pydantic.Field(default_factory=lambda: ["first"])
    when: datetime | None = None
    tries: int = pydantic.Field(default=1, gt=0, alias="attempts")
    colour: Colour = Colour.RED
    link: pydantic.HttpUrl | None = None


def kind(cls: Any) -> StateType:
    return StateType(cls, "g")


@pytest.mark.parametrize("cls", [Data, Struct, Model])
def test_i14_a_state_comes_back_as_it_was_and_a_fresh_one_each_time(cls: Any) -> None:
    state = cls(name="é", seen={"b", "a"}, when=datetime(2031, 5, 1, tzinfo=UTC))
    it = kind(cls)
    fields = it.encode_whole(state, "the state")
    assert it.decode(fields) == state
    one, other = it.decode(fields), it.decode(fields)
    one.notes.append("changed in place")
    assert other == state


def test_i14_a_typed_dict_comes_back_as_a_dict_with_the_fields_that_have_values() -> None:
    it = kind(Typed)
    fields = it.encode_whole({"name": "x", "table": {"b": 1, "a": [2]}}, "the state")
    assert it.decode(fields) == {"name": "x", "seen": set(), "notes": [], "table": {"a": [2], "b": 1}}
    assert "when" not in fields


@pytest.mark.parametrize("cls", [Data, Struct, Model])
def test_missing_fields_have_the_defaults_of_their_class_and_the_rest_must_be_given(cls: Any) -> None:
    it = kind(cls)
    assert it.decode(it.encode_whole({"name": "x"}, "the state")) == cls(name="x")
    with pytest.raises(GraphError, match=rf"the state lacks 'name', and {cls.__name__} has no default for it"):
        it.encode_whole({}, "the state")


def test_a_typed_dicts_field_may_be_without_a_value_until_somebody_writes_it() -> None:
    it = kind(Typed)
    assert it.decode(it.encode_whole({}, "the state")) == {"seen": set(), "notes": []}


def test_equal_states_are_equal_bytes_with_keys_and_sets_in_order() -> None:
    it = kind(Typed)
    one = it.encode_whole({"name": "x", "seen": {"b", "a", "c"}, "table": {"b": {"z": 1, "y": 2}, "a": 1}}, "one")
    other = it.encode_whole({"table": {"a": 1, "b": {"y": 2, "z": 1}}, "seen": {"c", "a", "b"}, "name": "x"}, "other")
    assert one == other
    assert one["seen"] == b'["a","b","c"]'
    assert one["table"] == b'{"a":1,"b":{"y":2,"z":1}}'
    models = [kind(Model).encode_whole(Model(name="x", seen=set(order)), "it")["seen"] for order in ("cab", "bca")]
    assert models == [b'["a","b","c"]'] * 2


async def test_i44_dicts_come_in_the_order_of_their_keys_texts_from_the_first_node_on() -> None:
    """I44: as docs/graphs.md says; a digest does not depend on the order in which keys were set."""
    registry, seen = hf.Registry(), list[list[int]]()

    class Ranks(TypedDict):
        ranks: dict[int, str]

    graph = hf.StateGraph(Ranks, name="ranks", registry=registry)
    for name in ("first", "second"):

        @graph.node(name=name)
        async def look(state: Ranks) -> dict[str, Any]:
            seen.append(list(state["ranks"]))
            return {"ranks": {2: "b", **state["ranks"]}}

    graph.start_at("first")
    graph.edge("first", "second")
    graph.finish("second")
    async with hf.Engine("memory://", registry=registry) as engine, engine.worker():
        done = await engine.run(graph, {"ranks": {10: "x", 9: "y", -2: "z"}}, timeout=20)
    assert seen == [[-2, 10, 9], [-2, 10, 2, 9]]
    assert list(done["ranks"]) == [-2, 10, 2, 9]


def test_i12_keys_that_are_no_texts_are_put_in_order_too() -> None:
    one = DEFAULT_CODECS.canonical({10: "x", 9: "y"}, dict[int, str], where="the input")
    assert (
        one == DEFAULT_CODECS.canonical({9: "y", 10: "x"}, dict[int, str], where="the input") == b'{"10":"x","9":"y"}'
    )


@pytest.mark.parametrize("cls", [Typed, Data, Struct, Model])
def test_a_field_that_the_state_lacks_is_refused_with_the_closest_name(cls: Any) -> None:
    with pytest.raises(GraphError, match=rf"the delta has 'note', which is no field of {cls.__name__}") as caught:
        kind(cls).encode_part({"note": 1}, "the delta")
    assert "did you mean 'notes'?" in caught.value.hint


@pytest.mark.parametrize("cls", [Typed, Data, Struct, Model])
@pytest.mark.parametrize("wrong", [{"notes": "text"}, {"name": 3}, {"notes": [1]}, {"seen": {1}}])
def test_i14_a_value_of_another_type_is_refused_and_not_made_to_fit(cls: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(PayloadRefused, match=rf"field '{next(iter(wrong))}' of the delta"):
        kind(cls).encode_part(wrong, "the delta")


def test_a_models_own_rules_and_types_hold_for_each_field() -> None:
    it = kind(Model)
    assert it.encode_part({"tries": 2, "link": pydantic.HttpUrl("https://example.org/")}, "the delta") == {
        "tries": b"2",
        "link": b'"https://example.org/"',
    }
    with pytest.raises(PayloadRefused, match=r"field 'tries' of the delta .* int: value: Input should be greater"):
        it.encode_part({"tries": 0}, "the delta")
    assert it.decode(it.encode_whole({"name": "x", "tries": 5}, "it")).tries == 5


class Change(pydantic.BaseModel):
    name: str | None = None
    email: str | None = None


class Changes(pydantic.BaseModel):
    last: Change | None = None
    all: Annotated[list[Change], operator.add] = []


def test_i14_models_in_a_state_keep_which_of_their_fields_were_given() -> None:
    it = kind(Changes)
    fields = it.encode_whole(Changes(last=Change(name="Ada"), all=[Change()]), "the state")
    written = it.encode_part({"all": [Change(email="x")]}, "the delta")["all"]
    merged = it.fields["all"].merged(fields["all"], [("n", written)])
    state = it.decode({**fields, "all": merged})
    assert state.last.model_fields_set == {"name"}
    assert [each.model_fields_set for each in state.all] == [set(), {"email"}]


def test_a_stored_field_that_the_class_no_longer_has_is_left_out() -> None:
    assert kind(Typed).decode({"name": b'"x"', "gone": b"1"}) == {"name": "x"}
    assert kind(Data).decode({"name": b'"x"', "gone": b"1"}) == Data(name="x")


def test_a_state_that_its_class_does_not_accept_is_told_with_what_is_missing() -> None:
    with pytest.raises(GraphError, match=r"a state of Data cannot be made .* it has no value for 'name'"):
        kind(Data).decode({"seen": b"[]"})


def test_annotations_as_text_are_read_also_in_a_function() -> None:
    def longest(current: str, given: str) -> str:
        return max(current, given, key=len)

    class Local(TypedDict):
        word: Annotated[str, longest]

    graph = hf.StateGraph(Local, name="local", registry=hf.Registry())
    assert graph.state_type.fields["word"].reducer == longest.__qualname__


def test_an_annotation_may_name_what_is_defined_later_and_is_told_when_it_never_is() -> None:
    class Early(TypedDict):
        it: Nowhere  # type: ignore[name-defined]  # noqa: F821

    graph = hf.StateGraph(Early, name="early", registry=hf.Registry())
    with pytest.raises(GraphError, match=r"annotation of the state Early of graph 'early' cannot be read.*Nowhere"):
        _ = graph.state_type


class NotFields(TypedDict):
    pass


@dataclasses.dataclass
class Computed:
    name: str
    size: int = dataclasses.field(init=False, default=0)


class TwoReducers(TypedDict):
    it: Annotated[int, operator.add, max]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (dict, "is the class dict, which is not a TypedDict, a dataclass, a msgspec.Struct or a pydantic model"),
        (dict[str, int], "is dict[str, int], a class with type parameters"),
        ({"a": 1}, "is {'a': 1}, which is not a TypedDict"),
        (int, "is the class int, which is not"),
        (NotFields, "the state NotFields of graph 'g' has no fields"),
        (Computed, "field 'size' of the state Computed has init=False"),
        (TwoReducers, "field 'it' of the state TwoReducers has 2 reducers"),
    ],
)
def test_what_is_no_state_is_refused_when_the_graph_is_made(state: Any, told: str) -> None:
    with pytest.raises(GraphError) as caught:
        hf.StateGraph(state, name="g", registry=hf.Registry())
    assert told in caught.value.message
    assert caught.value.hint
