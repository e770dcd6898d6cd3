"""Names in one process: who holds one, who may replace it, and what an unknown one says."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.authoring.actions import Action, action
from holdfast.authoring.dag_nodes import step
from holdfast.authoring.dags import Dag
from holdfast.authoring.registry import Registry, default_registry
from holdfast.core.errors import MissingJob, UnknownWorkflow, UsageError


def function(qualname: str, module: str = "app.orders", file: str = "orders.py") -> Callable[[], None]:
    """A function as if it had been defined elsewhere."""
    code = compile("def made(): return None", file, "exec")
    namespace: dict[str, Any] = {"__name__": module}
    exec(code, namespace)  # noqa: S102 - a constant
    made = namespace["made"]
    assert isinstance(made, types.FunctionType)
    made.__qualname__ = qualname
    made.__name__ = qualname.rpartition(".")[2]
    return made


def test_i15_the_default_name_is_the_functions_own_without_its_module() -> None:
    registry = Registry()
    charge: Action[[], None] = action(registry=registry)(function("charge"))
    assert charge.name == "charge"
    assert registry.action("charge") is charge


def test_i15_a_second_definition_under_a_name_names_both_places() -> None:
    registry = Registry()
    action(registry=registry)(function("charge"))
    with pytest.raises(UsageError) as refused:
        action(registry=registry)(function("charge", module="app.other", file="other.py"))
    assert "app.orders:charge (orders.py:1)" in refused.value.message
    assert "app.other:charge (other.py:1)" in refused.value.message


def test_i15_a_reload_replaces_the_definition_and_its_old_aliases() -> None:
    registry = Registry()
    action(registry=registry, aliases=("pay",))(function("charge"))
    again = action(registry=registry)(function("charge"))
    assert registry.action("charge") is again
    assert registry.known_actions() == {"charge"}


def test_i15_a_program_that_is_also_imported_by_its_name_is_one_definition() -> None:
    registry = Registry()
    action(registry=registry)(function("greet", module="__main__", file="hello.py"))
    again = action(registry=registry)(function("greet", module="hello", file="hello.py"))
    assert registry.action("greet") is again
    with pytest.raises(UsageError):
        action(registry=registry)(function("greet", module="__main__", file="another.py"))


def test_i15_a_renamed_definition_is_found_by_its_alias() -> None:
    registry = Registry()
    charge = action(registry=registry, name="charge-card", aliases=["charge"])(function("charge"))
    assert registry.action("charge") is registry.action("charge-card") is charge
    assert registry.actions["charge"] is charge


def test_i15_an_alias_clashes_like_a_name() -> None:
    registry = Registry()
    action(registry=registry)(function("charge"))
    with pytest.raises(UsageError, match="'charge' is defined twice"):
        action(registry=registry, aliases=("charge",))(function("pay", module="app.pay"))
    assert "pay" not in registry.known_actions()


def test_an_alias_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="given twice"):
        action(registry=Registry(), aliases=("charge",))(function("charge"))


def test_i15_an_action_and_a_workflow_share_one_namespace() -> None:
    """An action can be started on its own, and its name is then the run's workflow."""
    registry = Registry()
    action(registry=registry, name="Order")(function("order"))
    with pytest.raises(UsageError, match="'Order' is defined twice"):

        class Order(Dag, registry=registry):
            @step
            def go(self) -> None: ...


@pytest.mark.parametrize("name", ["", "  ", "a\0b", "a\nb", "x" * 256, 7])
def test_names_that_cannot_be_stored_and_shown_are_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="name"):
        action(registry=Registry(), name=name)(function("charge"))


def test_a_name_may_have_spaces_and_any_script() -> None:
    charged = action(registry=Registry(), name="charge card – Größe 漢字")(function("charge"))
    assert charged.name == "charge card – Größe 漢字"


def test_i8_an_unknown_name_offers_the_nearest_one() -> None:
    registry = Registry()
    action(registry=registry)(function("charge_card"))
    with pytest.raises(MissingJob) as missing:
        registry.action("charge_crad")
    assert "did you mean 'charge_card'?" in str(missing.value)
    with pytest.raises(UnknownWorkflow) as unknown:
        registry.startable("charge_crad")
    assert "did you mean 'charge_card'?" in str(unknown.value)
    with pytest.raises(UnknownWorkflow):
        registry.workflow("charge_card")


def test_i8_a_worker_knows_its_actions_also_as_workflows() -> None:
    registry = Registry()
    action(registry=registry, aliases=("pay",))(function("charge"))

    class Order(Dag, registry=registry, aliases=("OldOrder",)):
        @step
        def go(self) -> None: ...

    assert registry.known_actions() == {"charge", "pay"}
    assert registry.known_workflows() == {"Order", "OldOrder", "charge", "pay"}
    assert registry.workflow("OldOrder") is Order
    assert registry.workflows["Order"] is Order


def test_a_registry_of_its_own_is_not_the_process_wide_one() -> None:
    action(registry=Registry(), name="only-in-its-own-registry")(function("charge"))
    assert "only-in-its-own-registry" not in default_registry.known_actions()


def test_without_a_registry_definitions_enter_the_process_wide_one() -> None:
    made = action(name="tests: entered by default")(function("entered_by_default", module=__name__))
    assert default_registry.action("tests: entered by default") is made
