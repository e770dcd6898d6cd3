"""Events, inputs and effects as they are stored: tagged, strict, and readable by name."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Never
from uuid import UUID

import msgspec
import pydantic
import pytest

import holdfast as hf
from holdfast.authoring.decider_code import BoundDecider, bound_decider
from holdfast.core.codec import MSGPACK, Codecs
from tests.deciders.authoring_world import EchoBody, fact, made

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
JSON_CODECS = Codecs()
MSGPACK_CODECS = Codecs(MSGPACK)


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Plain:
    id: str
    price: Decimal = Decimal("1.10")
    at: datetime = AT
    colour: Colour = Colour.RED
    parts: tuple[int, ...] = ()
    tags: frozenset[str] = frozenset()
    by_number: dict[int, str] = field(default_factory=dict)


class Struct(msgspec.Struct, frozen=True):
    id: str
    data: bytes = b"\x00\xff"


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


class OwnTag(msgspec.Struct, frozen=True, tag="own-tag"):
    id: str


class TrueTag(msgspec.Struct, frozen=True, tag=True):
    id: str


class OtherField(msgspec.Struct, frozen=True, tag="x", tag_field="kind"):
    id: str


class Model(pydantic.BaseModel, frozen=True):
    id: str
    number: UUID = UUID(int=5)


class OpenModel(pydantic.BaseModel, frozen=True, extra="allow"):
    id: str


class ShutModel(pydantic.BaseModel, frozen=True, extra="forbid"):
    id: str


Everything = Plain | Struct | Strict | OwnTag | TrueTag | OtherField | Model | OpenModel | ShutModel
VALUES: list[tuple[Any, str]] = [
    (Plain("1", Decimal("2.50"), AT, Colour.RED, (1, 2), frozenset({"b", "a"}), {7: "x"}), "Plain"),
    (Struct("1"), "Struct"),
    (Strict("1"), "Strict"),
    (OwnTag("1"), "own-tag"),
    (TrueTag("1"), "TrueTag"),
    (OtherField("1"), "OtherField"),
    (Model(id="1"), "Model"),
    (OpenModel(id="1", more=2), "OpenModel"),  # type: ignore[call-arg]
    (ShutModel(id="1"), "ShutModel"),
]


def echo(types: Any = Everything, codecs: Codecs = JSON_CODECS, **options: Any) -> BoundDecider:
    return bound_decider(made(Any, types, types, types, bases=(EchoBody,), **options), codecs)


@pytest.mark.parametrize("codecs", [JSON_CODECS, MSGPACK_CODECS], ids=["json", "msgpack"])
@pytest.mark.parametrize(("value", "name"), VALUES, ids=[name for _, name in VALUES])
def test_i37_every_kind_of_record_is_tagged_and_comes_back_equal(value: Any, name: str, codecs: Codecs) -> None:
    """I37: the codec tags variants itself; I14: with an equal value, in each role and codec."""
    code = echo(codecs=codecs)
    routed = code.route(value)
    assert (routed.key, routed.type, routed.codec) == ("1", name, codecs.default.tag)
    assert list(codecs.default.decode(routed.data, dict[str, Any]))[0] == "type"  # type: ignore[call-overload]  # noqa: RUF015
    assert code.input_type(routed.data, routed.codec) == name
    decided = code.decide(0, (), routed.data, routed.codec)
    assert decided.state == (value,)
    assert type(decided.state[0]) is type(value)
    (event,), (effect,), (timer,) = decided.events, decided.effects, decided.timers
    assert (event.type, effect.type, timer.type) == (name, name, name)
    assert code.evolve((), fact(event.type, event.data, codec=event.codec)) == (value,)
    assert code.decode_effect(effect.data, effect.codec) == value
    assert code.decode_input(timer.data, timer.codec) == value


def test_a_union_of_one_is_tagged_too() -> None:
    """A second class may be added later, and old events must stay readable."""
    assert echo(Struct).route(Struct("1", b"")).data == b'{"type":"Struct","id":"1","data":""}'


def test_an_event_of_one_class_is_never_taken_for_another_with_the_same_fields() -> None:
    code = echo(Strict | TrueTag)
    assert type(code.decode_input(b'{"type":"Strict","id":"1"}', "json")) is Strict
    assert type(code.decode_input(b'{"type":"TrueTag","id":"1"}', "json")) is TrueTag
    assert type(code.decode_input(b'{"id":"1","type":"TrueTag"}', "json")) is TrueTag


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"id":"1"}', "does not say which event it is"),
        (b'{"type":5,"id":"1"}', "does not say which event it is"),
        (b"[1]", "does not say which event it is"),
        (b"{broken", "does not say which event it is"),
        (b'{"type":"Gone","id":"1"}', "'Gone'"),
    ],
)
def test_i37_a_missing_or_unknown_tag_lists_the_known_ones(data: bytes, said: str) -> None:
    """I37: and it names the event, the instance and the sequence, whatever the row's own column says."""
    for event_type in ("Struct", "Gone"):
        with pytest.raises(hf.PayloadRefused) as caught:
            echo(Struct | Strict).evolve((), fact(event_type, data))
        assert said in str(caught.value)
        assert f"event {event_type} of order '17', sequence 3" in str(caught.value)
        assert "Struct, Strict" in str(caught.value)


@pytest.mark.parametrize("name", ["Struct", "Plain", "Model", "own-tag"])
def test_i37_a_missing_field_is_named_with_type_key_and_sequence(name: str) -> None:
    """I37: and the hint is the upcast that would bring it back."""
    with pytest.raises(hf.PayloadRefused) as caught:
        echo().evolve((), fact(name, b'{"type":"%s"}' % name.encode()))
    text = str(caught.value)
    assert f"event {name} of order '17', sequence 3" in text
    assert "id" in caught.value.message.partition("sequence 3")[2]
    assert f"@hf.upcast(Made, {name!r}, from_version=1)" in text


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(hf.PayloadRefused, match="zstd"):
        echo().evolve((), fact("Struct", b"?", codec="zstd"))


@dataclass
class Loose:
    id: str
    value: Any = None
    number: float = 0.0


@pytest.mark.parametrize(
    "value",
    [
        Loose("1", number=float("nan")),
        Loose("1", (1, 2)),
        Loose("1", {1: 2}),
        Loose("\ud800"),
        Loose("1", 2**70),
        Loose(5),  # type: ignore[arg-type]
    ],
    ids=["nan", "tuple", "number-key", "surrogate", "big", "wrong-type"],
)
def test_i14_what_would_not_come_back_is_refused_naming_the_value(value: Any) -> None:
    """I14: before anything is written, for inputs and for what a decision holds."""
    with pytest.raises(hf.PayloadRefused, match="input Loose of Made"):
        echo(Loose).route(value)


class ForeignBody(EchoBody):
    def decide(self, now: datetime, state: Any, input: Any) -> Any:
        decision = hf.Decision.event(Struct("1"))
        match input.id:
            case "event":
                return decision.with_event(Strict("1"))
            case "class":
                return decision.with_event(Struct)
            case "effect":
                return decision.with_effect(Struct("1"))
            case "timer":
                return decision.with_timer_after(1, Strict("1"))
            case "elsewhere":
                return decision.with_timer_after(1, Struct("another"))
            case "nothing":
                return None
            case "empty":
                return hf.Decision()
            case _:
                return decision.with_event(Struct("1", "no bytes"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        ("event", hf.DecideFailed, r"decide of Made, for input Struct, returned as the event a Strict"),
        ("class", hf.DecideFailed, "returned the class Struct as the event, where an instance is due"),
        ("effect", hf.DecideFailed, r"returned as the effect a Struct.*no effect of it \(known: none\)"),
        ("timer", hf.DecideFailed, r"returned as the timer input a Strict"),
        ("elsewhere", hf.DecideFailed, "of instance 'elsewhere' set a timer for instance 'another'"),
        ("nothing", hf.DecideFailed, "returned None, a NoneType"),
        ("empty", hf.DecideFailed, "decide of Made, for input Struct, returned a decision without an event"),
        ("payload", hf.PayloadRefused, "event Struct of Made"),
    ],
)
def test_i35_a_wrong_decision_names_the_decider_the_input_and_the_type(
    what: str, error: type[Exception], said: str
) -> None:
    """I35: a decision is the author's; one that cannot be recorded is refused whole."""
    code = bound_decider(made(tuple[Any, ...], Struct, Struct, Never, bases=(ForeignBody,)))
    routed = code.route(Struct(what))
    with pytest.raises(error, match=said):
        code.decide(0, (), routed.data, routed.codec)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Strict("1"), r"given a Strict, which is no input of it \(known: Struct\)"),
        (Struct, "give an instance"),
        ({"type": "Struct", "id": "1"}, "execute_dynamic"),
        (None, "NoneType"),
    ],
)
def test_a_foreign_input_is_refused_and_the_known_ones_are_listed(value: Any, said: str) -> None:
    with pytest.raises(hf.UsageError, match=said):
        echo(Struct).route(value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"id": "1"}, 'no "type"'),
        ({"type": "Struc", "id": "1"}, "Struct"),
        ({"type": 5}, "no input 5"),
        ("Struct", "a mapping"),
        ({"type": "Struct"}, "missing required field `id`"),
        ({"type": "Struct", "id": 7}, "Expected `str`, got `int`"),
        ({"type": "Model", "id": "1", "number": "no"}, "number"),
    ],
)
def test_an_untyped_input_is_checked_like_a_typed_one(given: Any, said: str) -> None:
    with pytest.raises(hf.UsageError) as caught:
        echo().route_mapping(given)
    assert said in str(caught.value)


def test_an_untyped_input_is_the_same_as_a_typed_one() -> None:
    code = echo()
    assert code.route_mapping({"type": "Struct", "id": "1", "data": "AP8="}) == code.route(Struct("1"))
    assert code.route_mapping({"type": "own-tag", "id": "1"}) == code.route(OwnTag("1"))
    assert code.route_mapping({"type": "Model", "id": "1"}) == code.route(Model(id="1"))


@pytest.mark.parametrize(
    ("key", "said"),
    [("", "an empty text"), (5, "5, a int"), ("k" * 300, "300 characters"), ("ü" * 200, "…"), ("a\0", "be printed")],
)
def test_a_key_that_could_not_be_stored_is_refused(key: Any, said: str) -> None:
    class Keyed(EchoBody):
        def workflow_id(self, input: Any) -> str:
            return key  # type: ignore[no-any-return]

    code = bound_decider(made(Any, Struct, Struct, Struct, bases=(Keyed,)))
    with pytest.raises(hf.UsageError, match="workflow_id of Made gave") as caught:
        code.route(Struct("1"))
    assert said in str(caught.value)


def test_what_a_handler_returns_must_be_an_input_of_its_instance() -> None:
    """Bad input: a foreign input is an error of the attempt, told with the effect."""
    code = echo(Struct)
    assert code.returned_input(None, "1", "Struct") is None
    assert code.returned_input(Struct("1", b""), "1", "Struct") == (b'{"type":"Struct","id":"1","data":""}', "json")
    with pytest.raises(hf.UsageError, match=r"handle of Made returned, for effect Mail, a Strict"):
        code.returned_input(Strict("1"), "1", "Mail")
    with pytest.raises(hf.UsageError, match="'1' returned, for effect Mail, a Struct of instance '2'"):
        code.returned_input(Struct("2"), "1", "Mail")


def test_an_input_of_a_timer_or_a_handler_needs_no_key() -> None:
    """It goes to the instance that it came from, so `workflow_id` need not know it."""

    @dataclass(frozen=True)
    class Tick:
        pass

    class Ticking(EchoBody):
        def decide(self, now: datetime, state: Any, input: Any) -> Any:
            return hf.Decision.event(Struct("1")).with_timer_after(1, Tick())

    code = bound_decider(made(Any, Struct | Tick, Struct, Struct, bases=(Ticking,)))
    routed = code.route(Struct("1"))
    (timer,) = code.decide(0, (), routed.data, routed.codec).timers
    assert timer.data == b'{"type":"Tick"}'
    assert code.decide(0, (), timer.data, timer.codec).timers[0].type == "Tick"
    assert code.returned_input(Tick(), "1", "Struct") == (b'{"type":"Tick"}', "json")


def test_a_payload_over_the_limit_is_refused() -> None:
    cls = made(Any, Struct, Struct, Struct, bases=(EchoBody,))
    with pytest.raises(hf.PayloadTooLarge, match="input Struct of Made"):
        bound_decider(cls, limit=100).route(Struct("1", b"x" * 100))
