"""`async with asyncio.TaskGroup()`: its tasks are branches of one fork, and the end of the block is the barrier.

A task can't be stored, but its result can. So before a function is compiled, every task in it becomes its result: the
name that a task is assigned to is assigned by the barrier, and `task.result()` and `await task` are that name. This is
the same as Python only while a task is used for nothing else, which is checked here; and while the group has not
failed where a result is read, which `refuse_doubtful_results` checks when it is known where control can go.
"""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Never, cast

from holdfast.authoring.flow_advice import advice_for
from holdfast.authoring.flow_awaits import Remote
from holdfast.authoring.flow_building import Building, Stage
from holdfast.authoring.flow_effects import has_effect
from holdfast.authoring.flow_gathers import fork_tree, tree_of_call, tree_of_comprehension
from holdfast.authoring.flow_refusals import refusal
from holdfast.authoring.flow_source import FlowSource
from holdfast.core.flow_expressions import Expression

__all__ = ["compile_task_group", "refuse_doubtful_results", "tasks_as_results"]

_FORMS: Final = (
    "write `a = tg.create_task(f(x))`, `tg.create_task(f(x))`, a list or a `for` of it, "
    "and compute the rest before the block"
)


def tasks_as_results(source: FlowSource) -> None:
    """Rewrite the function: task groups hold plain calls, and tasks are their results."""
    groups = [node for node in ast.walk(source.tree) if _is_task_group(source, node)]
    if groups:
        rewriting = _Rewriting(source)
        for group in groups:
            rewriting.learn(cast("ast.AsyncWith", group))
        rewriting.learn_loops()
        source.tree.body = [cast("ast.stmt", rewriting.visit(statement)) for statement in source.tree.body]


def compile_task_group(stage: Stage, node: ast.AsyncWith) -> None:
    """The fork and the barrier of a task group; any other `async with` is refused."""
    if not _is_task_group(stage.source, node):
        for opened in (item.context_expr for item in node.items):
            called = opened.func if isinstance(opened, ast.Call) else opened
            if (advice := advice_for(stage.source.object_named(called))) is not None:
                stage.refuse(opened, f"`async with {ast.unparse(called)}(…)`", *advice)
        stage.refuse(
            node,
            "`async with`",
            "a block that a crash may interrupt can't promise to leave",
            "open and close it inside of one action; asyncio.TaskGroup alone may be used",
        )
    leaves: list[Remote] = []
    parts: list[Expression] = []
    names: list[str] = []
    for statement in cast("list[ast.Assign]", node.body):
        value, target = statement.value, cast("ast.Name", statement.targets[0])
        if has_effect(stage, value):
            stage.refuse(
                value,
                "an await inside of a task group",
                "all tasks are started at once",
                "await it in a line before the block and use the result",
            )
        if isinstance(value, ast.ListComp):
            # A list of its own, not items of the group's.
            made = tree_of_comprehension(stage, value, frozenset(), leaves)
            parts.append(("list", ("const", "list"), ("star", made)))
        else:
            parts.append(tree_of_call(stage, value, frozenset(), leaves))
        names.append(stage.hidden("task") if target.id.startswith("$") else stage.variable(target.id))
    stage.building.task_results.update(names)
    tree: Expression = ("list", ("const", "tasks"), *parts)
    fork_tree(stage, node, tree, leaves, ("tuple", *names), "group", "async with asyncio.TaskGroup()")


def refuse_doubtful_results(building: Building, unbound: Mapping[str, frozenset[str]]) -> None:
    """FlowNotSupported where the result of a task is read on a way on which its group may not have succeeded."""
    for node, names in unbound.items():
        for name in names & building.task_results:
            shown = name.rpartition("/")[2]
            source, syntax = building.syntax[node]
            raise refusal(
                source,
                syntax,
                f"the result of task `{shown}`",
                "the group may have failed, or not have run, on the way to here, and then there is none",
                "read it in the same block as the task group, after it",
            )


def _is_task_group(source: FlowSource, node: ast.AST) -> bool:
    if not isinstance(node, ast.AsyncWith):
        return False
    made = [each.context_expr for each in node.items]
    return any(isinstance(each, ast.Call) and source.object_named(each.func) is asyncio.TaskGroup for each in made)


class _Rewriting(ast.NodeTransformer):
    """Turns tasks into their results, and refuses every other use of them."""

    def __init__(self, source: FlowSource) -> None:
        self._source = source
        self._groups: dict[str, ast.AsyncWith] = {}
        self._tasks: set[str] = set()
        self._lists: set[str] = set()
        self._stores = Counter(
            part.id for part in ast.walk(source.tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        )
        self._stores.update(part.arg for part in ast.walk(source.tree.args) if isinstance(part, ast.arg))
        self._stores.update(source.exception_names)

    def _refuse(self, node: ast.AST, construct: str, why: str, instead: str) -> Never:
        raise refusal(self._source, node, construct, why, instead)

    # --- what there is

    def learn(self, node: ast.AsyncWith) -> None:
        """Note the names of a group's tasks; its statements become assignments of plain calls."""
        item = node.items[0]
        if len(node.items) > 1 or not isinstance(item.optional_vars, ast.Name):
            self._refuse(
                node, "this task group", "it needs a name of its own", "write `async with asyncio.TaskGroup() as tg:`"
            )
        call = cast("ast.Call", item.context_expr)
        if call.args or call.keywords:
            self._refuse(call, "arguments of a task group", "it takes none", "write asyncio.TaskGroup()")
        group = item.optional_vars.id
        self._groups[group] = node
        node.body = [made for statement in node.body for made in self._learn_statement(statement, group)]

    def _learn_statement(self, statement: ast.stmt, group: str) -> list[ast.stmt]:
        if isinstance(statement, ast.Pass):
            return []
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            statement = ast.copy_location(ast.Assign(targets=[statement.target], value=statement.value), statement)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and isinstance(statement.value, ast.ListComp):
                self._single(target)
                self._lists.add(target.id)
                statement.value.elt = self._created(statement.value.elt, group)
                return [statement]
            if isinstance(target, ast.Name):
                self._single(target)
                self._tasks.add(target.id)
                statement.value = self._created(statement.value, group)
                return [statement]
        if isinstance(statement, ast.Expr):
            return [self._assigned(statement, self._created(statement.value, group))]
        if isinstance(statement, ast.For):
            return [self._assigned(statement, self._created_in_loop(statement, group))]
        self._refuse(statement, "this statement in a task group", "a group holds calls only", _FORMS)

    def _single(self, target: ast.Name) -> None:
        if self._stores[target.id] > 1:
            self._refuse(
                target,
                f"`{target.id}` as a task and as something else",
                "its result would be hard to tell from the other value",
                "use a name of its own for each task",
            )

    def _created(self, node: ast.expr, group: str) -> ast.expr:
        """The call inside of `group.create_task(…)`."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="create_task"), args=[only]) if (
                name == group and all(each.arg == "name" for each in node.keywords)
            ):
                return only
        self._refuse(node, f"`{ast.unparse(node)}` in a task group", "a group holds calls only", _FORMS)

    def _created_in_loop(self, loop: ast.For, group: str) -> ast.expr:
        """`for x in items: tg.create_task(f(x))` as a comprehension."""
        clauses: list[ast.comprehension] = []
        inner: ast.stmt = loop
        while True:
            if isinstance(inner, ast.For) and len(inner.body) == 1 and not inner.orelse:
                self._check_only_inside(inner)
                clauses.append(ast.comprehension(target=inner.target, iter=inner.iter, ifs=[], is_async=0))
            elif isinstance(inner, ast.If) and len(inner.body) == 1 and not inner.orelse:
                clauses[-1].ifs.append(inner.test)
            else:
                break
            inner = inner.body[0]
        if not isinstance(inner, ast.Expr):
            self._refuse(inner, "this statement in a task group", "a group holds calls only", _FORMS)
        made = ast.ListComp(elt=self._created(inner.value, group), generators=clauses)
        return ast.copy_location(made, loop)

    def _check_only_inside(self, loop: ast.For) -> None:
        names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
        inside = {id(part) for part in ast.walk(loop)}
        for part in ast.walk(self._source.tree):
            if isinstance(part, ast.Name) and part.id in names and id(part) not in inside:
                self._refuse(
                    loop.target,
                    f"`{part.id}` of a loop in a task group and outside of it",
                    "the loop becomes a comprehension, which keeps its names to itself",
                    "use a name of its own in the loop",
                )

    def _assigned(self, statement: ast.stmt, value: ast.expr) -> ast.stmt:
        target = ast.copy_location(ast.Name(id="$task", ctx=ast.Store()), statement)
        return ast.copy_location(ast.Assign(targets=[target], value=value), statement)

    def learn_loops(self) -> None:
        """Names of loops over lists of tasks are tasks as well."""
        for node in ast.walk(self._source.tree):
            if isinstance(node, ast.For) and self._is_list(node.iter):
                if not isinstance(node.target, ast.Name):
                    self._refuse(node.target, "unpacking a task", "a task is no tuple", "use one name")
                self._single(node.target)
                self._tasks.add(node.target.id)

    def _is_list(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._lists

    # --- where it is used

    def _result(self, node: ast.expr) -> ast.expr | None:
        """What stands for the result of the task that this expression names; None if it names none."""
        if isinstance(node, ast.Name) and node.id in self._tasks:
            return node
        if isinstance(node, ast.Subscript) and self._is_list(node.value) and not isinstance(node.slice, ast.Slice):
            node.slice = self.visit(node.slice)
            return node
        return None

    def visit_Call(self, node: ast.Call) -> Any:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "result" and not node.args and not node.keywords:
            found = self._result(func.value)
            if found is not None:
                return found
        if self._source.object_named(func) is len and len(node.args) == 1 and self._is_list(node.args[0]):
            return node
        return self.generic_visit(node)

    def visit_Await(self, node: ast.Await) -> Any:
        return self._result(node.value) or self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        if isinstance(node.ctx, ast.Load) and (node.id in self._tasks or node.id in self._lists):
            self._refuse(
                node,
                f"`{node.id}` as a value",
                "a task lives in one process, and only its result can be stored",
                f"write `[t.result() for t in {node.id}]`" if node.id in self._lists else f"write `{node.id}.result()`",
            )
        if isinstance(node.ctx, ast.Load) and node.id in self._groups:
            self._refuse(node, f"`{node.id}` here", "a task group lives inside of its own block only", _FORMS)
        return node

    def visit_For(self, node: ast.For) -> Any:
        if not self._is_list(node.iter):
            node.iter = self.visit(node.iter)
        node.body = [self.visit(statement) for statement in node.body]
        node.orelse = [self.visit(statement) for statement in node.orelse]
        return node

    def _comprehension(self, node: Any) -> Any:
        around = set(self._tasks)
        for clause in node.generators:
            if self._is_list(clause.iter):
                if not isinstance(clause.target, ast.Name):
                    self._refuse(clause.target, "unpacking a task", "a task is no tuple", "use one name")
                self._tasks.add(clause.target.id)
            else:
                clause.iter = self.visit(clause.iter)
                self._tasks -= {part.id for part in ast.walk(clause.target) if isinstance(part, ast.Name)}
            clause.ifs = [self.visit(test) for test in clause.ifs]
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        self._tasks = around
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension
