"""Calls that compute a value between actions: listed builtins and methods, constructors, helpers marked pure.

Everything else that can be called is refused with the reason that fits it best, because a call is where most people
meet the limits of a flow first.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
from typing import Any, Final, Never

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.flow_advice import advice_for
from holdfast.authoring.flow_building import Stage
from holdfast.authoring.flow_constants import is_record_type, refer_to, type_references
from holdfast.authoring.flow_expressions import compile_expression, compile_items, compile_iterable
from holdfast.authoring.flow_source import NOTHING, UNDEFINED
from holdfast.authoring.functions import Workflow
from holdfast.authoring.pure import Pure
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_operations import (
    FUNCTIONS,
    ITERATORS,
    METHOD_NAMES,
    METHODS,
    MUTATOR_NAMES,
    STANDARD_TYPES,
    VIEW_METHODS,
)

__all__ = ["compile_arguments", "compile_call", "compile_consumed", "compile_keywords"]

Bound = frozenset[str]

# Functions that walk over their arguments at once and keep none of them.
_CONSUMERS: Final = frozenset(
    ("all", "any", "bytes", "dict", "enumerate", "frozenset", "len", "list", "reversed", "set", "sorted", "sum")
) | {"tuple", "zip", "math.fsum", "math.prod"}
_CONSUME_ONE: Final = frozenset({"max", "min"})
_WITH_KEY: Final = frozenset({"max", "min", "sorted"})
# Methods of sets that walk over what they are given.
_CONSUMING_METHODS: Final = METHODS[set] - {"copy"}

_NAME_OF: Final[dict[int, str]] = {
    **{id(function): name for name, function in FUNCTIONS.items()},
    **{id(getattr(math, name.removeprefix("math."))): name for name in FUNCTIONS if name.startswith("math.")},
    id(pow): "pow",
    id(dataclasses.replace): "dataclasses.replace",
    id(msgspec.structs.replace): "msgspec.structs.replace",
}

_TELLING: Final[dict[str, tuple[str, str]]] = {
    "print": ("printing is a side effect, and a decision may be made twice", "use a logger, or print in an action"),
    "open": ("files are the world's, not the flow's", "read and write files in an action"),
    "input": ("a flow has no terminal", "wait for an event in a @hf.workflow, or ask in an action"),
    "eval": ("expressions of a flow are data", "compute it in an action"),
    "exec": ("expressions of a flow are data", "compute it in an action"),
    "getattr": ("a flow reads fields by their names", "write `.name`, or use a dict"),
    "hasattr": ("a flow reads fields by their names", "compare with None, or use a dict and `in`"),
    "setattr": ("values are not changed in place", "make a new one with dataclasses.replace"),
    "iter": ("an iterator can't be stored", "use a `for` loop or a list"),
    "next": ("an iterator can't be stored", "use a `for` loop, or index a list"),
    "map": ("code is not a value of a flow", "write a comprehension"),
    "filter": ("code is not a value of a flow", "write a comprehension with `if`"),
    "hash": ("its result differs between processes", "use the value itself, or hash it in an action"),
    "id": ("objects are stored and read again", "compare values with `==`"),
    "super": ("a flow is no method", "call an action"),
    "type": ("types are not values of a flow", "use isinstance(x, T), or type(x).__name__"),
}
_CLOCKS: Final = frozenset(
    {
        "now",
        "utcnow",
        "today",
        "time",
        "time_ns",
        "monotonic",
        "uuid1",
        "uuid4",
        "random",
        "randint",
        "choice",
        "shuffle",
    }
)


def compile_call(stage: Stage, node: ast.Call, bound: Bound, consumed: bool) -> Expression:
    """A call that computes a value. `consumed`: the result is walked over at once and not kept."""
    found = stage.source.object_named(node.func, bound)
    if found is UNDEFINED:
        stage.refuse(
            node.func,
            f"the name `{ast.unparse(node.func)}`",
            "nothing is defined under it when the flow is compiled",
            "define or import it above the flow, or check its spelling",
        )
    if found is NOTHING:
        if isinstance(node.func, ast.Attribute):
            return _method(stage, node, node.func, bound, consumed)
        stage.refuse(
            node,
            f"calling `{ast.unparse(node.func)}`",
            "code is not a value of a flow",
            "call a function of the module",
        )
    if found is isinstance:
        return _isinstance(stage, node, bound)
    name = _NAME_OF.get(id(found))
    if name is not None:
        return _function(stage, node, name, bound, consumed)
    if isinstance(found, Pure):
        reference = refer_to(stage, node.func, found)
        return ("pure", reference, *compile_arguments(stage, node, bound))
    if isinstance(found, type) and _is_value_type(found):
        reference = refer_to(stage, node.func, found)
        return ("make", reference, *compile_arguments(stage, node, bound))
    _refuse_call(stage, node, found)


def _is_value_type(kind: type) -> bool:
    return is_record_type(kind) or kind in STANDARD_TYPES.values() or _is_plain_exception(kind)


def _is_plain_exception(kind: type) -> bool:
    return issubclass(kind, Exception) and not issubclass(kind, BaseExceptionGroup)


def compile_arguments(stage: Stage, node: ast.Call, bound: Bound) -> tuple[Any, Any]:
    """Positional and keyword arguments of a call."""
    return compile_items(stage, node.args, bound), compile_keywords(stage, node.keywords, bound)


def compile_keywords(stage: Stage, keywords: list[ast.keyword], bound: Bound) -> tuple[Expression, ...]:
    """Keyword arguments; one without a name is a `**mapping`."""
    return tuple(("keyword", each.arg, compile_expression(stage, each.value, bound)) for each in keywords)


def _isinstance(stage: Stage, node: ast.Call, bound: Bound) -> Expression:
    if len(node.args) != 2 or node.keywords or isinstance(node.args[0], ast.Starred):
        stage.refuse(node, "this call of isinstance", "it needs a value and classes", "write isinstance(x, T)")
    return ("isinstance", compile_expression(stage, node.args[0], bound), type_references(stage, node.args[1]))


def _function(stage: Stage, node: ast.Call, name: str, bound: Bound, consumed: bool) -> Expression:
    if name in ITERATORS and not consumed:
        stage.refuse(
            node,
            f"`{name}` that is kept",
            "an iterator can't be stored or walked twice",
            f"make it a list: list({name}(…))",
        )
    consumes = name in _CONSUMERS or (name in _CONSUME_ONE and len(node.args) == 1)
    args = (compile_consumed if consumes else compile_items)(stage, node.args, bound)
    keywords: list[Expression] = []
    for each in node.keywords:
        if name in _WITH_KEY and each.arg == "key":
            keywords.append(("keyword", "key", key_function(stage, each.value, bound)))
        else:
            keywords += compile_keywords(stage, [each], bound)
    return ("call", name, args, tuple(keywords))


def compile_consumed(stage: Stage, nodes: list[ast.expr], bound: Bound) -> tuple[Expression, ...]:
    """Positional arguments that are walked over at once, so that generators and views are welcome."""
    return tuple(
        ("star", compile_iterable(stage, each.value, bound))
        if isinstance(each, ast.Starred)
        else compile_iterable(stage, each, bound)
        for each in nodes
    )


def key_function(stage: Stage, node: ast.expr, bound: Bound) -> Expression:
    """The key= of sorted, min, max and sort: None, a lambda, or one of the listed functions."""
    if isinstance(node, ast.Constant) and node.value is None:
        return ("const", None)
    if isinstance(node, ast.Lambda):
        given = node.args
        if given.posonlyargs or given.kwonlyargs or given.defaults or given.vararg or given.kwarg:
            stage.refuse(node, "this lambda", "a key has plain parameters only", "write lambda x: …")
        names = tuple(argument.arg for argument in given.args)
        return ("lambda", names, compile_expression(stage, node.body, bound | set(names)))
    found = stage.source.object_named(node, bound)
    body: ast.expr = ast.Call(func=node, args=[ast.Name(id="$item", ctx=ast.Load())], keywords=[])
    if found is NOTHING or not (id(found) in _NAME_OF or isinstance(found, Pure)):
        stage.refuse(node, "this key", "code is not a value of a flow", "write a lambda, or name an @hf.pure function")
    ast.copy_location(body, node)
    return ("lambda", ("$item",), compile_call(stage, body, bound | {"$item"}, consumed=False))  # type: ignore[arg-type]


def _method(stage: Stage, node: ast.Call, func: ast.Attribute, bound: Bound, consumed: bool) -> Expression:
    name = func.attr
    if name in MUTATOR_NAMES:
        stage.refuse(
            node,
            f"`.{name}(…)` inside of an expression",
            "what changes a value is a step of its own in the graph",
            f"write it as a statement, or as `x = {ast.unparse(func.value)}.{name}(…)`",
        )
    if name in ("format", "format_map"):
        stage.refuse(node, f"`.{name}(…)`", "a format text can read any attribute", "use an f-string")
    if name == "options":
        stage.refuse(
            node,
            "`.options(…)` that is kept",
            "an action is not a value of a flow",
            "write it in one line with the call: `await charge.options(timeout=5)(…)`",
        )
    if name not in METHOD_NAMES:
        stage.refuse(
            node,
            f"the method `.{name}(…)`",
            "it is not in the list of methods that an expression may use",
            "call it in an @hf.pure function or in an action",
        )
    if name in VIEW_METHODS and not consumed and not node.args:
        stage.refuse(
            node,
            f"`.{name}()` that is kept",
            "a view changes with its dictionary and can't be stored",
            f"make it a list: list({ast.unparse(func.value)}.{name}())",
        )
    receiver = compile_expression(stage, func.value, bound)
    if name == "join" or name in _CONSUMING_METHODS:
        args = compile_consumed(stage, node.args, bound)
        return ("method", name, receiver, args, compile_keywords(stage, node.keywords, bound))
    return ("method", name, receiver, *compile_arguments(stage, node, bound))


def _refuse_call(stage: Stage, node: ast.Call, found: Any) -> Never:
    shown = ast.unparse(node.func)
    if isinstance(found, Action | Workflow) or hasattr(found, "graph"):
        stage.refuse(
            node,
            f"`{shown}(…)` without await",
            "a call that is not awaited is a promise, and promises can't be stored",
            f"write `await {shown}(…)`, or several of them inside of asyncio.gather(…)",
        )
    if (advice := advice_for(found)) is not None:
        stage.refuse(node, f"`{shown}(…)`", *advice)
    name = getattr(found, "__name__", "")
    if name in _CLOCKS:
        stage.refuse(
            node,
            f"`{shown}(…)`",
            "its result is another one each time, and a decision may be made twice",
            "ask for it in an action and use the result",
        )
    if getattr(found, "__module__", "") == "builtins" and name in _TELLING:
        why, instead = _TELLING[name]
        stage.refuse(node, f"`{shown}(…)`", why, instead)
    if inspect.iscoroutinefunction(found):
        stage.refuse(
            node, f"`{shown}(…)`", "it is an ordinary coroutine", f"decorate {shown} with @hf.action or @hf.flow"
        )
    stage.refuse(
        node,
        f"`{shown}(…)`",
        "a flow calls actions, listed builtins, constructors of plain values, and helpers marked pure",
        f"mark {shown} with @hf.pure if it only computes, or with @hf.action and await it",
    )
