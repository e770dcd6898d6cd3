"""`holdfast.testing.given`: decisions without a store, and failures that show both sides."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Never

import pytest

import holdfast as hf
from holdfast.testing import given
from tests.deciders.authoring_world import (
    Add,
    Added,
    Body,
    Cancelled,
    Create,
    Created,
    Order,
    OrderState,
    Paid,
    Pay,
    PaymentTimeout,
    Poke,
    Poked,
    Poking,
    Refused,
    SendEmail,
    Ship,
    Shipped,
    Status,
    made,
)

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
CREATED = Created(Decimal("9.90"), NOON)


def test_a_decision_is_given_as_events_effects_and_timers() -> None:
    """The whole of a first decision, and the state after it."""
    (
        given(Order, at=NOON)
        .when(Create("17", Decimal("9.90")))
        .then_events(CREATED)
        .then_effects(SendEmail("ada"))
        .then_timers((timedelta(minutes=30), PaymentTimeout("17"), "payment"))
        .then_no_timer_cancelled()
        .then_state(OrderState(Status.OPEN, Decimal("9.90")))
        .then_terminal(False)
    )


def test_payment_cancels_the_timer() -> None:
    """As the page on deciders shows it."""
    (
        given(Order, [CREATED])
        .when(Pay("17", "p1"))
        .then_events(Paid("p1"))
        .then_timer_cancelled("payment")
        .then_no_timers()
        .then_effects(Ship("17"))
    )


def test_several_inputs_follow_each_other_and_time_moves_between() -> None:
    later = NOON + timedelta(days=1)
    story = given(Order, at=NOON).when(Create("17", Decimal(1)), now=later).then_events(Created(Decimal(1), later))
    story.then_timers((1800, PaymentTimeout("17"), "payment"))
    story.when(PaymentTimeout("17"), now=later + timedelta(minutes=30)).then_events(Cancelled()).then_terminal()
    story.when(Pay("17")).then_ignored().then_events().then_no_effects().then_state(lambda s: not s.notes)


def test_a_timer_may_be_expected_by_its_instant() -> None:
    at = NOON + timedelta(minutes=30)
    given(Order, at=NOON).when(Create("17", Decimal(1))).then_timers((at, PaymentTimeout("17"), "payment"))


def test_i34_an_instance_that_has_ended_ignores_its_inputs() -> None:
    """I34: later inputs are accepted without effect, as in the engine."""
    given(Order, [CREATED, Cancelled()]).when(Pay("17")).then_ignored().then_events().then_no_timers().then_terminal()


FAILURES: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: paid().then_events(Refused("no")), "Refused(reason='no')", "Paid(payment_id='p1')"),
    (lambda: paid().then_events(), "nothing", "Paid(payment_id='p1')"),
    (lambda: paid().then_effects(SendEmail("x")), "SendEmail(to='x')", "Ship(order_id='17')"),
    (lambda: paid().then_no_effects(), "nothing", "Ship(order_id='17')"),
    (lambda: paid().then_timers((1, PaymentTimeout("17"))), "after 0:00:01", "nothing"),
    (lambda: created().then_no_timers(), "nothing", "after 0:30:00"),
    (lambda: created().then_timers((1800, PaymentTimeout("17"))), "key None", "key 'payment'"),
    (lambda: created().then_timer_cancelled("payment"), "'payment'", "nothing"),
    (lambda: paid().then_no_timer_cancelled(), "nothing", "'payment'"),
    (lambda: paid().then_state(OrderState()), "status=<Status.NEW", "status=<Status.PAID"),
    (lambda: paid().then_state(is_cancelled), "is_cancelled is true", "status=<Status.PAID"),
    (lambda: paid().then_terminal(), "that is terminal", "status=<Status.PAID"),
    (lambda: paid().then_ignored(), "nothing", "Paid(payment_id='p1')"),
    (lambda: paid().then_raises(ValueError), "ValueError", "nothing was raised"),
]


def paid() -> Any:
    return given(Order, [CREATED]).when(Pay("17", "p1"))


def created() -> Any:
    return given(Order, at=NOON).when(Create("17", Decimal(1)))


def is_cancelled(state: OrderState) -> bool:
    return state.status is Status.CANCELLED


@pytest.mark.parametrize(("story", "expected", "got"), FAILURES)
def test_a_failed_expectation_shows_what_was_expected_and_what_came(
    story: Callable[[], Any], expected: str, got: str
) -> None:
    with pytest.raises(AssertionError) as caught:
        story()
    before, _, after = str(caught.value).partition("\ngot:")
    assert expected in before
    assert got in after


def test_a_decision_that_fails_is_expected_by_its_error_and_leaves_the_state() -> None:
    story = given(Poking, [Poked(1)]).when(Poke("1", "raise")).then_raises(ValueError, match="too h").then_state(1)
    story.when(Poke("1", "raise")).then_raises(hf.DecideFailed)  # what the caller of execute gets
    story.when(Poke("1")).then_state(2).then_events(Poked(1.0))


def test_i35_a_decision_without_events_fails_here_too() -> None:
    """I35: it is the author's error, named with the decider and the input."""
    given(Poking).when(Poke("1", "empty")).then_raises(hf.DecideFailed, match=r"Poking.*Poke.*without an event")


def test_i14_what_the_engine_could_not_store_fails_here_too() -> None:
    """I14: refused before anything is written, so a test has to see it as well."""
    given(Poking).when(Poke("1", "nan")).then_raises(hf.PayloadRefused, match="Poked")


def test_a_state_that_a_failed_decision_changed_in_place_is_as_it_was() -> None:
    """As in the engine, where nothing of a failed decision remains."""

    class Careless(Body):
        def initial(self) -> Any:
            return [0]

        def evolve(self, state: Any, event: Any) -> Any:
            state.append(event.n)
            return state

        def decide(self, now: datetime, state: Any, input: Any) -> Any:
            state.append("spoilt")
            raise ValueError("too late")

    story = given(made(list[int], Add, Added, Never, bases=(Careless,)), [Added(1)])
    story.when(Add("1")).then_raises(ValueError).then_state([0, 1])


def test_an_error_that_nobody_expected_is_raised_by_whatever_is_asked_next() -> None:
    """A `when` that failed cannot pass for one that went well."""
    failed = given(Poking).when(Poke("1", "raise"))
    for ask in (
        lambda: failed.then_events(),
        lambda: failed.then_state(0),
        lambda: failed.then_terminal(False),
        lambda: failed.when(Poke("1")),
        lambda: failed.state,
    ):
        with pytest.raises(ValueError, match="too hard"):
            ask()
    with pytest.raises(AssertionError, match=r"(?s)KeyError.*got:.*ValueError: too hard"):
        failed.then_raises(KeyError)


def test_inputs_of_another_instance_are_refused() -> None:
    given(Poking, workflow_id="1").when(Poke("2")).then_raises(hf.UsageError, match="'2'")
    story = given(Poking).when(Poke("1"))
    story.when(Poke("2")).then_raises(hf.UsageError, match="is for instance '2'")


def test_asking_before_anything_was_decided_says_so() -> None:
    with pytest.raises(hf.UsageError, match="nothing was decided"):
        given(Order).then_events()


def test_a_foreign_event_behind_an_instance_is_refused() -> None:
    with pytest.raises(hf.UsageError, match="no event of order"):
        given(Order, [Shipped("17")])  # type: ignore[list-item]
