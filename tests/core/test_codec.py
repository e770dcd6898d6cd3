"""Payloads: what goes in comes out equal, or is refused before anything is written (I14)."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import math
import uuid
import zoneinfo
from collections.abc import Iterator
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import JSON, MAX_INT, MIN_INT, MSGPACK, UNTYPED, Codecs
from holdfast.core.errors import PayloadRefused, PayloadTooLarge

CODECS = {codec.tag: Codecs(codec) for codec in (JSON, MSGPACK)}
WHERE = "the result of action charge"


@pytest.fixture(params=sorted(CODECS))
def codecs(request: pytest.FixtureRequest) -> Codecs:
    return CODECS[request.param]


def round_trip(codecs: Codecs, value: object, annotation: object = UNTYPED) -> object:
    encoded = codecs.encode(value, annotation, where=WHERE)
    return codecs.decode(encoded.data, annotation, where=WHERE, codec=encoded.codec)


def refusal(codecs: Codecs, value: object, annotation: object = UNTYPED) -> str:
    with pytest.raises(PayloadRefused) as caught:
        codecs.encode(value, annotation, where=WHERE)
    assert WHERE in str(caught.value)
    return str(caught.value)


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels - 1):
        value = [value]
    return value


text = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(MIN_INT, MAX_INT)
plain = st.recursive(
    st.none() | st.booleans() | integers | finite | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=30,
)


# --- without an annotation ---------------------------------------------------------------------------------------


@given(value=plain, tag=st.sampled_from(sorted(CODECS)))
def test_i14_jsons_own_types_come_back_equal_and_of_the_same_type(value: object, tag: str) -> None:
    back = round_trip(CODECS[tag], value)
    assert back == value
    assert repr(back) == repr(value)  # tells 1 from 1.0 and True, and keeps the order of keys


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


class NotThere:
    """As the call of an action gives it."""

    def __await__(self) -> Iterator[None]:
        yield None


@pytest.mark.parametrize(
    ("value", "reason", "fix"),
    [
        ((1, 2), "$ is a tuple", "annotate it as tuple[...]"),
        ({"a": [1, {2}]}, "$.a[1] is a set", "annotate it as set[...]"),
        ({"a": {1: "x"}}, "$.a has the key 1 of type int", "dict[int, ...]"),
        ([b"x"], "$[0] is a bytes", "annotate it as bytes"),
        ({"at": dt.datetime(2026, 1, 1)}, "$.at is a datetime", "annotate it as datetime"),
        ([0, uuid.UUID(int=1)], "$[1] is a UUID", "annotate it as UUID"),
        ({"price": decimal.Decimal(1)}, "$.price is a Decimal", "annotate it as Decimal"),
        ([Colour.RED], "$[0] is a Colour", "annotate it as Colour"),
        ([Level.LOW], "$[0] is a Level", "annotate it as Level"),
        (Name("Ada"), "$ is a Name, a subclass of str", "str(...)"),
        (collections.OrderedDict(a=1), "$ is a OrderedDict, a subclass of dict", "dict(...)"),
        ([math.nan], "$[0] is nan", "None"),
        ({"a b": -math.inf}, "$['a b'] is -inf", "None"),
        ({"n": 2**63}, "$.n is an integer outside of 64 bits", "str"),
        ({"n": -(2**63) - 1}, "$.n is an integer outside of 64 bits", "str"),
        ([10**5000], "$[0] is an integer outside of 64 bits", "str"),
        (["a\ud800"], "$[0] holds a lone surrogate", "errors='replace'"),
        ({"\udfff": 1}, "holds a lone surrogate", "errors='replace'"),
        ([1.0] * 100 + [math.nan], "$[100] is nan", "None"),
        ([1] * 100 + [2**64], "$[100] is an integer", "str"),
        (["a"] * 100 + [()], "$[100] is a tuple", "tuple"),
        (object(), "$ is a object", "convert it to JSON's own types, or to a dataclass that its annotation names"),
        ({"q": NotThere()}, "$.q is a NotThere, which was not awaited", "write await before the call"),
        (nested(101), "nested more than 100 levels", "flatten"),
    ],
)
def test_i14_other_values_are_refused_with_place_and_fix(codecs: Codecs, value: object, reason: str, fix: str) -> None:
    message = refusal(codecs, value)
    assert reason in message
    assert fix in message


@pytest.mark.parametrize("annotation", [Any, object, UNTYPED])
def test_i14_any_and_object_are_no_annotation(codecs: Codecs, annotation: object) -> None:
    assert "tuple" in refusal(codecs, (1,), annotation)


def test_i14_nul_and_the_ends_of_64_bits_round_trip(codecs: Codecs) -> None:
    value = ["a\0b", MIN_INT, MAX_INT, -0.0, {"\0": None}]
    assert repr(round_trip(codecs, value)) == repr(value)


def test_i14_a_hundred_levels_pass_and_endless_ones_are_refused(codecs: Codecs) -> None:
    assert round_trip(codecs, nested(100)) == nested(100)
    assert round_trip(codecs, nested(100), list) == nested(100)
    endless: list[object] = []
    endless.append(endless)
    for annotation in (UNTYPED, list, list[Any]):
        assert "nested" in refusal(codecs, endless, annotation)
        assert "nested" in refusal(codecs, nested(101), annotation)
        assert "nested" in refusal(codecs, nested(50_000), annotation)


def test_i14_a_payload_over_the_limit_is_refused_with_both_sizes(codecs: Codecs) -> None:
    with pytest.raises(PayloadTooLarge, match=r"action charge is 3,\d\d\d,\d\d\d bytes, over the limit of 2,097,152"):
        codecs.encode("x" * 3_000_000, where=WHERE)
    assert codecs.encode("x" * 3_000_000, where=WHERE, limit=64 * 1024 * 1024)
    assert codecs.encode("x" * 8, where=WHERE, limit=10)


# --- with an annotation ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Item:
    name: str
    price: decimal.Decimal
    tags: frozenset[str] = frozenset()


@dataclasses.dataclass
class DiscountedItem(Item):
    discount: int = 0


@dataclasses.dataclass(eq=False)
class Unequal:
    n: int


@dataclasses.dataclass
class Note:
    text: str
    about: object
    more: list[object] = dataclasses.field(default_factory=list)


class Order(msgspec.Struct):
    id: uuid.UUID
    items: list[Item]
    at: dt.datetime | None = None


class Point(NamedTuple):
    x: int
    y: float


class Address(TypedDict, total=False):
    street: str
    number: int


class Customer(pydantic.BaseModel):
    name: str
    born: dt.date
    nick: str | None = pydantic.Field(default=None, alias="nickName")
    groups: set[str] = set()


T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    content: T


UserId = NewType("UserId", int)
AWARE = dt.datetime(2026, 5, 4, 12, 30, 15, 123456, tzinfo=dt.UTC)
ITEM = Item("pen", decimal.Decimal("1.50"), frozenset({"b", "a"}))


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (b"\x00\xff", bytes),
        (AWARE, dt.datetime),
        (dt.datetime(2026, 5, 4), dt.datetime),
        (dt.date(2026, 5, 4), dt.date),
        (dt.time(1, 2, 3), dt.time),
        (dt.timedelta(days=-3, microseconds=7), dt.timedelta),
        (uuid.UUID(int=7), uuid.UUID),
        (decimal.Decimal("1.500"), decimal.Decimal),
        (decimal.Decimal(2**70), decimal.Decimal),
        (Colour.RED, Colour),
        (Level.LOW, Level),
        ((1, "a"), tuple[int, str]),
        ((1, 2, 3), tuple[int, ...]),
        ((), tuple[()]),
        ({3, 1, 2}, set[int]),
        (frozenset({"a"}), frozenset[str]),
        ({Colour.RED, Colour.BLUE}, set[Colour]),
        ({1, None, "a"}, set[int | str | None]),
        ({frozenset({1}), frozenset({2})}, set[frozenset[int]]),
        ({1: "a", 2: "b"}, dict[int, str]),
        ({uuid.UUID(int=1): [1]}, dict[uuid.UUID, list[int]]),
        ({Colour.RED: 1}, dict[Colour, int]),
        ("a", Literal["a", "b"]),
        (None, int | None),
        (3, int | str),
        (UserId(3), UserId),
        (3, Annotated[int, msgspec.Meta(gt=2)]),
        (3, Annotated[int, {"unhashable": 1}]),
        (Point(1, 2.5), Point),
        ({"street": "High"}, Address),
        (ITEM, Item),
        (DiscountedItem("pen", decimal.Decimal(1), discount=3), DiscountedItem),
        (Order(uuid.UUID(int=1), [ITEM], AWARE), Order),
        (Order(uuid.UUID(int=1), [ITEM]), Order | None),
        (Box((1, 2)), Box[tuple[int, int]]),
        (Customer(name="Ada", born=dt.date(1815, 12, 10), nickName="A", groups={"x", "y"}), Customer),
        ([Customer(name="Ada", born=dt.date(1815, 12, 10))], list[Customer]),
        (None, None),
        ({"a": [1, {"b": None}]}, dict[str, Any]),
        ({"a": [1, {"b": None}], "c": None}, dict[str, object]),
        ([None, 1.5, ["x"]], list[object]),
        ((1, None), tuple[int, object]),
        ([1], object | None),
        (Note("a", {"b": [1]}, [2, "c"]), Note),
        (Note("a", None), Note | Unequal),
    ],
)
def test_i14_an_annotated_value_comes_back_as_itself(codecs: Codecs, value: object, annotation: object) -> None:
    back = round_trip(codecs, value, annotation)
    assert back == value
    assert type(back) is type(value)


def test_i14_a_dataclass_without_equality_is_compared_by_its_fields(codecs: Codecs) -> None:
    back = round_trip(codecs, Unequal(3), Unequal)
    assert isinstance(back, Unequal)
    assert back.n == 3


@pytest.mark.parametrize("value", [collections.defaultdict(int, a=1), collections.Counter("a")])
def test_i14_a_subclass_of_a_plain_type_becomes_the_annotated_type(codecs: Codecs, value: object) -> None:
    back = round_trip(codecs, value, dict[str, int])
    assert back == value
    assert type(back) is dict


def test_i14_an_int_becomes_the_float_that_its_annotation_asks_for(codecs: Codecs) -> None:
    assert repr(round_trip(codecs, 3, float)) == "3.0"
    assert repr(round_trip(codecs, [3, 1.5], list[float])) == "[3.0, 1.5]"
    refusal(codecs, 2**53 + 1, float)  # no float is equal to it
    refusal(codecs, True, float)


@pytest.mark.parametrize(
    ("value", "annotation", "reason"),
    [
        ("x", int, "int"),
        ({"a": "x"}, dict[str, int], "$"),
        ([1, (2,)], list[Any], "$[1] is a tuple and would come back as a list"),
        ({"a": {1: 2}}, dict[str, Any], "$.a has the key 1"),
        ([1, (2,)], list[object], "$[1] is a tuple and would come back as a list"),
        (Note("a", [(1,)]), Note, "$.about[0] is a tuple and would come back as a list"),
        ((1, 2), list[int], "is a tuple and would come back as a list"),
        (math.nan, float, "nan"),
        (math.inf, float | None, "float"),
        ([1.0, math.nan], list[float], ""),
        ([1.0, math.nan], list[float | None], "$[1]"),
        (2**64, int, "64 bits"),
        ([2**63], list[int], "$[0] is an integer outside of 64 bits"),
        (decimal.Decimal("NaN"), decimal.Decimal, "NaN"),
        (decimal.Decimal("Infinity"), decimal.Decimal, "Infinity"),
        (["\ud800"], list[str], "$[0] holds a lone surrogate"),
        (Item("\ud800", decimal.Decimal(1)), Item, "$.name holds a lone surrogate"),
        (DiscountedItem("pen", decimal.Decimal(1), discount=3), Item, "$ is a DiscountedItem"),
        (Order(uuid.UUID(int=1), [DiscountedItem("pen", decimal.Decimal(1))]), Order, "$.items[0] is a DiscountedItem"),
        (Order(uuid.UUID(int=1), [ITEM, Item("x", "free")]), Order, "$.items[1].price"),  # type: ignore[arg-type]
        (Level.LOW, int, "is a Level and would come back as a int"),
        ([Level.LOW], list[Any], "$[0] is a Level"),
        ({Level.LOW}, set[int], "element"),
        (Point(1, 2.0), tuple[int, float], "is a Point and would come back as a tuple"),
        ({"street": "High", "door": "left"}, Address, "'door'"),
        (1, Annotated[int, msgspec.Meta(gt=2)], ">= 3"),
        ("c", Literal["a", "b"], "'c'"),
        (dt.datetime(2026, 1, 1, fold=1), dt.datetime, "come back"),
        (dt.datetime(1800, 1, 1, tzinfo=zoneinfo.ZoneInfo("America/New_York")), dt.datetime, "come back"),
        (object(), Item, "object"),
        (3, Item, "Expected `Item`, got `int`"),
        (NotThere(), int, "a NotThere was not awaited. Fix: write await before the call"),
        ([NotThere()], list[int], "a NotThere was not awaited. Fix: write await before the call"),
    ],
)
def test_i14_what_would_not_come_back_equal_is_refused(value: object, annotation: object, reason: str) -> None:
    assert reason in refusal(CODECS["json"], value, annotation)
    if annotation is not dt.datetime and not (isinstance(value, dict) and annotation == dict[str, Any]):
        refusal(CODECS["msgpack"], value, annotation)  # which can hold more, but stores must not differ


@dataclasses.dataclass
class Counted:
    n: Any

    def __post_init__(self) -> None:
        self.n += 1


@dataclasses.dataclass
class Measured(Counted):
    n: float


@dataclasses.dataclass
class Summed(Counted):
    n: decimal.Decimal


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Hidden(pydantic.BaseModel):
    n: int = pydantic.Field(default=1, exclude=True)


class Samples(pydantic.BaseModel):
    values: list[float]


CHANGED = "__post_init__, validators and excluded fields"


@pytest.mark.parametrize(
    ("value", "annotation", "reason", "fix"),
    [
        (Counted(5), Counted, "$.n is 6 and would come back as 7", CHANGED),
        (Measured(5.0), Measured, "$.n is 6.0 and would come back as 7.0", CHANGED),
        (Summed(decimal.Decimal(5)), Summed, "$.n is Decimal('6') and would come back as Decimal('7')", CHANGED),
        (Hidden(n=2), Hidden, "$.n is 2 and would come back as 1", CHANGED),
        (Login(password="x"), Login, "$.password is a SecretStr", "look it up where it is used"),
        ([1.0, math.nan], list[float], "$[1] is nan, a float that JSON does not have", "pass None"),
        ([1.0, -math.inf], list[float | None], "$[1] is -inf", "pass None"),
        ({"a": [math.nan]}, dict[str, object], "$.a[0] is nan", "pass None"),
        (Samples(values=[math.nan]), Samples, "$.values[0] is nan", "pass None"),
        (2**53 + 1, float, "$ is a int and would come back as a float", "annotate it as int"),
        ({(1, 2): "a"}, dict[tuple[int, int], str], "$ has the key (1, 2) of type tuple", "a list of pairs"),
        ({"a": {True: 1}}, dict[str, dict[bool, int]], "$.a has the key True of type bool", "a list of pairs"),
        ([ITEM], list[Item | Unequal], "more than one dataclass", "make all of them msgspec structs with tag=True"),
        (1, complex, "no way is known", "use a struct, dataclass, pydantic model or standard type"),
    ],
)
def test_i14_a_refusal_says_what_is_wrong_and_what_helps(
    value: object, annotation: object, reason: str, fix: str
) -> None:
    with pytest.raises(PayloadRefused) as caught:
        CODECS["json"].encode(value, annotation, where=WHERE)
    assert reason in str(caught.value)
    assert fix in caught.value.hint


def test_i14_the_search_for_what_is_wrong_has_an_end_in_values_that_hold_themselves() -> None:
    endless: list[object] = [{"a": Opaque()}]
    endless += [endless, endless]
    assert "no way is known to write" in refusal(CODECS["json"], endless, list[Any])


def test_i14_bytes_that_pydantic_cannot_write_as_text_are_refused_with_the_setting_that_helps(codecs: Codecs) -> None:
    class Picture(pydantic.BaseModel):
        data: bytes

    class Encoded(Picture):
        model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    with pytest.raises(PayloadRefused, match="does not fit its annotation Picture") as raised:
        codecs.encode(Picture(data=b"\xff"), Picture, where="x")
    assert 'ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")' in raised.value.hint
    written = codecs.encode(Encoded(data=b"\xff"), Encoded, where="x")
    assert codecs.decode(written.data, Encoded, where="x", codec=written.codec) == Encoded(data=b"\xff")


def test_i14_pydantic_models_that_lose_something_are_refused(codecs: Codecs) -> None:
    class Base(pydantic.BaseModel):
        n: int
        secret: int = pydantic.Field(default=1, exclude=True)
        _private: int = pydantic.PrivateAttr(default=1)

    class Derived(Base):
        more: int = 2

    class Holder(pydantic.BaseModel):
        item: Base
        ratio: float = 1.0

    assert round_trip(codecs, Base(n=1), Base) == Base(n=1)
    assert "$.secret" in refusal(codecs, Base(n=1, secret=2), Base)
    private = Base(n=1)
    private._private = 5
    assert "$._private" in refusal(codecs, private, Base)
    wrong = Base(n=1)
    wrong.n = "x"  # type: ignore[assignment]
    assert "Expected `int`" in refusal(codecs, wrong, Base)
    refusal(codecs, Holder(item=Derived(n=1)), Holder)
    refusal(codecs, Holder(item=Base(n=1), ratio=math.nan), Holder)
    refusal(codecs, Derived(n=1), Base)


def test_i14_a_cached_property_that_was_read_is_no_part_of_a_pydantic_model(codecs: Codecs) -> None:
    class Square(pydantic.BaseModel):
        side: int

        @functools.cached_property
        def area(self) -> int:
            return self.side**2

    square = Square(side=3)
    assert square.area == 9
    assert round_trip(codecs, square, Square) == square


def test_i14_user_code_that_raises_while_encoding_is_a_refusal(codecs: Codecs) -> None:
    class Sour(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            if self.n > 1:
                raise RuntimeError("sour")

    value = Sour(1)
    value.n = 2
    assert "sour" in refusal(codecs, value, Sour)


class Opaque: ...


@pytest.mark.parametrize(
    "annotation",
    [Opaque, list[Opaque], type, complex, "Item", bytes | str, list[Item | Unequal], TypeVar("T").__class__],
)
def test_i14_an_annotation_that_nothing_can_store_is_refused_by_name(codecs: Codecs, annotation: object) -> None:
    message = refusal(codecs, 1, annotation)
    assert "can't be stored" in message


# --- unions of records -------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Created:
    total: decimal.Decimal
    tags: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Paid:
    at: dt.datetime
    by: dict[int, bytes] = dataclasses.field(default_factory=dict)


class Shipped(msgspec.Struct):
    items: list[Item]


Event = Created | Paid | Shipped | Customer


@pytest.mark.parametrize(
    "value",
    [
        Created(decimal.Decimal("1.50"), {"b", "a"}),
        Paid(AWARE, {1: b"\xff"}),
        Shipped([ITEM]),
        Customer(name="Ada", born=dt.date(1815, 12, 10)),
    ],
)
def test_i14_a_union_of_records_is_tagged_with_the_class_name(codecs: Codecs, value: object) -> None:
    assert round_trip(codecs, value, Event) == value
    assert round_trip(codecs, value, Event | None) == value
    assert round_trip(codecs, value, Event | str) == value
    data = codecs.encode(value, Event, where=WHERE).data
    decoded = codecs.default.decode(data, dict)
    assert isinstance(decoded, dict)
    assert decoded["type"] == type(value).__name__


def test_i14_a_union_refuses_strangers_and_what_it_cannot_tell_apart(codecs: Codecs) -> None:
    assert round_trip(codecs, None, Event | None) is None
    assert round_trip(codecs, "x", Event | str) == "x"
    assert "expected one of Created, Paid" in refusal(codecs, ITEM, Event)
    assert "can't be told apart" in refusal(codecs, {}, Created | Paid | dict[str, int])
    foreign = codecs.default.encode({"type": "Gone"})
    with pytest.raises(PayloadRefused, match="unknown type 'Gone'"):
        codecs.decode(foreign, Event, where=WHERE)

    @dataclasses.dataclass
    class Typed:
        type: str

    assert "field 'type' of its own" in refusal(codecs, Typed("x"), Created | Typed)


# --- round trips of generated values -----------------------------------------------------------------------------

typed_values = st.one_of(
    st.tuples(st.binary(), st.just(bytes)),
    st.tuples(
        st.datetimes(timezones=st.just(dt.UTC) | st.none()).map(lambda moment: moment.replace(fold=0)),
        st.just(dt.datetime),
    ),
    st.tuples(st.dates(), st.just(dt.date)),
    st.tuples(st.uuids(), st.just(uuid.UUID)),
    st.tuples(st.decimals(allow_nan=False, allow_infinity=False), st.just(decimal.Decimal)),
    st.tuples(st.sets(integers), st.just(set[int])),
    st.tuples(st.frozensets(text), st.just(frozenset[str])),
    st.tuples(st.tuples(text, finite), st.just(tuple[str, float])),
    st.tuples(st.dictionaries(integers, text), st.just(dict[int, str])),
    st.tuples(st.lists(st.sets(text)), st.just(list[set[str]])),
    st.tuples(st.builds(Item, text, st.decimals(allow_nan=False, allow_infinity=False)), st.just(Item)),
    st.tuples(st.builds(Created, st.just(decimal.Decimal(1)), st.sets(text)), st.just(Event)),
    st.tuples(st.builds(Customer, name=text, born=st.dates(), nickName=text, groups=st.sets(text)), st.just(Customer)),
)


@given(case=typed_values, tag=st.sampled_from(sorted(CODECS)))
def test_i14_generated_values_round_trip_with_equal_bytes(case: tuple[object, object], tag: str) -> None:
    value, annotation = case
    codecs = CODECS[tag]
    data = codecs.encode(value, annotation, where=WHERE).data
    back = codecs.decode(data, annotation, where=WHERE)
    assert back == value
    assert type(back) is type(value)
    assert codecs.encode(back, annotation, where=WHERE).data == data


@given(value=st.recursive(st.none() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
                          lambda inner: st.lists(inner) | st.dictionaries(st.integers() | st.text(), inner)
                          | st.tuples(inner), max_leaves=10),
       annotation=st.sampled_from([UNTYPED, list, dict, int, float, str, bytes, list[int], dict[str, Any], tuple[Any]]),
       tag=st.sampled_from(sorted(CODECS)))  # fmt: skip
def test_i14_any_value_is_stored_faithfully_or_refused(value: object, annotation: object, tag: str) -> None:
    codecs = CODECS[tag]
    try:
        data = codecs.encode(value, annotation, where=WHERE).data
    except PayloadRefused:
        return
    assert codecs.decode(data, annotation, where=WHERE) == value
