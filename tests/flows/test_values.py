"""Values of a flow's variables: what goes into an inbox comes out as itself, or is refused before it is written."""

from __future__ import annotations

import datetime
import enum
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import FlowNotSupported, PayloadRefused
from holdfast.core.flow_operations import attribute
from holdfast.core.flow_values import UNBOUND, Raised, decode_value, encode_value, qualified_name, raised


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: Any = None


@dataclass
class Derived:
    base: int
    twice: int = 0

    def __post_init__(self) -> None:
        self.twice += self.base * 2


class Record(msgspec.Struct):
    name: str
    points: list[Point] = []


class Model(pydantic.BaseModel):
    name: str
    size: int = 1


class Pair(NamedTuple):
    left: int
    right: str


KNOWN = {qualified_name(kind): kind for kind in (Level, Access, Point, Derived, Record, Model, Pair)}

VALUES = [
    None, True, 1, -(2**63), 2**64, -(10**40), 1.5, -0.0, math.inf, "", "ü\0", [], [1, [2]], {}, {"a": {"b": None}},
    {"$": 1}, {"$": "tuple", "v": [1]}, {1: "a", (2, 3): "b", None: []}, (), (1, (2,)), {1, 2}, frozenset({"a"}),
    b"\0\xff", range(2, 9, 3), datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.datetime(2026, 10, 25, 2, 30, fold=1), datetime.date(2026, 1, 2), datetime.time(1, 2, 3),
    datetime.timedelta(days=-1, microseconds=5), Decimal("1.10"), Decimal("NaN"), uuid.UUID(int=5), 1 + 2j, Level.HIGH,
    Access.READ | Access.WRITE, Point(1, Point(2, (3,))), Derived(4), Record("r", [Point(1)]), Model(name="m"),
    Pair(1, "x"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=[repr(value)[:60] for value in VALUES])
def test_i22_a_value_comes_back_as_itself(value: Any) -> None:
    back = decode_value(encode_value(value, KNOWN), KNOWN)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_i14_a_model_comes_back_with_the_fields_that_were_given() -> None:
    for value in (Model(name="m"), Model(name="m", size=1)):
        assert decode_value(encode_value(value, KNOWN), KNOWN).model_fields_set == value.model_fields_set
    stored = encode_value(Model(name="m", size=1), KNOWN)  # as versions wrote it that noted nothing
    assert decode_value(stored, KNOWN).model_fields_set == {"name", "size"}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.just("$"), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(plain)
def test_i22_nested_values_come_back_as_themselves(value: Any) -> None:
    try:
        data = encode_value(value, KNOWN)
    except PayloadRefused:
        assert any("\ud800" <= c <= "\udfff" for c in repr(value)) or "\\ud" in repr(value)
        return
    assert repr(decode_value(data, KNOWN)) == repr(value)


def test_i22_what_could_not_come_back_is_refused_with_its_name() -> None:
    class Local:
        pass

    with pytest.raises(PayloadRefused, match="a Local, which a flow's variable can't hold"):
        encode_value(Local(), KNOWN)
    with pytest.raises(PayloadRefused, match=r"total is a .*Point, which neither"):
        encode_value(Point(1), {}, "total")
    zoned = datetime.datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))
    with pytest.raises(PayloadRefused, match="time zone with rules"):
        encode_value(zoned, KNOWN)
    with pytest.raises(PayloadRefused, match="which neither the flow nor its actions name any more"):
        decode_value(encode_value(Level.LOW, KNOWN), {})


def test_i22_a_type_of_the_main_program_is_found_under_its_module() -> None:
    data = encode_value(Level.LOW, KNOWN).replace(b"tests.flows.test_values.", b"__main__.")
    assert decode_value(data, KNOWN) is Level.LOW


def test_i21_a_failure_is_a_value_that_survives_its_class() -> None:
    failure = raised(KeyError("sku", 7))
    back = decode_value(encode_value([failure, UNBOUND], KNOWN), {})
    assert isinstance(back[0], Raised)
    assert str(back[0]) == str(KeyError("sku", 7))
    assert repr(back[0]) == "KeyError('sku', 7)"
    assert back[0].args == ("sku", 7)
    assert back[0].is_a(LookupError)
    assert not back[0].is_a(ValueError)
    assert back[1] is UNBOUND


def test_i21_arguments_that_could_not_be_kept_are_never_replaced_by_others() -> None:
    record = raised(ValueError(object())).record
    failure = Raised(record)
    assert failure.args is None
    assert repr(failure) == "ValueError(<arguments not kept>)"
    with pytest.raises(FlowNotSupported, match="can't read 'args' of this ValueError"):
        attribute(failure, "args")
    with pytest.raises(FlowNotSupported, match="can't read 'code'"):
        attribute(raised(ValueError("x")), "code")


class Unreachable(ConnectionError):
    """Says what it likes."""

    def __str__(self) -> str:
        return "unreachable"


def _with_number(error: OSError) -> OSError:
    error.errno = 5
    return error


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "a.txt"),
        FileExistsError(17, "File exists", "a.txt", None, "b.txt"),
        ConnectionRefusedError(111, "Connection refused"),
    ],
)
def test_i21_a_failure_of_the_system_keeps_its_number_and_file(error: OSError) -> None:
    for made_by_the_flow in (True, False):
        failure = raised(error)
        failure = failure if made_by_the_flow else Raised(failure.record)
        back = decode_value(encode_value(failure, {}), {})
        for name in ("args", "errno", "strerror", "filename", "filename2"):
            assert attribute(back, name) == getattr(error, name), name
        assert repr(back) == repr(error)


@pytest.mark.parametrize("error", [_with_number(OSError("text")), Unreachable(111, "refused"), ValueError(2, "x")])
def test_i21_a_number_of_the_system_that_may_be_another_is_refused(error: Exception) -> None:
    with pytest.raises(FlowNotSupported, match="can't read 'errno'"):
        attribute(raised(error), "errno")
