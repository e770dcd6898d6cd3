"""Times as people write and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.times import parse_duration, parse_instant, shown_age, shown_distance, shown_seconds

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("2h30m", 9000), ("30d", 2_592_000), ("1w", 604_800), ("0.5s", 0.5)]
)
def test_lengths_of_time_are_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1 d", "9" * 30 + "d"])
def test_what_is_no_length_of_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"length of time|hundred years"):
        parse_duration(text)


def test_an_instant_is_absolute_or_counted_from_now() -> None:
    assert parse_instant("+2h", NOW, 1) == NOW + timedelta(hours=2)
    assert parse_instant("2h", NOW, -1) == NOW - timedelta(hours=2)
    assert parse_instant("2031-05-01T14:00:00+02:00", NOW, 1) == NOW
    assert parse_instant("2031-05-01T12:00:00Z", NOW, 1) == NOW
    assert parse_instant("2031-05-01", NOW, 1).tzinfo is not None


def test_distances_are_words_and_durations_have_the_digits_that_matter() -> None:
    assert shown_distance(NOW - timedelta(minutes=3), NOW) == "3 minutes ago"
    assert shown_distance(NOW + timedelta(hours=1), NOW) == "in 1 hour"
    assert shown_distance(NOW, NOW) == "just now"
    assert shown_age(NOW - timedelta(days=2), NOW) == "2d ago"
    assert shown_age(NOW + timedelta(seconds=1), NOW) == "0s ago"
    assert [shown_seconds(value) for value in (0.0031, 2.54, 250, 7500, 273_600)] == [
        "3 ms",
        "2.5 s",
        "4m 10s",
        "2h 05m",
        "3d 4h",
    ]
