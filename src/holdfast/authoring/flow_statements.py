"""Statements without a body of their own, `if`, and the ways out of a function or loop.

`flow_loops.py` and `flow_tries.py` have the statements that change where control goes next.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from holdfast.authoring.flow_awaits import compile_await
from holdfast.authoring.flow_building import FinallyFrame, FunctionFrame, Jump, LoopFrame, Stage
from holdfast.authoring.flow_constants import refer_to
from holdfast.authoring.flow_effects import check_bound, has_effect, locate, value_of, without_effects
from holdfast.authoring.flow_expressions import compile_expression, compile_pattern, symbol_of
from holdfast.authoring.flow_loops import compile_for, compile_while
from holdfast.authoring.flow_mutations import (
    compile_augmented_item,
    compile_delete_item,
    compile_mutator,
    compile_set_item,
    is_mutator,
)
from holdfast.authoring.flow_tasks import compile_task_group
from holdfast.authoring.flow_tries import compile_try
from holdfast.authoring.flow_value_calls import compile_arguments
from holdfast.core.flow_expressions import Expression

__all__ = ["compile_body", "compile_statements", "jump", "refuse_exception_name"]

_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical"})


def compile_body(stage: Stage) -> None:
    """The whole function: its statements, and the `return None` that stands at every end."""
    building = stage.building
    frame = stage.place.frames[-1]
    assert isinstance(frame, FunctionFrame)  # noqa: S101
    compile_statements(stage, stage.source.tree.body)
    if building.ends:
        stage.assign(frame.result, ("const", None), stage.source.tree.body[-1], "end")
    building.ends += frame.returns


def compile_statements(stage: Stage, statements: Iterable[ast.stmt]) -> None:
    """Statements in their order."""
    for statement in statements:
        _STATEMENTS[type(statement)](stage, statement)


# --- assignments -------------------------------------------------------------------------------------------------


def _assign(stage: Stage, node: ast.Assign) -> None:
    target = node.targets[0]
    if len(node.targets) == 1 and isinstance(target, ast.Name):
        _assign_name(stage, target, node.value, node)
        return
    if len(node.targets) == 1 and not has_effect(stage, node):
        _assign_to(stage, target, compile_expression(stage, node.value), node)
        return
    hidden = stage.hidden("value")
    _assign_name(stage, ast.Name(id=hidden, ctx=ast.Store()), node.value, node)
    for each in node.targets:
        if has_effect(stage, each):
            stage.refuse(each, "an effect in a target", "its order is unclear", "compute it in a line before")
        _assign_to(stage, each, ("var", hidden), node)


def _assign_name(stage: Stage, target: ast.Name, value: ast.expr, node: ast.stmt) -> None:
    variable = stage.variable(target.id)
    refuse_exception_name(stage, target)
    if isinstance(value, ast.Await):
        compile_await(stage, value, variable)
    elif is_mutator(stage, value):
        made = value if not any(has_effect(stage, part) for part in ast.iter_child_nodes(value)) else None
        if made is None:
            stage.assign(variable, value_of(stage, value), node)
        else:
            assert isinstance(made, ast.Call)  # noqa: S101
            compile_mutator(stage, made, variable)
    else:
        stage.assign(variable, value_of(stage, value), node)


def _assign_to(stage: Stage, target: ast.expr, value: Expression, node: ast.stmt) -> None:
    if isinstance(target, ast.Subscript):
        compile_set_item(stage, target, value, node)
    elif isinstance(target, ast.Attribute):
        stage.refuse(
            target,
            "assigning to an attribute",
            "values are not changed in place",
            f"make a new one: `{ast.unparse(target.value)} = dataclasses.replace({ast.unparse(target.value)}, …)`",
        )
    else:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                refuse_exception_name(stage, part)
        stage.assign(compile_pattern(stage, target), value, node)


def refuse_exception_name(stage: Stage, target: ast.Name) -> None:
    """Refuse a variable whose name is also that of a failure: Python forgets it at the end of the `except`."""
    if target.id in stage.source.exception_names:
        stage.refuse(
            target,
            f"`{target.id}` as a variable and as the name of a failure",
            "Python forgets the name at the end of its `except` block",
            "use another name for one of them",
        )


def _annotated(stage: Stage, node: ast.AnnAssign) -> None:
    if node.value is None:
        return
    if isinstance(node.target, ast.Name):
        _assign_name(stage, node.target, node.value, node)
    else:
        _assign_to(stage, node.target, value_of(stage, node.value), node)


def _augmented(stage: Stage, node: ast.AugAssign) -> None:
    target = node.target
    if isinstance(target, ast.Name):
        refuse_exception_name(stage, target)
        if has_effect(stage, node.value):
            check_bound(stage, ast.copy_location(ast.Name(id=target.id, ctx=ast.Load()), target))
        variable = stage.variable(target.id)
        value = value_of(stage, node.value)
        # Whether a list may be changed in place is decided when all aliases are known.
        stage.assign(variable, ("augment", symbol_of(node.op), ("var", variable), value, False), node)
    elif isinstance(target, ast.Subscript):
        if has_effect(stage, node.value):
            read = ast.copy_location(ast.Subscript(value=target.value, slice=target.slice, ctx=ast.Load()), target)
            stage.emit("expression", "check_item", node, expression=compile_expression(stage, read))
        compile_augmented_item(stage, node, target, value_of(stage, node.value))
    else:
        _assign_to(stage, target, ("const", None), node)


def _delete(stage: Stage, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            compile_delete_item(stage, target, node)
        elif isinstance(target, ast.Name):
            refuse_exception_name(stage, target)
            check_bound(stage, ast.copy_location(ast.Name(id=target.id, ctx=ast.Load()), target))
            stage.assign(("tuple", stage.variable(target.id)), ("unbound", 1), node, f"forget_{target.id}")
        else:
            stage.refuse(target, "this deletion", "values are not changed in place", "make a new value without it")


# --- expressions and control -------------------------------------------------------------------------------------


def _expression(stage: Stage, node: ast.Expr) -> None:
    value = node.value
    if isinstance(value, ast.Constant):
        return
    if isinstance(value, ast.Await):
        compile_await(stage, value, None)
        return
    if isinstance(value, ast.Call):
        logged = _log_call(stage, value)
        if logged is not None:
            stage.emit("expression", "log", node, expression=logged)
            return
        filled = _filled_item(stage, value)
        if filled is not None:
            compile_statements(stage, filled)
            return
        if is_mutator(stage, value):
            changed = without_effects_inside(stage, value)
            compile_mutator(stage, changed, None)
            return
    stage.emit("expression", "compute", node, expression=value_of(stage, value))


def _filled_item(stage: Stage, call: ast.Call) -> list[ast.stmt] | None:
    """`groups.setdefault(key, []).append(x)` as two statements: make the item, then change it in its place."""
    func = call.func
    if not (is_mutator(stage, call) and isinstance(func, ast.Attribute)):
        return None
    inner = func.value
    if not (isinstance(inner, ast.Call) and is_mutator(stage, inner) and isinstance(inner.func, ast.Attribute)):
        return None
    if inner.func.attr != "setdefault" or len(inner.args) != 2 or inner.keywords:
        return None
    key, default = inner.args
    statements: list[ast.stmt] = []
    if not isinstance(key, ast.Name | ast.Constant):
        name = stage.hidden("key")
        statements.append(ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=key))
        key = ast.Name(id=name, ctx=ast.Load())
    made = ast.Call(func=inner.func, args=[key, default], keywords=[])
    place = ast.Subscript(value=inner.func.value, slice=key, ctx=ast.Load())
    method = ast.Attribute(value=place, attr=func.attr, ctx=ast.Load())
    changed = ast.Call(func=method, args=call.args, keywords=call.keywords)
    statements += [ast.Expr(value=made), ast.Expr(value=changed)]
    for statement in statements:
        locate(statement, call)
    return statements


def without_effects_inside(stage: Stage, call: ast.Call) -> ast.Call:
    """The call with its own effect left in it, and those of its arguments taken out."""
    from holdfast.authoring.flow_effects import parts_replaced

    made = parts_replaced(stage, call)
    assert isinstance(made, ast.Call)  # noqa: S101
    return made


def _log_call(stage: Stage, call: ast.Call) -> Expression | None:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LEVELS:
        return None
    owner = stage.source.object_named(call.func.value)
    if owner is logging:
        name = "root"
    elif isinstance(owner, logging.Logger):
        name = owner.name
    else:
        return None
    made = without_effects(stage, ast.copy_location(ast.Tuple(elts=list(call.args), ctx=ast.Load()), call))
    assert isinstance(made, ast.Tuple)  # noqa: S101
    plain = ast.copy_location(ast.Call(func=call.func, args=made.elts, keywords=call.keywords), call)
    return ("log", name, call.func.attr, *compile_arguments(stage, plain, frozenset()))


def _if(stage: Stage, node: ast.If) -> None:
    building = stage.building
    taken, otherwise = stage.branch(value_of(stage, node.test), node, "if")
    building.ends = taken
    compile_statements(stage, node.body)
    after = building.take_ends()
    building.ends = otherwise
    compile_statements(stage, node.orelse)
    building.ends += after


def _return(stage: Stage, node: ast.Return) -> None:
    frame = next(frame for frame in reversed(stage.place.frames) if isinstance(frame, FunctionFrame))
    if isinstance(node.value, ast.Await):
        compile_await(stage, node.value, frame.result)
    else:
        value = ("const", None) if node.value is None else value_of(stage, node.value)
        stage.assign(frame.result, value, node, "return")
    jump(stage, "return", node)


def jump(stage: Stage, kind: Jump, node: ast.AST) -> None:
    """Lead all loose ends out: to the end of the function or to a loop, through every `finally` in between."""
    building = stage.building
    for frame in reversed(stage.place.frames):
        if isinstance(frame, FinallyFrame):
            number = frame.jumps.setdefault(kind, len(frame.jumps) + 2)
            stage.assign(frame.route, ("const", number), node, kind)
            frame.ends += building.take_ends()
            return
        if isinstance(frame, LoopFrame) and kind == "break":
            frame.breaks += building.take_ends()
            return
        if isinstance(frame, LoopFrame) and kind == "continue":
            building.connect(building.take_ends(), frame.head, frame.loop)
            return
        if isinstance(frame, FunctionFrame):
            frame.returns += building.take_ends()
            return


def _raise(stage: Stage, node: ast.Raise) -> None:
    if node.exc is None:
        if stage.place.handled is None:
            stage.refuse(
                node, "a bare `raise` outside of `except`", "there is no failure to raise again", "raise an exception"
            )
        failure: Expression = ("var", stage.place.handled)
        cause: Expression | None = None
    else:
        failure = _exception(stage, node.exc)
        cause = None if node.cause is None else _exception(stage, node.cause)
    stage.emit("expression", "raise", node, expression=("raise", failure, cause))
    stage.building.ends = []


def _exception(stage: Stage, node: ast.expr) -> Expression:
    found = stage.source.object_named(node)
    if isinstance(found, type) and issubclass(found, Exception):
        return ("make", refer_to(stage, node, found), (), ())
    return value_of(stage, node)


def _assert(stage: Stage, node: ast.Assert) -> None:
    building = stage.building
    holds, fails = stage.branch(value_of(stage, node.test), node, "assert")
    building.ends = fails
    name = ast.copy_location(ast.Name(id="AssertionError", ctx=ast.Load()), node)
    args = () if node.msg is None else (value_of(stage, node.msg),)
    made = ("make", refer_to(stage, name, AssertionError), args, ())
    stage.emit("expression", "raise", node, expression=("raise", made, None))
    building.ends = holds


def _break(stage: Stage, node: ast.Break) -> None:
    jump(stage, "break", node)


def _continue(stage: Stage, node: ast.Continue) -> None:
    jump(stage, "continue", node)


def _pass(stage: Stage, node: ast.Pass) -> None:
    """Nothing to do, and no node for it."""


_STATEMENTS: Final[dict[type[ast.stmt], Callable[[Stage, Any], None]]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.Expr: _expression,
    ast.If: _if,
    ast.For: compile_for,
    ast.AsyncWith: compile_task_group,
    ast.While: compile_while,
    ast.Try: compile_try,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Assert: _assert,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Pass: _pass,
}
