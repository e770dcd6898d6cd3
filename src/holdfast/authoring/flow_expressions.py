"""From Python's expressions to expressions as data. Nothing here makes a node: awaits have been taken out before.

Whatever can't be computed from values alone is refused. Iterators and views are accepted only where they are consumed
at once, because they could neither be stored nor be walked twice.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable
from typing import Any, Final

from holdfast.authoring.flow_building import Stage
from holdfast.authoring.flow_constants import constant, named_constant
from holdfast.core.flow_expressions import Expression

__all__ = ["compile_expression", "compile_items", "compile_iterable", "compile_pattern", "has_await"]

Bound = frozenset[str]

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_UNARY: Final[dict[type[ast.unaryop], str]] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
_COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
_COMPREHENSIONS: Final = {ast.ListComp: "list", ast.SetComp: "set", ast.DictComp: "dict", ast.GeneratorExp: "generator"}


def has_await(node: ast.AST) -> bool:
    """Whether anything is awaited in this part of the source."""
    return any(isinstance(part, ast.Await) for part in ast.walk(node))


def symbol_of(operator: ast.operator) -> str:
    """How Python writes a binary operator."""
    return _BINARY[type(operator)]


def compile_expression(stage: Stage, node: ast.expr, bound: Bound = frozenset()) -> Expression:
    """The expression as data. `bound` are the names of comprehensions around it."""
    compiler = _COMPILERS.get(type(node))
    if compiler is None:
        stage.refuse(node, f"`{ast.unparse(node)}`", "it is not a value of a flow", "write it another way")
    return compiler(stage, node, bound)


def compile_iterable(stage: Stage, node: ast.expr, bound: Bound = frozenset()) -> Expression:
    """An expression that is walked over once, here: views, zip and the like, and generators are welcome too."""
    if isinstance(node, ast.GeneratorExp):
        return _comprehension(stage, node, bound)
    return (
        _call(stage, node, bound, consumed=True)
        if isinstance(node, ast.Call)
        else compile_expression(stage, node, bound)
    )


def _constant(stage: Stage, node: Any, bound: Bound) -> Expression:
    made = constant(node.value, stage.building)
    if made is None and isinstance(node.value, str):
        why = "half of a surrogate pair is no character, and can't be stored"
        stage.refuse(node, f"`{ast.unparse(node)}`", why, "write the whole character, or use bytes")
    if made is None:
        stage.refuse(node, f"`{ast.unparse(node)}`", "it is not a value of a flow", "leave it out")
    return made


def _name(stage: Stage, node: Any, bound: Bound) -> Expression:
    if node.id in bound:
        return ("var", node.id)
    named = named_constant(stage, node, bound)
    if named is not None:
        return named
    variable = stage.variable(node.id)
    if node.id in stage.source.exception_names and variable == stage.prefix + node.id:
        stage.refuse(
            node,
            f"`{node.id}` outside of its `except`",
            f"Python forgets {node.id} at the end of the `except` block",
            f"assign what you need of it to another name: `message = str({node.id})`",
        )
    return ("var", variable)


def _attribute(stage: Stage, node: Any, bound: Bound) -> Expression:
    if node.attr == "__name__" and isinstance(node.value, ast.Call | ast.Attribute):
        inner = node.value
        if isinstance(inner, ast.Attribute) and inner.attr == "__class__":
            return ("type_name", compile_expression(stage, inner.value, bound))
        is_type = isinstance(inner, ast.Call) and stage.source.object_named(inner.func, bound) is type
        if isinstance(inner, ast.Call) and is_type and len(inner.args) == 1 and not inner.keywords:
            return ("type_name", compile_expression(stage, inner.args[0], bound))
    if node.attr.startswith("_"):
        stage.refuse(
            node,
            f"the private attribute `.{node.attr}`",
            "a flow reads fields of values and nothing behind them",
            "give the field a public name; `type(x).__name__` is the one exception",
        )
    named = named_constant(stage, node, bound)
    return ("attr", compile_expression(stage, node.value, bound), node.attr) if named is None else named


def _binary(stage: Stage, node: Any, bound: Bound) -> Expression:
    left = compile_expression(stage, node.left, bound)
    return ("binary", _BINARY[type(node.op)], left, compile_expression(stage, node.right, bound))


def _unary(stage: Stage, node: Any, bound: Bound) -> Expression:
    operand: Any = node.operand.value if isinstance(node.operand, ast.Constant) else None
    if isinstance(node.op, ast.USub) and type(operand) in (int, float):
        return _constant(stage, ast.copy_location(ast.Constant(-operand), node), bound)
    return ("unary", _UNARY[type(node.op)], compile_expression(stage, node.operand, bound))


def _boolean(stage: Stage, node: Any, bound: Bound) -> Expression:
    word = "and" if isinstance(node.op, ast.And) else "or"
    return (word, *(compile_expression(stage, value, bound) for value in node.values))


def _compare(stage: Stage, node: Any, bound: Bound) -> Expression:
    pairs = []
    left = node.left
    for operator, operand in zip(node.ops, node.comparators, strict=True):
        if isinstance(operator, ast.Is | ast.IsNot) and not (
            _is_single(stage, left, bound) or _is_single(stage, operand, bound)
        ):
            stage.refuse(
                node,
                "`is` between two values",
                "values are stored and read again, so two names never hold one object",
                "compare with `==`; `is None` is fine",
            )
        walked = isinstance(operator, ast.In | ast.NotIn)
        right = compile_iterable(stage, operand, bound) if walked else compile_expression(stage, operand, bound)
        pairs.append((_COMPARISONS[type(operator)], right))
        left = operand
    return ("compare", compile_expression(stage, node.left, bound), *pairs)


def _is_single(stage: Stage, node: ast.expr, bound: Bound) -> bool:
    """Whether there is only one object with this value in a process: None, True, False, a member of an enum."""
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(stage.source.object_named(node, bound), enum.Enum)


def _if_else(stage: Stage, node: Any, bound: Bound) -> Expression:
    test = compile_expression(stage, node.test, bound)
    return ("if", test, compile_expression(stage, node.body, bound), compile_expression(stage, node.orelse, bound))


def compile_items(stage: Stage, nodes: list[ast.expr], bound: Bound) -> tuple[Expression, ...]:
    """The items of a display, or positional arguments; `*items` are ("star", …)."""
    return tuple(
        ("star", compile_iterable(stage, node.value, bound))
        if isinstance(node, ast.Starred)
        else compile_expression(stage, node, bound)
        for node in nodes
    )


def _display(word: str) -> Callable[[Stage, Any, Bound], Expression]:
    return lambda stage, node, bound: (word, *compile_items(stage, node.elts, bound))


def _dict(stage: Stage, node: Any, bound: Bound) -> Expression:
    entries: list[Expression] = []
    for key, value in zip(node.keys, node.values, strict=True):
        made = compile_expression(stage, value, bound)
        entries.append(("star", made) if key is None else ("pair", compile_expression(stage, key, bound), made))
    return ("dict", *entries)


def _subscript(stage: Stage, node: Any, bound: Bound) -> Expression:
    return ("item", compile_expression(stage, node.value, bound), compile_expression(stage, node.slice, bound))


def _slice(stage: Stage, node: Any, bound: Bound) -> Expression:
    parts = (node.lower, node.upper, node.step)
    return ("slice", *(("const", None) if part is None else compile_expression(stage, part, bound) for part in parts))


def _joined(stage: Stage, node: Any, bound: Bound) -> Expression:
    parts: list[Expression] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            spec = ("const", "") if part.format_spec is None else compile_expression(stage, part.format_spec, bound)
            conversion = "" if part.conversion < 0 else chr(part.conversion)
            parts.append(("field", compile_expression(stage, part.value, bound), conversion, spec))
        else:
            parts.append(compile_expression(stage, part, bound))
    return ("format", *parts)


def _comprehension(stage: Stage, node: Any, bound: Bound) -> Expression:
    clauses = []
    inner = bound
    for position, clause in enumerate(node.generators):
        if clause.is_async:
            stage.refuse(clause.iter, "`async for`", "what it reads would have to survive a crash", "use `for`")
        items = compile_iterable(stage, clause.iter, bound if position == 0 else inner)
        inner = inner | _target_names(clause.target)
        target = compile_pattern(stage, clause.target, local=True)
        clauses.append((target, items, tuple(compile_expression(stage, test, inner) for test in clause.ifs)))
    element: Expression
    if isinstance(node, ast.DictComp):
        element = (compile_expression(stage, node.key, inner), compile_expression(stage, node.value, inner))
    else:
        element = compile_expression(stage, node.elt, inner)
    return ("comprehension", _COMPREHENSIONS[type(node)], element, tuple(clauses))


def _target_names(target: ast.expr) -> frozenset[str]:
    return frozenset(part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def _generator(stage: Stage, node: Any, bound: Bound) -> Expression:
    stage.refuse(
        node,
        "a generator that is kept",
        "it could be walked once and not be stored",
        "make it a list with [ ], or put it directly into sum, any, list and the like",
    )


def _call(stage: Stage, node: Any, bound: Bound, consumed: bool = False) -> Expression:
    from holdfast.authoring.flow_value_calls import compile_call  # calls and expressions hold each other

    return compile_call(stage, node, bound, consumed)


def _lambda(stage: Stage, node: Any, bound: Bound) -> Expression:
    stage.refuse(
        node,
        "a lambda",
        "code is not a value of a flow",
        "use it as key= of sorted, min or max, or write an @hf.pure function",
    )


def _await(stage: Stage, node: Any, bound: Bound) -> Expression:
    stage.refuse(
        node,
        "`await` in this place",
        "this part of an expression may run never or many times",
        "await in a line of its own and use the result",
    )


def _starred(stage: Stage, node: Any, bound: Bound) -> Expression:
    stage.refuse(node, "`*` in this place", "it is no value", "use it in a call or in a list")


def compile_pattern(stage: Stage, target: ast.expr, *, local: bool = False) -> Any:
    """The names that a value is assigned to. `local` ones belong to a comprehension."""
    if isinstance(target, ast.Name):
        return target.id if local else stage.variable(target.id)
    if isinstance(target, ast.Starred):
        return ("rest", compile_pattern(stage, target.value, local=local))
    if isinstance(target, ast.Tuple | ast.List):
        return ("tuple", *(compile_pattern(stage, item, local=local) for item in target.elts))
    stage.refuse(
        target,
        f"`{ast.unparse(target)}` as a target here",
        "several assignments at once must all happen or none",
        "assign to a name first, then to the place in a line of its own",
    )


_COMPILERS: Final[dict[type[ast.expr], Callable[[Stage, Any, Bound], Expression]]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _if_else,
    ast.List: _display("list"),
    ast.Tuple: _display("tuple"),
    ast.Set: _display("set"),
    ast.Dict: _dict,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.JoinedStr: _joined,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _generator,
    ast.Call: _call,
    ast.Lambda: _lambda,
    ast.Await: _await,
    ast.Starred: _starred,
}
