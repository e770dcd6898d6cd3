"""`asyncio.gather`: a fork that starts all branches at once, and the barrier that waits for them.

A branch is one call. A starred comprehension is a branch with any number of elements, a spread; how many there are is
known when the fork runs, and is written together with them.

Gathers inside of gathers, a choice between calls, and task groups are one fork and one barrier too: the fork computes
the tree of all calls, and the barrier puts the outcomes together in its shape (`models/flow_tree.py`).
"""

from __future__ import annotations

import ast
import asyncio
import copy
from typing import Any, Never

from holdfast.authoring.flow_awaits import Remote, remote_call
from holdfast.authoring.flow_building import End, Stage
from holdfast.authoring.flow_expressions import compile_expression, compile_iterable, compile_pattern
from holdfast.core.flow_expressions import Expression

__all__ = ["compile_gather", "fork_tree", "tree_of_call", "tree_of_comprehension"]


def compile_gather(stage: Stage, node: ast.Await, call: ast.Call, result: str) -> None:
    """Make the fork, its branches and the barrier, whose value is the list of results."""
    building = stage.building
    return_exceptions = _returns_exceptions(stage, call)
    if any(_is_nested(stage, argument) for argument in call.args):
        leaves: list[Remote] = []
        tree = _tree_of_gather(stage, call, frozenset(), leaves)
        fork_tree(stage, node, tree, leaves, result, "gather")
        return
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
            options=remote.options,
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


def fork_tree(
    stage: Stage, node: ast.AST, tree: Expression, leaves: list[Remote], target: Any, label: str, shown: str = ""
) -> None:
    """Make the fork of a tree of calls, a branch for each call in the source, and the barrier."""
    building = stage.building
    names = [building.unique(stage.prefix + remote.label) for remote in leaves]
    barrier = building.unique(stage.prefix + label)
    shape = stage.hidden("shape")
    fork = stage.emit("expression", "fork", node, fork=tuple(names), expression=tree, target=shape, label=shown)
    quiet = stage.at(on_error=None)  # a branch's failure is the barrier's to raise
    for name, remote in zip(names, leaves, strict=True):
        quiet.make(
            name,
            "action",
            node,
            label=f"{remote.label}(…)",
            category=remote.category,
            call=remote.name,
            options=remote.options,
            spread=True,
            barrier=barrier,
        )
        building.connect([End(fork, "branch")], name)
    stage.make(
        barrier,
        "barrier",
        node,
        label=shown,
        category="barrier",
        required=None,
        branches=tuple(names),
        shape=shape,
        target=target,
    )
    building.take_ends()
    building.connect([End(fork, "gather"), *(End(name) for name in names)], barrier)
    building.ends = [End(barrier)]


def tree_of_call(stage: Stage, node: ast.expr, bound: frozenset[str], leaves: list[Remote]) -> Expression:
    """The tree of one call, of a gather, or of a choice between such."""
    if isinstance(node, ast.IfExp):
        test = compile_expression(stage, node.test, bound)
        either = tree_of_call(stage, node.body, bound, leaves)
        return ("if", test, either, tree_of_call(stage, node.orelse, bound, leaves))
    if not isinstance(node, ast.Call):
        _refuse_argument(stage, node)
    if _is_gather(stage, node, bound):
        return _tree_of_gather(stage, node, bound, leaves)
    remote = remote_call(stage, node, bound)
    leaves.append(remote)
    return ("tuple", ("const", len(leaves) - 1), remote.arguments)


def tree_of_comprehension(stage: Stage, node: Any, bound: frozenset[str], leaves: list[Remote]) -> Expression:
    """A list of trees, one for each turn."""
    clauses, inner = _clauses(stage, node, bound)
    return ("comprehension", "list", tree_of_call(stage, node.elt, inner, leaves), clauses)


def _tree_of_gather(stage: Stage, call: ast.Call, bound: frozenset[str], leaves: list[Remote]) -> Expression:
    _refuse_effects(stage, call)
    mode = "return" if _returns_exceptions(stage, call) else "raise"
    parts = [part for argument in call.args for part in _trees(stage, argument, bound, leaves)]
    return ("list", ("const", mode), *parts)


def _trees(stage: Stage, argument: ast.expr, bound: frozenset[str], leaves: list[Remote]) -> list[Expression]:
    inner = argument.value if isinstance(argument, ast.Starred) else None
    if isinstance(inner, ast.List | ast.Tuple):
        return [part for item in inner.elts for part in _trees(stage, item, bound, leaves)]
    if isinstance(inner, ast.ListComp | ast.GeneratorExp):
        return [("star", tree_of_comprehension(stage, inner, bound, leaves))]
    return [tree_of_call(stage, argument, bound, leaves)]


def _is_gather(stage: Stage, node: ast.expr, bound: frozenset[str] = frozenset()) -> bool:
    return isinstance(node, ast.Call) and stage.source.object_named(node.func, bound) is asyncio.gather


def _is_nested(stage: Stage, argument: ast.expr) -> bool:
    """Whether this argument of gather holds more than one call, or one that is chosen."""
    if isinstance(argument, ast.Starred):
        inner = argument.value
        if isinstance(inner, ast.List | ast.Tuple):
            return any(_is_nested(stage, item) for item in inner.elts)
        return isinstance(inner, ast.ListComp | ast.GeneratorExp) and _is_nested(stage, inner.elt)
    return isinstance(argument, ast.IfExp) or _is_gather(stage, argument)


def _refuse_effects(stage: Stage, node: ast.AST) -> None:
    from holdfast.authoring.flow_effects import has_effect

    if has_effect(stage, node):
        stage.refuse(
            node,
            "an await inside of nested gathers",
            "all calls are started at once",
            "await it in a line before and use the result",
        )


def _refuse_argument(stage: Stage, argument: ast.expr) -> Never:
    stage.refuse(
        argument,
        f"`{ast.unparse(argument)}` in gather",
        "the graph must see which calls are gathered",
        "write the calls inside of gather: gather(f(a), g(b)) or gather(*[f(x) for x in items])",
    )


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
        _refuse_argument(stage, argument)
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
    clauses, bound = _clauses(stage, node, frozenset())
    remote = remote_call(stage, node.elt, bound)
    arguments: Expression = ("comprehension", "list", remote.arguments, clauses)
    return remote._replace(arguments=arguments)


def _clauses(stage: Stage, node: Any, bound: frozenset[str]) -> tuple[tuple[Any, ...], frozenset[str]]:
    """The clauses of a comprehension, and the names that its element may use besides variables."""
    clauses: list[Any] = []
    for clause in node.generators:
        if clause.is_async:
            stage.refuse(clause.iter, "`async for`", "what it reads would have to survive a crash", "use `for`")
        items = compile_iterable(stage, clause.iter, bound)
        bound = bound | {part.id for part in ast.walk(clause.target) if isinstance(part, ast.Name)}
        tests = tuple(compile_expression(stage, test, bound) for test in clause.ifs)
        clauses.append((compile_pattern(stage, clause.target, local=True), items, tests))
    return tuple(clauses), bound
