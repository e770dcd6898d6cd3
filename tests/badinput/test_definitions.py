"""Definitions that cannot be right are refused where they are written, not when they run."""

from __future__ import annotations

import math
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.dags import FrozenInstance
from tests.badinput.checks import refused


def test_i25_a_cycle_names_the_tasks_in_it() -> None:
    with refused(hf.DagError, "Circle", "first", "second"):

        class Circle(hf.Dag, registry=hf.Registry()):
            @hf.task(depends_on="second")
            async def first(self) -> None: ...

            @hf.task(depends_on="first")
            async def second(self) -> None: ...


def test_i25_two_positions_on_one_step_are_refused() -> None:
    with refused(hf.DagError, "middle"):

        class Torn(hf.Dag, registry=hf.Registry()):
            @hf.step
            async def first(self) -> None: ...

            @hf.step(after_step="first", before_step="first")
            async def middle(self) -> None: ...


def test_i25_an_unknown_target_or_dependency_comes_with_the_nearest_name() -> None:
    with refused(hf.DagError, "Order", "valdate", fix="validate"):

        class Order(hf.Dag, registry=hf.Registry()):
            @hf.step
            async def validate(self) -> None: ...

            @hf.task(depends_on="valdate")
            async def check(self) -> None: ...


def test_i25_a_repeated_node_name_is_refused() -> None:
    with refused(hf.DagError, "charge"):

        class Order(hf.Dag, registry=hf.Registry()):
            @hf.step(name="charge")
            async def first(self) -> None: ...

            @hf.step(name="charge")
            async def second(self) -> None: ...


def test_i15_a_second_definition_under_a_taken_name_shows_both_places() -> None:
    registry = hf.Registry()

    @hf.action(registry=registry, name="send")
    async def first() -> None: ...

    with refused(hf.UsageError, "'send'", "first", "second", fix="name=") as refusal:

        @hf.action(registry=registry, name="send")
        async def second() -> None: ...

    assert refusal.text.count(__file__) == 2


def test_a_job_that_is_no_action_of_the_registry_is_refused_when_the_class_is_made() -> None:
    @hf.action(registry=hf.Registry())
    async def elsewhere() -> None: ...

    with refused(hf.DagError, "elsewhere"):

        class Order(hf.Dag, registry=hf.Registry()):
            notify = hf.task(job=elsewhere)


def test_a_job_without_its_arguments_is_refused() -> None:
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def notify(level: int) -> None: ...

    with refused(hf.UsageError, "notify", "level", fix="notify(level"):

        class Order(hf.Dag, registry=registry):
            tell = hf.task(job=notify, args={"levle": 2})


@pytest.mark.parametrize("timeout", [-1, 0, math.nan, math.inf, "30", True])
def test_i3_a_timeout_that_is_no_positive_number_is_quoted(timeout: Any) -> None:
    with refused(hf.UsageError, repr(timeout), "slow"):

        @hf.action(timeout=timeout, registry=hf.Registry())
        async def slow() -> None: ...


@pytest.mark.parametrize(
    "values",
    [
        {"attempts": 0},
        {"attempts": 2.5},
        {"attempts": True},
        {"base": -1},
        {"base": math.nan},
        {"cap": math.inf},
        {"base": 5, "cap": 1},
        {"retry_on": "ValueError"},
        {"retry_on": 7},
    ],
)
def test_i3_a_retry_with_a_bad_value_is_refused_when_it_is_made(values: dict[str, Any]) -> None:
    name, value = next(iter(values.items()))
    with refused(hf.UsageError, f"{name}={value!r}"):
        hf.Retry(**values)


def test_a_retry_that_is_a_number_is_refused_with_what_to_write() -> None:
    with refused(hf.UsageError, "retry=3", fix="hf.Retry(attempts=3)"):

        @hf.action(retry=3, registry=hf.Registry())  # type: ignore[call-overload, untyped-decorator]
        async def charge() -> None: ...


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, 7])
def test_a_name_that_cannot_be_stored_or_shown_is_refused(name: Any) -> None:
    with refused(hf.UsageError, "greet"):

        @hf.action(name=name, registry=hf.Registry())
        async def greet() -> None: ...


def test_a_transactional_plain_function_is_refused_when_it_is_defined() -> None:
    with refused(hf.UsageError, "debit", fix="async def"):

        @hf.action(transactional=True, registry=hf.Registry())
        def debit() -> None: ...


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"order_id": "7"}, "order_id"),
        ({"order_id": 7, "oder_id": 7}, "oder_id"),
        ({}, "order_id"),
        ({"order_id": None}, "order_id"),
        ({"order_id": 2**63}, "order_id"),
    ],
)
def test_i25_fields_of_the_wrong_type_or_name_are_refused_when_the_instance_is_made(
    fields: dict[str, Any], named: str
) -> None:
    class Order(hf.Dag, registry=hf.Registry()):
        order_id: int

        @hf.step
        async def validate(self) -> None: ...

    with refused(hf.UsageError, "Order", named):
        Order(**fields)


def test_assigning_to_a_field_is_refused() -> None:
    class Order(hf.Dag, registry=hf.Registry()):
        order_id: int

        @hf.step
        async def validate(self) -> None: ...

    assert issubclass(FrozenInstance, hf.UsageError)
    assert issubclass(FrozenInstance, AttributeError)
    with refused(FrozenInstance, "Order.order_id"):
        Order(order_id=1).order_id = 2  # type: ignore[misc]
