"""Expressions as data, and their interpreter.

An expression is a tuple whose first item names its operation: `("binary", "+", ("var", "total"), ("const", 1))`.
It is plain JSON when stored. The interpreter knows the operations in `OPERATIONS` and no others, and each works on
values only: there is no `eval`, no import, and no attribute of anything that is not a value (I22).

What an operation raises is an exception of the workflow, raised at the line of its node. `FlowNotSupported` is not:
it means that Python would have done something that a flow cannot do, so no `except` of the flow may see it.

Variables never change while an expression is computed, and nothing here changes a value in place: a statement such as
`rows.append(x)` is `mutated`, which gives a changed copy that is then assigned to `rows`. The compiler has proved that
no other variable would have seen the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from holdfast.core.errors import FlowNotSupported, RunError
from holdfast.core.flow_operations import (
    AUGMENTED,
    BINARY,
    COMPARISONS,
    UNARY,
    attribute,
    call_function,
    call_method,
    changes_in_place,
    mutate,
    text_of,
    writable,
)
from holdfast.core.flow_patterns import bind_pattern, type_name_of
from holdfast.core.flow_sets import walked
from holdfast.core.flow_values import UNBOUND, KnownTypes, Raised, raised, unpack, with_record

__all__ = [
    "OPERATIONS",
    "Environment",
    "Expression",
    "FlowRaised",
    "PartlyChanged",
    "Scope",
    "evaluate",
]

Expression = tuple[Any, ...]

LONGEST_COMPREHENSION: Final = 1_000_000


class FlowRaised(Exception):
    """A failure that a `raise` of the flow named; carries the record instead of an exception's class."""

    def __init__(self, failure: Raised) -> None:
        super().__init__(str(failure))
        self.failure = failure


class PartlyChanged(Exception):
    """A change in place that failed half way. Python keeps what was done by then: `value` has it."""

    def __init__(self, value: Any, error: Exception) -> None:
        super().__init__(str(error))
        self.value = value
        self.error = error


class Environment(Protocol):
    """What an expression may name besides variables: types, pure functions."""

    @property
    def known_types(self) -> KnownTypes:
        """Types whose instances may be stored, by qualified name."""

    def type_named(self, reference: str) -> type:
        """The class that the flow's source calls by this name."""

    def pure_function(self, reference: str) -> Callable[..., Any]:
        """The function marked pure that the flow's source calls by this name."""


class Scope(Protocol):
    """Where an expression finds its variables."""

    environment: Environment

    def get(self, name: str) -> Any:
        """The variable's value; UnboundLocalError if it has none."""

    def element(self, name: str) -> Any:
        """The item of a loop's sequence for the present pass."""

    def has_element(self, name: str) -> bool:
        """Whether the loop's sequence has an item for the present pass."""

    def log(self, logger: str, level: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Keep a line for the log; it is written when the completion is."""


class _Inner:
    """The scope of a comprehension or a lambda: its own names first, then those around it."""

    __slots__ = ("_is_function", "_names", "_outer", "environment")

    def __init__(self, outer: Scope, names: dict[str, Any], is_function: bool) -> None:
        self._outer = outer
        self._names = names
        self._is_function = is_function
        self.environment = outer.environment

    def get(self, name: str) -> Any:
        if name in self._names:
            return self._names[name]
        try:
            return self._outer.get(name)
        except UnboundLocalError:
            if not self._is_function:
                raise
            shown = name.rpartition("/")[2]
            raise NameError(
                f"cannot access free variable {shown!r} where it is not associated with a value in enclosing scope"
            ) from None

    def element(self, name: str) -> Any:
        return self._outer.element(name)

    def has_element(self, name: str) -> bool:
        return self._outer.has_element(name)

    def log(self, logger: str, level: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._outer.log(logger, level, args, kwargs)


def _comprehensions_are_functions() -> bool:
    """Whether this Python runs a comprehension as a function of its own, which shows in its errors."""
    if not OPERATIONS:
        unbound = 1
    try:
        return bool([unbound for _ in (1,)])  # type: ignore[possibly-undefined]
    except NameError as error:
        return type(error) is NameError


def evaluate(expression: Expression, scope: Scope) -> Any:
    """The expression's value. Raises what Python would raise, FlowRaised for `raise`, or FlowNotSupported."""
    return OPERATIONS[expression[0]](expression, scope)


# --- names and displays ------------------------------------------------------------------------------------------


def _const(expression: Expression, scope: Scope) -> Any:
    return expression[1]


def _value(expression: Expression, scope: Scope) -> Any:
    return unpack(_thawed(expression[1]), scope.environment.known_types)


def _thawed(packed: Any) -> Any:
    """Stored graphs hold tuples where JSON had lists; packed values want lists."""
    if isinstance(packed, tuple | list):
        return [_thawed(item) for item in packed]
    return {key: _thawed(item) for key, item in packed.items()} if isinstance(packed, dict) else packed


def _var(expression: Expression, scope: Scope) -> Any:
    return scope.get(expression[1])


def _items(expressions: tuple[Expression, ...], scope: Scope) -> list[Any]:
    values: list[Any] = []
    for item in expressions:
        if item[0] == "star":
            values.extend(walked(evaluate(item[1], scope)))
        else:
            values.append(evaluate(item, scope))
    return values


def _display(expressions: tuple[Expression, ...], scope: Scope) -> list[Any]:
    values: list[Any] = []
    for item in expressions:
        if item[0] != "star":
            values.append(evaluate(item, scope))
            continue
        several = evaluate(item[1], scope)
        try:
            items = iter(walked(several))
        except TypeError:
            raise TypeError(f"Value after * must be an iterable, not {type_name_of(several)}") from None
        values.extend(items)
    return values


def _keywords(pairs: tuple[Expression, ...], scope: Scope) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for _, name, expression in pairs:  # ("keyword", name, value); no name is **value
        value = evaluate(expression, scope)
        if name is not None:
            values[name] = value
            continue
        for key, item in _mapping(value).items():
            if not isinstance(key, str):
                raise TypeError("keywords must be strings")
            if key in values:
                raise TypeError(f"got multiple values for keyword argument {key!r}")
            values[key] = item
    return values


def _mapping(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__!r} object is not a mapping")
    return value


def _dict(expression: Expression, scope: Scope) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for entry in expression[1:]:
        if entry[0] == "star":
            made.update(_mapping(evaluate(entry[1], scope)))
        else:
            key = evaluate(entry[1], scope)
            made[key] = evaluate(entry[2], scope)
    return made


# --- operators ---------------------------------------------------------------------------------------------------


def _binary(expression: Expression, scope: Scope) -> Any:
    left = evaluate(expression[2], scope)
    return BINARY[expression[1]](left, evaluate(expression[3], scope))


def _augment(expression: Expression, scope: Scope) -> Any:
    """`a += b`. Only the owner of a list, set or dict may change it; for other values it is `a + b`."""
    _, symbol, left_expression, right_expression, owned = expression
    left = evaluate(left_expression, scope)
    return augmented(symbol, left, evaluate(right_expression, scope), owned)


def augmented(symbol: str, left: Any, right: Any, owned: bool) -> Any:
    """`left symbol= right` without changing `left`."""
    if type(left) in (list, set, dict):
        if not owned:
            raise FlowNotSupported(
                f"`{symbol}=` would change a {type(left).__name__} that another variable of the flow may hold as well",
                hint=f"write `a = a {symbol} b`, which makes a new one",
            )
        left = left.copy()
        with _keeping(left):
            return AUGMENTED[symbol](left, walked(right) if type(left) is list and symbol == "+" else right)
    if changes_in_place(left, symbol):
        raise FlowNotSupported(
            f"`{symbol}=` would change a {type(left).__name__} in place",
            hint=f"write `a = a {symbol} b`, or make a new one with dataclasses.replace",
        )
    return AUGMENTED[symbol](left, right)


@contextmanager
def _keeping(value: Any) -> Iterator[None]:
    """What the flow could catch becomes PartlyChanged with this value."""
    try:
        yield
    except (FlowNotSupported, RunError):
        raise
    except Exception as error:
        raise PartlyChanged(value, error) from None


def _unary(expression: Expression, scope: Scope) -> Any:
    return UNARY[expression[1]](evaluate(expression[2], scope))


def _compare(expression: Expression, scope: Scope) -> Any:
    left = evaluate(expression[1], scope)
    result: Any = True
    for symbol, operand in expression[2:]:
        right = evaluate(operand, scope)
        result = COMPARISONS[symbol](left, right)
        if not result:
            return result
        left = right
    return result


def _and(expression: Expression, scope: Scope) -> Any:
    value: Any = True
    for operand in expression[1:]:
        value = evaluate(operand, scope)
        if not value:
            return value
    return value


def _or(expression: Expression, scope: Scope) -> Any:
    value: Any = False
    for operand in expression[1:]:
        value = evaluate(operand, scope)
        if value:
            return value
    return value


def _if_else(expression: Expression, scope: Scope) -> Any:
    return evaluate(expression[2] if evaluate(expression[1], scope) else expression[3], scope)


def _item(expression: Expression, scope: Scope) -> Any:
    container = evaluate(expression[1], scope)
    return container[evaluate(expression[2], scope)]


def _slice(expression: Expression, scope: Scope) -> slice:
    start, stop, step = (evaluate(part, scope) for part in expression[1:])
    return slice(start, stop, step)


def _attr(expression: Expression, scope: Scope) -> Any:
    return attribute(evaluate(expression[1], scope), expression[2])


_CONVERSIONS: Final = {"s": "str", "r": "repr", "a": "ascii"}


def _format(expression: Expression, scope: Scope) -> str:
    parts: list[str] = []
    for part in expression[1:]:
        if part[0] != "field":
            parts.append(evaluate(part, scope))
            continue
        _, operand, conversion, spec = part
        value = evaluate(operand, scope)
        if conversion:
            value = call_function(_CONVERSIONS[conversion], [value], {})
        parts.append(text_of(value, evaluate(spec, scope)))
    return "".join(parts)


# --- calls -------------------------------------------------------------------------------------------------------


def _call(expression: Expression, scope: Scope) -> Any:
    args = _items(expression[2], scope)
    return call_function(expression[1], args, _keywords(expression[3], scope))


def _method(expression: Expression, scope: Scope) -> Any:
    _, name, receiver, args, kwargs = expression
    value = evaluate(receiver, scope)
    given = _items(args, scope)
    return call_method(value, name, given, _keywords(kwargs, scope))


def _make(expression: Expression, scope: Scope) -> Any:
    kind = scope.environment.type_named(expression[1])
    args = _items(expression[2], scope)
    made = kind(*args, **_keywords(expression[3], scope))
    return raised(made) if isinstance(made, BaseException) else made


def _pure(expression: Expression, scope: Scope) -> Any:
    function = scope.environment.pure_function(expression[1])
    args, kwargs = _items(expression[2], scope), _keywords(expression[3], scope)
    try:
        return function(*args, **kwargs)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # a SystemExit fails the flow, not whoever decides what follows in it
        raise RuntimeError(f"{expression[1]} raised {error!r}, which is no Exception") from error


def _arguments(expression: Expression, scope: Scope) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an action's call, positional and by name."""
    args = _items(expression[1], scope)
    return tuple(args), _keywords(expression[2], scope)


def _isinstance(expression: Expression, scope: Scope) -> bool:
    value = evaluate(expression[1], scope)
    kinds = [scope.environment.type_named(reference) for reference in expression[2]]
    if isinstance(value, Raised):
        return any(kind is object or value.is_a(kind) for kind in kinds)
    return isinstance(value, tuple(kinds))


def _type_name(expression: Expression, scope: Scope) -> str:
    value = evaluate(expression[1], scope)
    return value.record.type if isinstance(value, Raised) else type(value).__name__


# --- comprehensions ----------------------------------------------------------------------------------------------


def _comprehension(expression: Expression, scope: Scope) -> Any:
    _, kind, element, clauses = expression
    inner_names: dict[str, Any] = {}
    inner = _Inner(scope, inner_names, kind == "generator" or _COMPREHENSIONS_ARE_FUNCTIONS)
    # The first sequence is computed around the comprehension, at once, as Python does.
    first = iter(walked(evaluate(clauses[0][1], scope)))
    turns = _turns(clauses, 0, first, inner, inner_names)
    if kind == "list":
        return [evaluate(element, inner) for _ in turns]
    if kind == "set":
        return {evaluate(element, inner) for _ in turns}
    if kind == "dict":
        return {evaluate(element[0], inner): evaluate(element[1], inner) for _ in turns}
    return (evaluate(element, inner) for _ in turns)


def _turns(
    clauses: tuple[Any, ...], depth: int, items: Iterator[Any], scope: Scope, names: dict[str, Any]
) -> Iterator[None]:
    target, _, conditions = clauses[depth]
    for count, item in enumerate(items):
        if count == LONGEST_COMPREHENSION:
            raise FlowNotSupported(
                f"a comprehension of over {LONGEST_COMPREHENSION:,} items is too much inside of a flow",
                hint="compute it in an action",
            )
        bind_pattern(target, item, names)
        if not all(evaluate(condition, scope) for condition in conditions):
            continue
        if depth + 1 == len(clauses):
            yield
        else:
            following = iter(walked(evaluate(clauses[depth + 1][1], scope)))
            yield from _turns(clauses, depth + 1, following, scope, names)


def _lambda(expression: Expression, scope: Scope) -> Callable[..., Any]:
    _, parameters, body = expression

    def call(*args: Any) -> Any:
        if len(args) != len(parameters):
            raise TypeError(f"<lambda>() takes {len(parameters)} positional arguments but {len(args)} were given")
        return evaluate(body, _Inner(scope, dict(zip(parameters, args, strict=True)), True))

    return call


# --- statements that are expressions here ------------------------------------------------------------------------


def _raise(expression: Expression, scope: Scope) -> Any:
    failure = _failure(evaluate(expression[1], scope))
    if expression[2] is not None:
        cause = evaluate(expression[2], scope)
        failure = with_record(failure, cause=None if cause is None else _failure(cause).record)
    raise FlowRaised(failure)


def _failure(value: Any) -> Raised:
    if not isinstance(value, Raised):
        raise TypeError("exceptions must derive from BaseException")
    return value


def _matches(expression: Expression, scope: Scope) -> bool:
    failure: Raised = scope.get(expression[1])
    return any(failure.is_a(scope.environment.type_named(reference)) for reference in expression[2])


def _log(expression: Expression, scope: Scope) -> None:
    _, logger, level, args, kwargs = expression
    given = _items(args, scope)
    scope.log(logger, level, given, _keywords(kwargs, scope))


def _unbound(expression: Expression, scope: Scope) -> Any:
    """As many marks of deleted variables as there are names to forget."""
    return (UNBOUND,) * expression[1]


def _element(expression: Expression, scope: Scope) -> Any:
    return scope.element(expression[1])


def _more(expression: Expression, scope: Scope) -> bool:
    return scope.has_element(expression[1])


def _mutated(expression: Expression, scope: Scope) -> Any:
    """`root[path]….operation`, on copies of all containers along the path: gives the new root."""
    return _changed(expression, scope)[0]


def _mutated_with(expression: Expression, scope: Scope) -> Any:
    """The same, and gives what the operation returned as well."""
    return _changed(expression, scope)


def _changed(expression: Expression, scope: Scope) -> tuple[Any, Any]:
    _, root, path, change = expression
    kind = change[0]
    # Python computes what is assigned before the place, and the place before what is added or passed.
    first = evaluate(change[2], scope) if kind == "set" else None
    top = writable(scope.get(root))
    holder = top
    for step in path:
        key = evaluate(step, scope)
        inner = writable(holder[key])
        if type(holder) in (list, dict):
            holder[key] = inner
        holder = inner
    result = None
    if kind == "call":
        args, keywords = _items(change[2], scope), _keywords(change[3], scope)
        with _keeping(top):
            result = mutate(holder, change[1], args, keywords)
    elif kind == "set":
        key = evaluate(change[1], scope)
        holder[key] = walked(first) if isinstance(key, slice) else first
    elif kind == "delete":
        del holder[evaluate(change[1], scope)]
    else:
        _, symbol, key_expression, operand, owned = change
        key = evaluate(key_expression, scope)
        old = holder[key]
        operand = evaluate(operand, scope)
        try:
            holder[key] = augmented(symbol, old, operand, owned)
        except PartlyChanged as part:
            holder[key] = part.value
            raise PartlyChanged(top, part.error) from None
    return top, result


OPERATIONS: Final[Mapping[str, Callable[[Expression, Scope], Any]]] = {
    "const": _const,
    "value": _value,
    "var": _var,
    "list": lambda expression, scope: _display(expression[1:], scope),
    "tuple": lambda expression, scope: tuple(_display(expression[1:], scope)),
    "set": lambda expression, scope: set(_display(expression[1:], scope)),
    "dict": _dict,
    "binary": _binary,
    "augment": _augment,
    "unary": _unary,
    "compare": _compare,
    "and": _and,
    "or": _or,
    "if": _if_else,
    "item": _item,
    "slice": _slice,
    "attr": _attr,
    "format": _format,
    "call": _call,
    "method": _method,
    "make": _make,
    "pure": _pure,
    "arguments": _arguments,
    "isinstance": _isinstance,
    "type_name": _type_name,
    "comprehension": _comprehension,
    "lambda": _lambda,
    "raise": _raise,
    "matches": _matches,
    "log": _log,
    "element": _element,
    "more": _more,
    "unbound": _unbound,
    "mutated": _mutated,
    "mutated_with": _mutated_with,
}

_COMPREHENSIONS_ARE_FUNCTIONS: Final = _comprehensions_are_functions()
