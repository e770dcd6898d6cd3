"""Templates: functions that build DAGs, registered by name."""

from __future__ import annotations

from datetime import date

import pytest

from holdfast.authoring.actions import action
from holdfast.authoring.dag_builder import BuiltDag, DagBuilder
from holdfast.authoring.dag_template import BoundTemplate, dag_template
from holdfast.authoring.registry import Registry
from holdfast.core.errors import DagError, UsageError

registry = Registry()


@action(registry=registry)
async def process(item: int) -> None: ...


@dag_template(registry=registry, aliases=["old-batch"])
def batch(count: int, day: date | None = None) -> DagBuilder:
    """One node for each."""
    w = DagBuilder("whatever", registry=registry)
    w.fan_out(range(count), name=lambda i: f"m{i}", job=process, args=lambda i: {"item": i})
    return w


def test_calling_a_template_gives_the_built_dag() -> None:
    built = batch(3)
    assert isinstance(built, BuiltDag)
    assert len(built) == 3
    assert batch(count=3) == built
    assert batch.__doc__ == "One node for each."
    assert len(batch.fn(2)) == 2


def test_a_template_may_build_by_itself() -> None:
    @dag_template(registry=Registry())
    def built() -> BuiltDag:
        return batch(1)

    assert built() == batch(1)


def test_i15_a_template_is_registered_under_its_name_and_aliases() -> None:
    assert registry.startable("batch") is batch
    assert registry.startable("old-batch") is batch
    assert "batch" in registry.known_workflows()
    assert repr(batch).startswith("<dag_template batch of ")


def test_a_bound_template_is_checked_when_bound() -> None:
    assert batch.bind(count=2) == BoundTemplate(batch, (), {"count": 2})
    with pytest.raises(UsageError, match=r"template batch cannot be called like this.*batch\(count"):
        batch.bind()


def test_an_async_template_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(UsageError, match=r"is an async def, and a template only describes.*pass that as arguments"):

        @dag_template(registry=Registry())  # type: ignore[arg-type]
        async def waits() -> DagBuilder:
            return DagBuilder("x")


@pytest.mark.parametrize("thing", [7, type("C", (), {}), process])
def test_what_is_no_function_cannot_be_a_template(thing: object) -> None:
    with pytest.raises(UsageError, match=r"@hf\.dag_template was given"):
        dag_template(registry=Registry())(thing)  # type: ignore[arg-type]


def test_a_template_that_returns_something_else_says_what() -> None:
    @dag_template(registry=Registry())
    def forgot():  # type: ignore[no-untyped-def]
        batch(1)

    with pytest.raises(DagError, match="template forgot returned None, a NoneType"):
        forgot()
