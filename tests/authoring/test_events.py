"""Events: one type a name, wherever it is defined."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf


@dataclass
class Approval:
    by: str


@dataclass
class Rejection:
    why: str


def defined_in(module: str, file: str, source: str, registry: hf.Registry, lines_before: int = 0) -> dict[str, Any]:
    """The names of a module with this source, as if it had been imported."""
    namespace: dict[str, Any] = {"__name__": module, "hf": hf, "registry": registry, "Rejection": Rejection}
    exec(compile("\n" * lines_before + source, file, "exec"), namespace)  # noqa: S102 - a constant
    return namespace


WITH_A_CLASS = """
class Approval:
    by: str
    __annotations__ = {"by": str}
import dataclasses
Approval = dataclasses.dataclass(Approval)
approved = hf.event("approved", Approval, registry=registry)
"""


def test_an_event_has_a_type_and_settings() -> None:
    registry = hf.Registry()
    approved = hf.event("approved", Approval, expires=timedelta(days=7), on_target_end="dead", registry=registry)
    assert registry.events["approved"] is approved
    assert (approved.expires_us, approved.on_target_end) == (7 * 86_400_000_000, "dead")
    assert hf.event("poked", registry=registry).expires_us is None
    assert repr(approved) == "<event approved of Approval>"
    assert approved.decode(approved.encode(Approval("Ada")).data) == Approval("Ada")


def test_i15_a_second_definition_with_another_type_names_both_places() -> None:
    registry = hf.Registry()
    defined_in("app.people", "people.py", 'hf.event("approved", str, registry=registry)', registry)
    with pytest.raises(hf.UsageError) as refused:
        defined_in("app.orders", "orders.py", '\nhf.event("approved", Rejection, registry=registry)', registry)
    assert "as str, " in refused.value.message
    assert "app.people:approved (people.py:1)" in refused.value.message
    assert "as Rejection, " in refused.value.message
    assert "app.orders:approved (orders.py:2)" in refused.value.message
    assert registry.events["approved"].type is str


def test_i15_a_second_definition_with_other_settings_is_another_definition() -> None:
    registry = hf.Registry()
    hf.event("approved", Approval, registry=registry)
    with pytest.raises(hf.UsageError, match=r"on_target_end='discard'.*on_target_end='dead'"):
        hf.event("approved", Approval, on_target_end="dead", registry=registry)
    with pytest.raises(hf.UsageError, match=r"expires=None.*expires=1 day"):
        hf.event("approved", Approval, expires=timedelta(days=1), registry=registry)


def test_i15_the_same_definition_again_is_welcome() -> None:
    registry = hf.Registry()
    hf.event("approved", Approval, registry=registry)
    again = hf.event("approved", Approval, registry=registry)
    assert registry.events["approved"] is again


def test_i15_a_reload_replaces_the_event_although_its_class_is_a_new_one() -> None:
    registry = hf.Registry()
    defined_in("app.people", "people.py", WITH_A_CLASS, registry)
    again = defined_in("app.people", "people.py", WITH_A_CLASS, registry, lines_before=3)
    assert registry.events["approved"].type is again["Approval"]


def test_i15_a_line_that_was_changed_and_reloaded_replaces_its_event() -> None:
    registry = hf.Registry()
    defined_in("app.people", "people.py", 'hf.event("approved", str, registry=registry)', registry)
    defined_in("app.people", "people.py", 'hf.event("approved", int, registry=registry)', registry)
    assert registry.events["approved"].type is int


@pytest.mark.parametrize(
    "twice",
    [
        'hf.event("approved", str, registry=registry); hf.event("approved", int, registry=registry)',
        'for kind in (str, int): hf.event("approved", kind, registry=registry)',
    ],
)
def test_i15_two_definitions_in_one_line_are_no_reload(twice: str) -> None:
    registry = hf.Registry()
    with pytest.raises(hf.UsageError, match=r"as str, .*people.py:1.* and as int, .*people.py:1"):
        defined_in("app.people", "people.py", twice, registry)


def test_i15_a_program_that_is_also_imported_by_its_name_is_one_definition() -> None:
    registry = hf.Registry()
    defined_in("__main__", "people.py", WITH_A_CLASS, registry)
    again = defined_in("people", "people.py", WITH_A_CLASS, registry)
    assert registry.events["approved"].type is again["Approval"]
    with pytest.raises(hf.UsageError, match="defined twice"):
        defined_in("other", "other.py", WITH_A_CLASS, registry)


@pytest.mark.parametrize(
    ("define", "kind", "says"),
    [
        (lambda: hf.event(""), hf.UsageError, "the name '' of an event is empty"),
        (lambda: hf.event(Approval), hf.UsageError, "of an event is a type"),  # type: ignore[call-overload]
        (lambda: hf.event("e", a_lock()), hf.PayloadRefused, "the payload of event e"),
        (lambda: hf.event("e", expires=7), hf.UsageError, "expires=7 of event 'e' is a int"),  # type: ignore[call-overload]
        (lambda: hf.event("e", expires=timedelta(seconds=-1)), hf.UsageError, "negative"),
        (lambda: hf.event("e", expires=timedelta()), hf.UsageError, "no time at all"),
        (lambda: hf.event("e", on_target_end="discrad"), hf.UsageError, "did you mean 'discard'"),  # type: ignore[call-overload]
    ],
)
def test_an_event_that_cannot_be_meant_is_refused_when_it_is_defined(
    define: Any, kind: type[hf.HoldfastError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        define()


def a_lock() -> Any:
    """A type that no codec can store."""
    return type(threading.Lock())
