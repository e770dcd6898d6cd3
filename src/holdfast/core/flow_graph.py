"""A compiled flow as one frozen value: nodes, order edges, data-flow edges, required counts.

Theory of operation. A flow is one line of control that stops at *frontier* nodes (actions, barriers, the output) and
runs everything between two of them, the *inline* nodes, in memory. Whatever completes, the same steps follow: walk
from the completed node along order edges, computing inline nodes, until frontier nodes are reached; then write, in
one transaction, what those nodes and all later ones will need, and count them. `models/flow_plan.py` does that and
needs nothing but this value and the rows.

Order edges say where control goes. A conditional has a `then` and an `else`; a missing else is an edge all the same.
An edge with `back` starts the next pass of that loop. Where an exception goes is not an edge list but one field,
`on_error`: the node that looks for a handler, or nothing, and then the run fails. `required` counts concurrent
predecessors only (I17): everything requires 1 except a barrier, which requires as many as its fork starts; for a
spread that number is known when the spread is (required is None here) and is written together with its elements.

Data edges say which values outlive a completion. Control is single, so a variable's value is the last one written.
A value assigned in `source` is put into the inbox of every frontier node `target` from which code can be reached that
reads the variable before anything assigns it anew. `depth` says how many loops of the target's address the row is
bound to: a value that lives for one pass is written to `target@2`, one that is carried from pass to pass to `target`,
where the next pass overwrites it. All edges into one variable of one target have the same depth, so a row has one
place and the last write wins by being the row. Values that a loop walks over are kept in chunks (`sequences`), so
that a pass reads a chunk and not everything.

The graph is stored as JSON and never changes; its signature covers all but line numbers, so moving a function down
the file is no new version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from holdfast.core import flow_drawing
from holdfast.core.errors import FlowNotSupported, UnknownNode
from holdfast.core.flow_expression_reading import check_expression, free_variables, pattern_names
from holdfast.core.flow_expressions import Expression
from holdfast.core.stored import read_stored, unreadable

__all__ = [
    "CHUNK",
    "ENTRY",
    "FRONTIER_KINDS",
    "OUTPUT",
    "VERSION",
    "CallOptions",
    "Category",
    "DataEdge",
    "FlowGraph",
    "FlowNode",
    "FlowParameter",
    "Kind",
    "OrderEdge",
]

VERSION: Final = 1
ENTRY: Final = "input"
OUTPUT: Final = "output"
CHUNK: Final = 64
"""How many items of a loop's sequence one inbox row holds."""

Kind = Literal["input", "assignment", "expression", "conditional", "fn_call", "action", "barrier", "output"]
FRONTIER_KINDS: Final = frozenset({"action", "barrier", "output"})
Category = Literal["action", "child", "timer", "wait", "barrier", "output"]
"""What a frontier node waits for: an action's attempt, another run, an instant, events, its elements, nothing."""


class CallOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `.options(…)` said about one call. What it did not mention is the registered action's to say."""

    timeout: float | msgspec.UnsetType | None = msgspec.UNSET
    queue: str | msgspec.UnsetType | None = msgspec.UNSET
    retry: tuple[int, float, float] | None = None
    """Attempts, base and cap. Which errors are worth another attempt is code, and stays the action's."""


class FlowNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node. `expression` is what it computes when it is reached: for an action, its arguments."""

    id: str
    kind: Kind
    line: int = 0
    label: str = ""
    expression: Any = None
    target: Any = None
    """The pattern of names that its value, or an action's result, is assigned to."""
    category: Category | None = None
    call: str | None = None
    """The registered name of the action or workflow."""
    options: CallOptions | None = None
    required: int | None = 1
    loops: tuple[str, ...] = ()
    """The loops around it, outermost first."""
    on_error: str | None = None
    keeps: tuple[str, ...] = ()
    """The variables that it may have assigned although it fails: Python keeps what was done before."""
    catches: str | None = None
    """The variable that a failure is assigned to when it leads here."""
    fork: tuple[str, ...] | None = None
    """Of a fork: the branches that start here, all at once."""
    spread: bool = False
    """A branch whose expression gives the arguments of any number of elements."""
    barrier: str | None = None
    """Of a branch: the node that gathers it."""
    branches: tuple[str, ...] = ()
    """Of a barrier: what it gathers, in order."""
    return_exceptions: bool = False
    shape: str | None = None
    """Of a barrier whose branches are nested: the variable in which its fork notes how they are."""

    @property
    def is_frontier(self) -> bool:
        return self.kind in FRONTIER_KINDS

    @property
    def reads(self) -> frozenset[str]:
        """The variables it needs when it is reached."""
        return free_variables(self.expression)

    @property
    def assigns(self) -> tuple[str, ...]:
        return pattern_names(self.target)


class OrderEdge(msgspec.Struct, frozen=True, omit_defaults=True):
    """Control goes from `source` to `target`: always, or when a conditional says so."""

    source: str
    target: str
    when: Literal["", "then", "else", "branch", "gather"] = ""
    back: str | None = None
    """The loop whose next pass begins with this edge."""


class DataEdge(msgspec.Struct, frozen=True):
    """A value of `variable` that `source` assigned may be read after `target` has completed."""

    source: str
    target: str
    variable: str
    depth: int


class FlowParameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter of the flow; `default` is an expression without variables."""

    name: str
    default: Any = None

    @property
    def is_required(self) -> bool:
        return self.default is None


class _Inbox(msgspec.Struct, frozen=True, array_like=True):
    """All data edges to one variable of one target; sources are positions in the list of nodes, since they are many."""

    target: str
    variable: str
    depth: int
    sources: tuple[int, ...]


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    name: str
    signature: str
    parameters: tuple[FlowParameter, ...]
    nodes: tuple[FlowNode, ...]
    order: tuple[OrderEdge, ...]
    data: tuple[_Inbox, ...]
    sequences: tuple[str, ...]
    maybe_unbound: tuple[str, ...]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Document).decode


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """The compiled flow, checked and indexed."""

    name: str
    parameters: tuple[FlowParameter, ...]
    nodes: tuple[FlowNode, ...]
    order: tuple[OrderEdge, ...]
    data: tuple[DataEdge, ...]
    sequences: frozenset[str] = frozenset()
    maybe_unbound: frozenset[str] = frozenset()
    """Variables that some path reads without having assigned them: Python's UnboundLocalError, not lost data."""
    by_id: dict[str, FlowNode] = field(init=False, repr=False, compare=False)
    barriers_of_waits: frozenset[str] = field(init=False, repr=False, compare=False)
    """Barriers that gather times or events, maybe beside actions."""
    signature: str = field(init=False, compare=False)
    _leaving: dict[str, tuple[OrderEdge, ...]] = field(init=False, repr=False, compare=False)
    _written: dict[tuple[str, str], tuple[DataEdge, ...]] = field(init=False, repr=False, compare=False)
    _inboxes: dict[str, dict[str, int]] = field(init=False, repr=False, compare=False)
    _loop_nodes: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    memo: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    """For those who derive something from a node again and again: the graph never changes."""

    def __post_init__(self) -> None:
        by_id = {node.id: node for node in self.nodes}
        leaving: dict[str, list[OrderEdge]] = {node.id: [] for node in self.nodes}
        for edge in self.order:
            if edge.source not in by_id or edge.target not in by_id:
                raise UnknownNode(
                    f"flow {self.name} has an edge from {edge.source} to {edge.target}, of which one is missing"
                )
            leaving[edge.source].append(edge)
        written: dict[tuple[str, str], list[DataEdge]] = {}
        inboxes: dict[str, dict[str, int]] = {}
        for data in self.data:
            written.setdefault((data.source, data.variable), []).append(data)
            inboxes.setdefault(data.target, {})[data.variable] = data.depth
        loop_nodes: dict[str, list[str]] = {}
        barriers_of_waits: set[str] = set()
        for node in self.nodes:
            check_expression(node.expression)
            if node.barrier is not None and node.category in ("timer", "wait"):
                barriers_of_waits.add(node.barrier)
            if node.is_frontier:
                for loop in node.loops:
                    loop_nodes.setdefault(loop, []).append(node.id)
        put = object.__setattr__
        put(self, "by_id", by_id)
        put(self, "barriers_of_waits", frozenset(barriers_of_waits))
        put(self, "_leaving", {source: tuple(edges) for source, edges in leaving.items()})
        put(self, "_written", {key: tuple(edges) for key, edges in written.items()})
        put(self, "_inboxes", inboxes)
        put(self, "_loop_nodes", {loop: tuple(ids) for loop, ids in loop_nodes.items()})
        put(self, "signature", self._signed())

    def node(self, node_id: str) -> FlowNode:
        """The node; UnknownNode if this version of the flow has none of this name."""
        found = self.by_id.get(node_id)
        if found is None:
            raise UnknownNode(f"flow {self.name} has no node {node_id!r} in the version {self.signature[:12]}")
        return found

    def leaving(self, node_id: str) -> tuple[OrderEdge, ...]:
        """The order edges that leave a node."""
        return self._leaving[node_id]

    def leads_to_work(self, node_id: str) -> bool:
        """Whether work can follow this node alone: something else than the end of the flow or a join with others."""
        if self.node(node_id).barrier is not None:
            return False
        on_the_way, seen = [node_id], {node_id}
        while on_the_way:
            for edge in self._leaving[on_the_way.pop()]:
                target = self.by_id[edge.target]
                if target.is_frontier and target.id != OUTPUT:
                    return True
                if target.id not in seen:
                    on_the_way.append(target.id)
                    seen.add(target.id)
        return False

    def written_by(self, source: str, variable: str) -> tuple[DataEdge, ...]:
        """Where a value goes that this node assigns to this variable."""
        return self._written.get((source, variable), ())

    def inbox_of(self, node_id: str) -> dict[str, int]:
        """The variables that are kept for the code after this node, each with its depth."""
        return self._inboxes.get(node_id, {})

    def loop_nodes(self, loop: str) -> tuple[str, ...]:
        """The frontier nodes inside of a loop and of all loops within it."""
        return self._loop_nodes.get(loop, ())

    def to_json(self) -> bytes:
        """The graph as stored: the same bytes for the same graph."""
        return _encode(self._document(self.nodes, self.signature))

    @classmethod
    def from_json(cls, data: bytes) -> FlowGraph:
        """The stored graph; FlowNotSupported if a newer version wrote it, RunError if it is damaged."""
        document = read_stored(_decode, data, "the stored graph of a flow")
        if document.version != VERSION:
            raise FlowNotSupported(
                f"the stored graph of flow {document.name} has format {document.version}, not {VERSION}",
                hint="run it with the version of holdfast that compiled it, or a later one",
            )
        try:
            return cls._of(document)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise unreadable(f"the stored graph of flow {document.name}", error) from error

    @classmethod
    def _of(cls, document: _Document) -> FlowGraph:
        return cls(
            document.name,
            tuple(FlowParameter(each.name, _tuples(each.default)) for each in document.parameters),
            tuple(
                msgspec.structs.replace(node, expression=_tuples(node.expression), target=_tuples(node.target))
                for node in document.nodes
            ),
            document.order,
            tuple(sorted(_spread_out(document), key=lambda edge: (edge.source, edge.target, edge.variable))),
            frozenset(document.sequences),
            frozenset(document.maybe_unbound),
        )

    def mermaid(self, states: Mapping[str, str] | None = None) -> str:
        """The graph as a Mermaid flowchart; `states` maps node ids to a status to show and colour."""
        return flow_drawing.mermaid(self, states or {})

    def ascii(self, states: Mapping[str, str] | None = None) -> str:
        """The graph as lines for a terminal, in the order of the source."""
        return flow_drawing.ascii_lines(self, states)

    def json(self) -> str:
        """The graph as stored, as text."""
        return self.to_json().decode()

    def difference(self, later: FlowGraph) -> flow_drawing.FlowDifference:
        """What a later version of the flow changes."""
        return flow_drawing.difference(self, later)

    def _document(self, nodes: tuple[FlowNode, ...], signature: str) -> _Document:
        return _Document(
            version=VERSION,
            name=self.name,
            signature=signature,
            parameters=self.parameters,
            nodes=nodes,
            order=self.order,
            data=self._inboxes_to_store(),
            sequences=tuple(sorted(self.sequences)),
            maybe_unbound=tuple(sorted(self.maybe_unbound)),
        )

    def _inboxes_to_store(self) -> tuple[_Inbox, ...]:
        position = {node.id: number for number, node in enumerate(self.nodes)}
        sources: dict[tuple[str, str, int], list[int]] = {}
        for edge in self.data:
            sources.setdefault((edge.target, edge.variable, edge.depth), []).append(position[edge.source])
        return tuple(_Inbox(*key, tuple(sorted(found))) for key, found in sorted(sources.items()))

    def _signed(self) -> str:
        without_lines = tuple(msgspec.structs.replace(node, line=0) for node in self.nodes)
        return hashlib.sha256(_encode(self._document(without_lines, ""))).hexdigest()


def _spread_out(document: _Document) -> Iterator[DataEdge]:
    for inbox in document.data:
        for source in inbox.sources:
            yield DataEdge(document.nodes[source].id, inbox.target, inbox.variable, inbox.depth)


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples they were. Packed values keep their dicts; what is inside stays JSON's."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def expression_of(node: FlowNode) -> Expression:
    """The node's expression; a node that computes nothing gives None."""
    return ("const", None) if node.expression is None else node.expression
