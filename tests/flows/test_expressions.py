"""I22: expressions are data for an interpreter that knows a fixed list of operations."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

from holdfast.authoring.flows import flow
from holdfast.authoring.registry import Registry
from holdfast.core import flow_expressions, flow_operations
from holdfast.core.errors import FlowNotSupported
from holdfast.core.flow_expression_reading import check_expression, free_variables
from holdfast.core.flow_expressions import evaluate
from holdfast.core.flow_operations import FUNCTIONS, METHODS, attribute, call_method
from holdfast.core.flow_patterns import bind_pattern
from tests.flows.actions import Order, double, echo
from tests.flows.corpus import all_cases
from tests.flows.parity import compiled
from tests.flows.programs import function_of
from tests.flows.simulator import Failed, Simulation


class Names:
    """A scope of given values."""

    environment: Any = None

    def __init__(self, **values: Any) -> None:
        self._values = values

    def get(self, name: str) -> Any:
        return self._values[name]

    def element(self, name: str) -> Any:
        raise NotImplementedError

    def has_element(self, name: str) -> bool:
        raise NotImplementedError

    def log(self, logger: str, level: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        raise NotImplementedError


def test_i22_the_interpreter_neither_evaluates_text_nor_imports() -> None:
    for module in (flow_expressions, flow_operations):
        tree = ast.parse(inspect.getsource(module))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"eval", "exec", "compile", "__import__", "importlib", "globals", "open"}


@pytest.mark.parametrize(
    "expression",
    [
        ("eval", ("const", "1")),
        ("call", "eval", (("const", "1"),), ()),
        ("binary", "@", ("const", 1), ("const", 1)),
        ("list", ("call", "open", (), ())),
        ("compare", ("const", 1), ("~", ("const", 2))),
        ("comprehension", "list", ("call", "input", (), ()), (("x", ("list",), ()),)),
    ],
)
def test_i22_a_stored_operation_that_is_not_on_the_list_is_refused(expression: Any) -> None:
    with pytest.raises(FlowNotSupported, match="which this version does not have"):
        check_expression(expression)


@pytest.mark.parametrize("name", ["__class__", "_private", "__dict__"])
def test_i22_nothing_behind_a_value_can_be_read(name: str) -> None:
    with pytest.raises(FlowNotSupported, match="private"):
        attribute(5, name)


def test_i22_methods_and_attributes_outside_of_the_list_are_refused_and_unknown_ones_are_pythons() -> None:
    with pytest.raises(FlowNotSupported, match="'format' of a str"):
        call_method("{0.__class__}", "format", [1], {})
    with pytest.raises(AttributeError, match="'int' object has no attribute 'upper'"):
        call_method(5, "upper", [], {})
    with pytest.raises(FlowNotSupported, match="'append' of a list"):
        attribute([], "append")
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'id'"):
        attribute(None, "id")

    class Sly(str):
        def upper(self) -> str:
            raise SystemExit

    with pytest.raises(FlowNotSupported):
        call_method(Sly("x"), "upper", [], {})
    with pytest.raises(FlowNotSupported):
        attribute(object(), "anything")


def test_i22_listed_methods_exist_and_change_nothing() -> None:
    for kind, names in METHODS.items():
        missing = {name for name in names if not hasattr(kind, name)} - {"is_integer"}  # int has it since 3.12
        assert not missing
        assert not names & flow_operations.MUTATOR_NAMES
    assert "hash" not in FUNCTIONS
    assert "id" not in FUNCTIONS


def test_i22_a_property_of_a_record_is_read_and_a_method_is_not() -> None:
    order = Order("o", [])
    assert attribute(order, "size") == 0
    with pytest.raises(AttributeError, match="'Order' object has no attribute 'nothing'"):
        attribute(order, "nothing")


@pytest.mark.parametrize("text", ["2 ** (10 ** 9)", "'x' * 10 ** 9", "[0] * 10 ** 9", "pow(3, 10 ** 9)"])
async def test_i22_what_would_stall_the_process_fails_the_run(text: str) -> None:
    function = function_of(f"async def program(n):\n    await double(n)\n    return {text}\n")
    with pytest.raises(Failed, match="FlowNotSupported"):
        await Simulation(flow(registry=Registry())(function)).run(1)


def test_i22_names_of_comprehensions_are_not_variables_that_are_read() -> None:
    inner = ("comprehension", "list", ("binary", "+", ("var", "x"), ("var", "y")), (("x", ("var", "x"), ()),))
    assert free_variables(inner) == {"x", "y"}
    keyword = ("call", "dict", (), (("keyword", "var", ("var", "z")),))
    assert free_variables(keyword) == {"z"}
    assert evaluate(inner, Names(x=[1, 2], y=10)) == [11, 12]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "not enough values to unpack (expected 2, got 1)"),
        (7, "cannot unpack non-iterable int object"),
    ],
)
def test_i22_patterns_bind_all_names_or_none(value: Any, message: str) -> None:
    names: dict[str, Any] = {}
    with pytest.raises((ValueError, TypeError)) as trouble:
        bind_pattern(("tuple", "a", "b"), value, names)
    assert str(trouble.value) == message
    assert names == {}


def test_i22_every_expression_of_the_corpus_is_on_the_list_and_survives_json() -> None:
    from holdfast.core.flow_graph import FlowGraph

    for case in all_cases():
        graph = compiled(case.function).graph
        assert FlowGraph.from_json(graph.to_json()) == graph


async def test_i22_an_error_in_a_pure_function_is_the_workflows() -> None:
    text = "async def program(n):\n    await echo(n)\n    return risky(0)\n"
    assert echo is not None
    assert double is not None
    with pytest.raises(Failed, match="ZeroDivisionError: division by zero"):
        await Simulation(flow(registry=Registry())(function_of(text))).run(1)
