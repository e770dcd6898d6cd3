"""The source of a function that is to be compiled: its syntax tree, its places, the objects its names mean."""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.errors import FlowNotSupported

__all__ = ["NOTHING", "FlowSource", "read_source"]

NOTHING: Final = object()
"""What a name means that is a variable of the flow, or an expression that names no fixed object."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowSource:
    """A function as text, tree and namespace. Line numbers of the tree count from `first_line` of the file."""

    name: str
    file: str
    tree: ast.AsyncFunctionDef | ast.FunctionDef
    lines: tuple[str, ...]
    first_line: int
    namespace: Mapping[str, Any]
    local_names: frozenset[str] = frozenset()
    exception_names: frozenset[str] = frozenset()
    """Names of `except … as name`, which Python forgets at the end of the block."""

    def line_of(self, node: ast.AST) -> int:
        """The line in the file."""
        return self.first_line + getattr(node, "lineno", 1) - 1

    def object_named(self, node: ast.expr, bound: frozenset[str] = frozenset()) -> Any:
        """The object that a name or dotted name means in the function's module; NOTHING for anything that varies."""
        if isinstance(node, ast.Name):
            if node.id in self.local_names or node.id in bound or node.id.startswith("$"):
                return NOTHING
            return self.namespace.get(node.id, UNDEFINED)
        if isinstance(node, ast.Attribute):
            owner = self.object_named(node.value, bound)
            if owner is NOTHING or owner is UNDEFINED:
                return owner
            if isinstance(owner, types.ModuleType | type) and not node.attr.startswith("__"):
                return getattr(owner, node.attr, UNDEFINED)
            if isinstance(owner, enum.Enum) and node.attr in ("name", "value"):
                return getattr(owner, node.attr)
        return NOTHING


UNDEFINED: Final = object()
"""What a name means that is neither a variable of the flow nor defined in its module when the flow is compiled."""


def read_source(function: Callable[..., Any]) -> FlowSource:
    """The function's source; FlowNotSupported if there is no text to compile."""
    name = function.__qualname__
    try:
        lines, first_line = inspect.getsourcelines(function)
        definition = _parsed(lines)
    except (OSError, TypeError, SyntaxError, ValueError) as trouble:
        raise FlowNotSupported(
            f"the source of flow {name} can't be read: {trouble}",
            hint="define it with async def in a file; a flow is compiled from its text",
        ) from None
    if not isinstance(definition, ast.AsyncFunctionDef | ast.FunctionDef):
        code = function.__code__
        raise FlowNotSupported(
            f"flow {name} can't be compiled: it is no function with a definition of its own\n"
            f'  File "{code.co_filename}", line {code.co_firstlineno}',
            hint="define it with async def in a file; a flow is compiled from its text",
        )
    return FlowSource(
        name=function.__name__,
        file=inspect.getsourcefile(function) or function.__code__.co_filename,
        tree=definition,
        lines=tuple(line.rstrip("\n") for line in lines),
        first_line=first_line or 1,
        namespace=_namespace(function),
        local_names=_local_names(definition),
        exception_names=frozenset(
            handler.name
            for handler in ast.walk(definition)
            if isinstance(handler, ast.ExceptHandler) and handler.name is not None
        ),
    )


def _parsed(lines: list[str]) -> ast.stmt:
    """The definition in these lines. An indented one is put into a block: taking the indent off would change texts."""
    text = "".join(lines)
    if lines and lines[0][:1].isspace():
        block = ast.parse("if True:\n" + text).body[0]
        assert isinstance(block, ast.If)  # noqa: S101
        return ast.increment_lineno(block.body[0], -1)
    return ast.parse(text).body[0]


def _namespace(function: Callable[..., Any]) -> Mapping[str, Any]:
    found: dict[str, Any] = {**vars(builtins), **function.__globals__}
    code = function.__code__
    for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # assigned after the decoration, or never
            found.pop(name, None)
    return found


def _local_names(definition: ast.AsyncFunctionDef | ast.FunctionDef) -> frozenset[str]:
    """Names that are variables of the function: parameters, and whatever is assigned outside of comprehensions."""
    names = {argument.arg for argument in ast.walk(definition.args) if isinstance(argument, ast.arg)}
    waiting: list[ast.AST] = list(definition.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            names.add(node.name)
        waiting += list(ast.iter_child_nodes(node))
    return frozenset(names)
