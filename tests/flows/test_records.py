"""Records of every library in the variables of a flow: those that a function takes, a flow takes too."""

from __future__ import annotations

import asyncio
import datetime
import enum
import functools
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

import holdfast as hf
from holdfast.authoring.flow_building import Building
from holdfast.authoring.flow_constants import learn_hints
from holdfast.core.errors import PayloadRefused
from holdfast.core.flow_values import decode_value, encode_value, qualified_name
from holdfast.testing import parity

T = TypeVar("T")


@dataclass
class Price:
    cents: int


Priced = TypeVar("Priced", bound=Price)
Amount = NewType("Amount", Price)


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Shelf(Generic[T]):
    boxes: list[Box[T]]


@dataclass
class PriceTag(Generic[Priced]):
    price: Priced


class Parcel(msgspec.Struct, Generic[T]):
    content: T


class Couple(NamedTuple, Generic[T]):
    one: T
    other: T


class Holder(pydantic.BaseModel, Generic[T]):
    content: T


class PriceBox(Box[Price]):
    pass


class PriceParcel(Parcel[Price]):
    pass


class PriceHolder(Holder[Price]):
    pass


class Listed(TypedDict):
    price: Price


@pydantic.dataclasses.dataclass(frozen=True)
class Account:
    owner: str
    limit: pydantic.PositiveInt


@pydantic.dataclasses.dataclass(slots=True, config=pydantic.ConfigDict(validate_assignment=True))
class Ledger:
    accounts: list[Account]


class Meeting(pydantic.BaseModel):
    at: datetime.datetime
    until: datetime.time


class Swapped(pydantic.BaseModel):
    a: int = pydantic.Field(alias="b")
    b: int = pydantic.Field(alias="a")


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    n: int
    _seen: int = pydantic.PrivateAttr(default=0)

    def model_post_init(self, context: object) -> None:
        self.n += 1

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.n


class Names(pydantic.RootModel[list[str]]):
    pass


# --- through an engine -------------------------------------------------------------------------------------------

registry = hf.Registry()


@hf.action(registry=registry)
async def check_account(account: Account) -> Account:
    return account


@hf.action(registry=registry)
async def move(meeting: Meeting) -> Meeting:
    return meeting.model_copy(update={"at": meeting.at + datetime.timedelta(hours=1)})


@hf.action(registry=registry)
async def pack_again(box: Box[Price]) -> Box[Price]:
    return Box(Price(box.content.cents + 1))


async def accounts(account: Account) -> Account:
    checked = await check_account(account)
    await asyncio.sleep(0.001)
    return await check_account(checked)


async def meetings(meeting: Meeting) -> Meeting:
    moved = await move(meeting)
    await asyncio.sleep(0.001)
    return await move(moved)


async def boxes(box: Box[Price]) -> Box[Price]:
    packed = await pack_again(box)
    await asyncio.sleep(0.001)
    return await pack_again(packed)


NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
EASTERN = datetime.timezone(datetime.timedelta(hours=-5))


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (accounts, Account("ada", 5)),
        (meetings, Meeting(at=NOON, until=datetime.time(1, tzinfo=datetime.UTC))),
        (meetings, Meeting(at=NOON.astimezone(EASTERN), until=datetime.time(1))),
        (boxes, Box(Price(5))),
    ],
)
async def test_i14_a_record_that_a_function_takes_is_one_for_a_flow(function: Any, value: Any) -> None:
    await parity(function, value, registry=registry)


# --- value by value ----------------------------------------------------------------------------------------------


def known_by(*hints: Any) -> dict[str, type]:
    building = Building()
    for hint in hints:
        learn_hints(building, hint)
    return building.types


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Box[Price], Box(Price(1))),
        (Box[int], Box[int](1)),
        (Parcel[Price], Parcel(Price(1))),
        (Couple[Price], Couple(Price(1), Price(2))),
        (Shelf[Price], Shelf([Box(Price(1))])),
        (Annotated[Box[Price], "a note"] | None, Box(Price(1))),
        (dict[str, list[Parcel[Price]]], {"a": [Parcel(Price(1))]}),
        (PriceBox, PriceBox(Price(1))),
        (PriceParcel, PriceParcel(Price(1))),
        (PriceTag, PriceTag(Price(1))),
        (Holder[Price], Holder[Price](content=Price(1))),
        (PriceHolder, PriceHolder(content=Price(1))),
        (Amount, Price(1)),
        (Listed, {"price": Price(1)}),
    ],
    ids=str,
)
def test_i14_an_annotation_names_the_types_of_all_values_that_it_allows(hint: Any, value: Any) -> None:
    known = known_by(hint)
    back = decode_value(encode_value(value, known), known)
    assert back == value
    assert type(back) is type(value)


def test_i14_pydantic_classes_come_back_with_what_they_held() -> None:
    known = known_by(Ledger, Meeting, Swapped, Open, Names)
    held = Open(n=1, more=[1])
    held._seen = 7
    assert held.twice == 4
    for value in (
        Ledger([Account("ada", 5)]),
        Meeting.model_validate_json('{"at": "2026-01-01T12:00:00Z", "until": "01:00:00+02:00"}'),
        Swapped(a=1, b=2),
        held,
        Names(["ada"]),
    ):
        back = decode_value(encode_value(value, known), known)
        assert back == value
        assert type(back) is type(value)
    assert decode_value(encode_value(held, known), known).model_dump() == {"n": 2, "more": [1]}


def test_i14_a_model_that_was_written_before_it_had_a_field_has_its_default() -> None:
    class Newer(pydantic.BaseModel):
        n: int
        added: list[int] = pydantic.Field(default_factory=lambda: [1])

    data = encode_value(Open(n=1), known_by(Open)).replace(b".Open", b".Newer")
    assert decode_value(data, {qualified_name(Open).replace("Open", "Newer"): Newer}) == Newer(n=2)


# --- what can't be read ------------------------------------------------------------------------------------------


@dataclass
class NeedsAnArgument:
    n: int

    def __new__(cls, n: int) -> NeedsAnArgument:
        return super().__new__(cls)


class Signed(msgspec.Struct):
    text: str

    def __post_init__(self) -> None:
        if self.text.endswith("!"):
            raise ValueError("signed twice")
        self.text += "!"


class Point(NamedTuple):
    x: int
    y: int


class Diagonal(Point):
    def __new__(cls, both: int) -> Diagonal:
        return super().__new__(cls, both, both)


class Ratio(enum.Enum):
    NONE = float("nan")
    HALF = 0.5


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (NeedsAnArgument(1), "missing 1 required positional argument: 'n'"),
        (Signed("x"), "ValueError: signed twice"),
        (Diagonal(1), "takes 2 positional arguments but 3 were given"),
        (Ratio.NONE, "nan is not a valid Ratio"),
    ],
    ids=str,
)
def test_i14_what_could_never_be_read_again_is_refused_before_it_is_written(value: Any, why: str) -> None:
    with pytest.raises(PayloadRefused, match=f"tag is a .*can't be made again of its own values: .*{why}"):
        encode_value([value], known_by(type(value)), "tag")


def test_i14_code_of_a_type_that_takes_what_it_holds_is_no_obstacle() -> None:
    class Upper(msgspec.Struct):
        text: str

        def __post_init__(self) -> None:
            self.text = self.text.upper()

    known = known_by(Upper, Point, Ratio)
    for value in (Upper("x"), Point(1, 2), Ratio.HALF):
        assert decode_value(encode_value(value, known), known) == value
