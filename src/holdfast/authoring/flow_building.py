"""The state of one compilation: nodes made so far, loose ends, and where the compiler stands in the source.

Nodes are made in the order of the source. `ends` are the edges that leave the nodes before and do not lead anywhere
yet; the next node takes them all, so the ways out of an `if` meet without a node of their own. An empty list means
that what follows can't be reached.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Never

from holdfast.authoring.flow_refusals import refusal
from holdfast.authoring.flow_source import FlowSource
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_graph import FlowNode, Kind, OrderEdge
from holdfast.core.flow_values import qualified_name

__all__ = ["Building", "End", "FinallyFrame", "FunctionFrame", "LoopFrame", "Place", "Stage"]

Jump = Literal["return", "break", "continue"]


class End(NamedTuple):
    """A loose end: where an edge starts, and when it is taken."""

    source: str
    when: Literal["", "then", "else", "branch", "gather"] = ""


class Building:
    """What a flow and the flows inlined in it have in common: nodes, edges, names that are taken."""

    def __init__(self) -> None:
        self.nodes: dict[str, FlowNode] = {}
        self.syntax: dict[str, tuple[FlowSource, ast.AST]] = {}
        self.edges: list[OrderEdge] = []
        self.ends: list[End] = []
        self.sequences: set[str] = set()
        self.scalar_parameters: dict[str, bool] = {}
        """For every parameter whether its annotation says that its value can't be changed."""
        self.scalar_results: set[str] = set()
        """The frontier nodes whose annotation says that their result can't be changed."""
        self.container_parameters: set[str] = set()
        """The parameters whose annotation is a list, a set or a dict."""
        self.container_results: set[str] = set()
        """The frontier nodes whose annotation says so of their result."""
        self.task_results: set[str] = set()
        """Variables that hold the results of tasks, and that nothing but their group may assign."""
        self.types: dict[str, type] = {}
        self.references: dict[str, Any] = {}
        self._taken: dict[str, int] = {}

    def unique(self, label: str) -> str:
        """The label, numbered from its second use on."""
        count = self._taken[label] = self._taken.get(label, 0) + 1
        return label if count == 1 else self.unique(f"{label}_{count}")

    def connect(self, ends: Iterable[End], target: str, back: str | None = None) -> None:
        """Lead these ends to a node."""
        for end in ends:
            self.edges.append(OrderEdge(end.source, target, end.when, back))

    def take_ends(self) -> list[End]:
        """The loose ends, which the caller now cares for."""
        ends, self.ends = self.ends, []
        return ends

    def learn_type(self, kind: type) -> None:
        """Values of this type may be stored."""
        self.types[qualified_name(kind)] = kind


@dataclass(slots=True)
class LoopFrame:
    """A loop that code is inside of: where `continue` goes, and the ends that `break` leaves."""

    loop: str
    head: str
    breaks: list[End] = field(default_factory=list)


@dataclass(slots=True)
class FinallyFrame:
    """A `finally` that every way out has to pass: each way has a number, which the block's end looks at."""

    route: str
    """The variable that says how the block was entered."""
    ends: list[End] = field(default_factory=list)
    jumps: dict[Jump, int] = field(default_factory=dict)


@dataclass(slots=True)
class FunctionFrame:
    """A function body: where its result goes and the ends that `return` leaves."""

    result: str
    returns: list[End] = field(default_factory=list)


Frame = LoopFrame | FinallyFrame | FunctionFrame


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the structure of the source a statement stands."""

    loops: tuple[str, ...] = ()
    on_error: str | None = None
    frames: tuple[Frame, ...] = ()
    handled: str | None = None
    """The variable of the failure that a bare `raise` raises again."""
    exceptions: tuple[tuple[str, str], ...] = ()
    """Names of `except … as name` and the variables they stand for."""


@dataclass(slots=True)
class Stage:
    """One function being compiled: its source, the names of its variables, and the place within it."""

    building: Building
    source: FlowSource
    prefix: str = ""
    callers: tuple[Any, ...] = ()
    """The flows around it, to find recursion."""
    place: Place = field(default_factory=Place)

    def refuse(self, node: ast.AST, construct: str, why: str, instead: str) -> Never:
        """Raise the refusal of a construct."""
        raise refusal(self.source, node, construct, why, instead)

    def variable(self, name: str) -> str:
        """The name under which the flow keeps a variable of this function."""
        for known, variable in reversed(self.place.exceptions):
            if known == name:
                return variable
        return name if name.startswith("$") else self.prefix + name

    def hidden(self, label: str) -> str:
        """A new variable that the source does not have."""
        return self.building.unique(f"${label}")

    def at(self, **changes: Any) -> Stage:
        """The same function at another place."""
        return replace(self, place=replace(self.place, **changes))

    def emit(self, kind: Kind, name: str, node: ast.AST, **fields: Any) -> str:
        """Make a node, reached by all loose ends; its own end is then the loose one."""
        building = self.building
        made = self.make(building.unique(self.prefix + name), kind, node, **fields)
        building.connect(building.take_ends(), made)
        building.ends = [End(made)]
        return made

    def make(self, name: str, kind: Kind, node: ast.AST, **fields: Any) -> str:
        """Make a node that nothing leads to yet."""
        self.building.nodes[name] = FlowNode(
            id=name,
            kind=kind,
            line=self.source.line_of(node),
            label=fields.pop("label", "") or _shown(node),
            loops=self.place.loops,
            on_error=self.place.on_error,
            **fields,
        )
        self.building.syntax[name] = (self.source, node)
        return name

    def assign(self, target: Any, expression: Expression, node: ast.AST, label: str = "") -> str:
        """Make an assignment."""
        shown = label or f"set_{_first_name(target)}"
        return self.emit("assignment", shown, node, expression=expression, target=target)

    def branch(self, test: Expression, node: ast.AST, label: str, **fields: Any) -> tuple[list[End], list[End]]:
        """Make a conditional; gives its ends for true and for false."""
        made = self.emit("conditional", label, node, expression=test, **fields)
        self.building.ends = []
        return [End(made, "then")], [End(made, "else")]


def _first_name(target: Any) -> str:
    if isinstance(target, str):
        return target.rpartition("/")[2].lstrip("$") or "value"
    return _first_name(target[1]) if len(target) > 1 else "nothing"


def _shown(node: ast.AST) -> str:
    """The source of a node in one short line, for drawings."""
    if isinstance(node, ast.If | ast.While):
        text = f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    elif isinstance(node, ast.For):
        text = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
    elif isinstance(node, ast.Try):
        text = "try"
    elif isinstance(node, ast.ExceptHandler):
        text = "except" if node.type is None else f"except {ast.unparse(node.type)}"
    elif isinstance(node, ast.AsyncFunctionDef):
        text = node.name
    else:
        text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "…"
