"""Retry policies: attempts are executions, delays repeat, wrong values fail where they are written."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import NonRetryable, UsageError
from holdfast.core.retry import ACTION_RETRY, EFFECT_RETRY, TIMER_RETRY, Retry


def test_i3_attempts_count_executions() -> None:
    policy = Retry(attempts=3)
    assert [policy.gives_another(n) for n in (1, 2, 3, 4)] == [True, True, False, False]
    assert not Retry().gives_another(1)


@given(
    run=st.text(st.characters()),
    node=st.text(),
    attempt=st.integers(1, 20_000),
    base=st.floats(0, 1e300),
    factor=st.floats(1, 1e6),
)
def test_i3_a_delay_repeats_and_stays_between_the_bounds(
    run: str, node: str, attempt: int, base: float, factor: float
) -> None:
    policy = Retry(attempts=2, base=base, cap=base * factor)
    delay = policy.delay_seconds(run, node, attempt)
    assert delay == policy.delay_seconds(run, node, attempt)
    assert min(base, policy.cap) <= delay <= policy.cap
    if attempt < 60 and base * 2 ** (attempt - 1) <= policy.cap:
        assert delay >= base * 2 ** (attempt - 1)


def test_i3_the_cap_includes_the_jitter() -> None:
    policy = Retry(attempts=9, base=1.0, cap=1.0)
    assert {policy.delay_seconds("r", "n", n) for n in range(1, 9)} == {1.0}


def test_i3_jitter_is_below_the_base_and_differs_by_run_node_and_attempt() -> None:
    policy = Retry(attempts=2, base=1.0, cap=1e9)
    delays = [policy.delay_seconds(f"run-{i}", "charge", 1) for i in range(500)]
    assert len(set(delays)) == 500
    assert all(1.0 <= delay < 2.0 for delay in delays)
    assert 1.4 < sum(delays) / 500 < 1.6
    assert policy.delay_seconds("ab", "c", 1) != policy.delay_seconds("a", "bc", 1)


def test_i3_delays_are_fixed_for_ever() -> None:
    """Stored due times and simulations rest on these values; a change of the formula must not go unnoticed."""
    policy = Retry(attempts=5, base=1.0, cap=60.0)
    assert [round(policy.delay_seconds("run", "charge", n), 9) for n in (1, 2, 3)] == [
        1.974307062,
        2.596444571,
        4.00704012,
    ]


def test_i3_attempt_ten_thousand_does_not_overflow() -> None:
    assert Retry(attempts=2, base=0.5, cap=60.0).delay_seconds("r", "n", 10_000) == 60.0
    assert Retry(attempts=2, base=0, cap=60.0).delay_seconds("r", "n", 10_000) == 0.0


def test_i3_attempts_are_numbered_from_one() -> None:
    with pytest.raises(UsageError, match="numbered from 1"):
        Retry().delay_seconds("r", "n", 0)


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        ({"attempts": 0}, "attempts=0"),
        ({"attempts": -3}, "attempts=-3"),
        ({"attempts": True}, "attempts=True"),
        ({"attempts": 2.0}, "attempts=2.0"),
        ({"base": -1.0}, "base=-1.0"),
        ({"base": math.nan}, "base=nan"),
        ({"base": "1"}, "base='1'"),
        ({"base": True}, "base=True"),
        ({"cap": math.inf}, "cap=inf"),
        ({"base": 10.0, "cap": 5.0}, "base=10.0, cap=5.0"),
        ({"retry_on": "ValueError"}, "retry_on='ValueError'"),
        ({"retry_on": int}, "retry_on=<class 'int'>"),
        ({"retry_on": (ValueError, 3)}, "3"),
    ],
)
def test_i3_a_wrong_policy_fails_when_built_and_shows_the_value(wrong: dict[str, Any], shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        Retry(**wrong)
    assert shown in str(caught.value)


def test_i3_retry_on_takes_a_type_a_tuple_or_a_predicate() -> None:
    assert Retry(retry_on=OSError).allows(ConnectionError())
    assert not Retry(retry_on=OSError).allows(ValueError())
    assert Retry(retry_on=(OSError, ValueError)).allows(ValueError())
    assert not Retry(retry_on=()).allows(ValueError())
    assert Retry(retry_on=lambda error: "busy" in str(error)).allows(ValueError("busy"))
    assert not Retry(retry_on=lambda error: "busy" in str(error)).allows(ValueError("gone"))


def test_i3_non_retryable_always_stops() -> None:
    class Declined(NonRetryable, ValueError): ...

    for policy in (
        Retry(),
        Retry(retry_on=NonRetryable),
        Retry(retry_on=BaseException),
        Retry(retry_on=lambda _: True),
    ):
        assert not policy.allows(NonRetryable("no"))
        assert not policy.allows(Declined("no"))


@pytest.mark.parametrize("stop", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_i3_what_stops_the_program_is_never_retried(stop: BaseException) -> None:
    assert not Retry(retry_on=BaseException).allows(stop)
    assert not Retry(retry_on=lambda _: True).allows(stop)


def test_i3_a_predicate_that_raises_counts_as_no_and_leaves_a_note() -> None:
    def broken(error: BaseException) -> bool:
        raise KeyError("oops")

    error = ValueError("the real error")
    assert not Retry(retry_on=broken).allows(error)
    assert "broken" in error.__notes__[0]
    assert "KeyError" in error.__notes__[0]


def test_i4_defaults_of_policies() -> None:
    assert Retry(attempts=1) == ACTION_RETRY
    assert Retry(attempts=5, base=1.0, cap=300.0) == EFFECT_RETRY == TIMER_RETRY


def test_a_policy_is_frozen_and_its_description_is_json() -> None:
    policy = Retry(attempts=2, retry_on=(OSError, UsageError))
    with pytest.raises(AttributeError):
        policy.attempts = 3  # type: ignore[misc]
    assert json.loads(json.dumps(policy.describe())) == {
        "attempts": 2,
        "base": 1.0,
        "cap": 60.0,
        "retry_on": ["OSError", "holdfast.core.errors.UsageError"],
    }
    assert "lambda" in str(Retry(retry_on=lambda _: True).describe()["retry_on"])
