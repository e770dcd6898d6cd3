"""`asyncio.gather`: a fork that starts all branches at once, and the barrier that waits for them.

A branch is one call. A starred comprehension is a branch with any number of elements, a spread; how many there are is
known when the fork runs, and is written together with them.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from holdfast.authoring.flow_awaits import Remote, remote_call
from holdfast.authoring.flow_building import End, Stage
from holdfast.authoring.flow_expressions import compile_expression, compile_iterable, compile_pattern
from holdfast.core.flow_expressions import Expression

__all__ = ["compile_gather"]


def compile_gather(stage: Stage, node: ast.Await, call: ast.Call, result: str) -> None:
    """Make the fork, its branches and the barrier, whose value is the list of results."""
    building = stage.building
    return_exceptions = _returns_exceptions(stage, call)
    branches = [branch for argument in call.args for branch in _branches(stage, call, argument)]
    names = [building.unique(stage.prefix + remote.label) for remote, _ in branches]
    barrier = building.unique(stage.prefix + "gather")
    fork = stage.emit("expression", "fork", node, fork=tuple(names))
    quiet = stage.at(on_error=None)  # a branch's failure is the barrier's to raise
    for name, (remote, spread) in zip(names, branches, strict=True):
        quiet.make(
            name,
            "action",
            node,
            label=f"{remote.label}(…)",
            category=remote.category,
            call=remote.name,
            expression=remote.arguments,
            spread=spread,
            barrier=barrier,
        )
        building.connect([End(fork, "branch")], name)
    static = len(branches) if not any(spread for _, spread in branches) else None
    stage.make(
        barrier,
        "barrier",
        node,
        category="barrier",
        required=static,
        branches=tuple(names),
        return_exceptions=return_exceptions,
        target=result,
    )
    building.take_ends()
    building.connect([End(fork, "gather"), *(End(name) for name in names)], barrier)
    building.ends = [End(barrier)]


def _returns_exceptions(stage: Stage, call: ast.Call) -> bool:
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg != "return_exceptions" or not (
            isinstance(value, ast.Constant) and isinstance(value.value, bool)
        ):
            stage.refuse(
                keyword.value,
                f"`{keyword.arg or '**'}=` of gather",
                "the graph must know what a failure does",
                "write return_exceptions=True or leave it out",
            )
        return bool(getattr(value, "value", False))
    return False


def _branches(stage: Stage, call: ast.Call, argument: ast.expr) -> list[tuple[Remote, bool]]:
    from holdfast.authoring.flow_effects import has_effect

    if isinstance(argument, ast.Starred):
        inner = argument.value
        if isinstance(inner, ast.List | ast.Tuple):
            return [branch for item in inner.elts for branch in _branches(stage, call, item)]
        if isinstance(inner, ast.ListComp | ast.GeneratorExp):
            return [(_spread(stage, call, inner), True)]
    if not isinstance(argument, ast.Call):
        stage.refuse(
            argument,
            f"`{ast.unparse(argument)}` in gather",
            "the graph must see which calls are gathered",
            "write the calls inside of gather: gather(f(a), g(b)) or gather(*[f(x) for x in items])",
        )
    if has_effect(stage, argument):
        stage.refuse(
            argument,
            "an await inside of gather's arguments",
            "all calls are started at once",
            "await it in a line before and use the result",
        )
    return [(remote_call(stage, argument, frozenset()), False)]


def _spread(stage: Stage, call: ast.Call, node: Any) -> Remote:
    from holdfast.authoring.flow_effects import has_effect, without_effects

    first = node.generators[0]
    if len(call.args) == 1 and has_effect(stage, first.iter):
        node = copy.copy(node)
        node.generators = [copy.copy(first), *node.generators[1:]]
        node.generators[0].iter = without_effects(stage, first.iter)
    if has_effect(stage, node):
        stage.refuse(
            node,
            "an await inside of a spread",
            "all elements are started at once",
            "await it in a line before and use the result",
        )
    if not isinstance(node.elt, ast.Call):
        stage.refuse(
            node.elt, f"`{ast.unparse(node.elt)}` as the element of a spread", "an element is one call", "write f(x)"
        )
    clauses: list[Any] = []
    bound: frozenset[str] = frozenset()
    for clause in node.generators:
        if clause.is_async:
            stage.refuse(clause.iter, "`async for`", "what it reads would have to survive a crash", "use `for`")
        items = compile_iterable(stage, clause.iter, bound)
        bound = bound | {part.id for part in ast.walk(clause.target) if isinstance(part, ast.Name)}
        tests = tuple(compile_expression(stage, test, bound) for test in clause.ifs)
        clauses.append((compile_pattern(stage, clause.target, local=True), items, tests))
    remote = remote_call(stage, node.elt, bound)
    arguments: Expression = ("comprehension", "list", remote.arguments, tuple(clauses))
    return remote._replace(arguments=arguments)
