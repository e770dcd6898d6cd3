"""Time zones in payloads: an offset comes back, rules would not and are refused (I14)."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pydantic
import pytest

from holdfast.core.codec import MSGPACK, Codecs
from tests.core.test_codec import codecs as codecs
from tests.core.test_codec import refusal, round_trip

AHEAD = dt.timezone(dt.timedelta(hours=5, minutes=30))
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("value", [dt.datetime(2026, 5, 4, 12, 30, tzinfo=AHEAD), dt.time(12, 30, tzinfo=AHEAD)])
def test_i14_a_fixed_offset_comes_back_or_is_refused(codecs: Codecs, value: dt.datetime | dt.time) -> None:
    """I14: MessagePack keeps moments in UTC only."""
    if codecs.default is MSGPACK and isinstance(value, dt.datetime):
        assert "would come back" in refusal(codecs, value, dt.datetime)
        return
    back = round_trip(codecs, value, type(value))
    assert isinstance(back, type(value))
    assert (back, back.utcoffset(), back.tzinfo) == (value, value.utcoffset(), AHEAD)


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
        dt.datetime(2026, 10, 24, 12, tzinfo=BERLIN),
        dt.time(2, 30, tzinfo=BERLIN),
    ],
)
def test_i14_a_time_zone_with_rules_is_refused(codecs: Codecs, value: dt.datetime | dt.time, fold: int) -> None:
    """I14: only its offset would come back, and a day added to it may then be another hour."""
    value = value.replace(fold=fold)
    assert "would come back" in refusal(codecs, value, type(value))
    assert "would come back" in refusal(codecs, [value], list[type(value)])  # type: ignore[misc]
    if isinstance(value, dt.datetime):
        moment = value.astimezone(dt.UTC)
        assert round_trip(codecs, moment, dt.datetime) == moment


def test_i14_utc_is_utc_whatever_object_stands_for_it(codecs: Codecs) -> None:
    """I14: it has no rules, so that no calculation can tell the difference."""
    value = dt.datetime(2026, 5, 4, tzinfo=zoneinfo.ZoneInfo("UTC"))
    back = round_trip(codecs, value, dt.datetime)
    assert isinstance(back, dt.datetime)
    assert (back, back.tzinfo) == (value, dt.UTC)


def test_i14_a_pydantic_model_may_hold_its_own_kind_of_utc(codecs: Codecs) -> None:
    class Meeting(pydantic.BaseModel):
        at: dt.datetime

    for meeting in (
        Meeting(at=dt.datetime(2026, 5, 4, 12, 30, 15, 123456, tzinfo=dt.UTC)),
        Meeting.model_validate({"at": "2026-05-04T12:30:00+05:30"}),
    ):
        assert round_trip(codecs, meeting, Meeting) == meeting
