"""A directed acyclic graph of nodes, as one frozen value.

Classes, builders and stored definitions all end in this value, and the engine decides from nothing
else. Everything that a completion asks (who follows, how many parents must be done, what starts
first) is indexed once when the graph is built, in time linear in nodes and edges, so that the cost
of a completion depends on the node's own edges and not on the size of the graph.

A node has an `id`, which edges and stored rows use, and a `name`, which people read. Class DAGs use
the name for both; built ones have generated ids, so that a node can be renamed.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from holdfast.core.errors import DagError, UnknownNode, UsageError
from holdfast.core.retry import ACTION_RETRY, Retry

__all__ = [
    "MAX_EDGES",
    "MAX_NODES",
    "Graph",
    "Node",
    "NodePolicy",
    "known_names",
    "too_many_nodes",
    "validated_timeout",
]

# A run is decided as one, so a definition has to fit into one process's memory and one row.
MAX_NODES = 100_000
# Two fan-outs in a row have the product of their sizes in edges, and each one is counted and stored.
MAX_EDGES = 1_000_000

_DELETE = b"\x7f"

# Enough to recognise a typing error by; more would bury the message of a graph of thousands.
CHOICES_SHOWN = 8


def known_names(wanted: str, known: Collection[str]) -> str:
    """Ends an error about an unknown name: the nearest known one, then what else there is."""
    if not known:
        return "none is defined"
    import difflib  # for those who made a mistake

    nearest = difflib.get_close_matches(wanted, known, n=1)
    shown = sorted(known)[:CHOICES_SHOWN]
    more = len(known) - len(shown)
    listing = ", ".join(map(repr, shown)) + (f" and {more} more" if more > 0 else "")
    return f"did you mean {nearest[0]!r}? known: {listing}" if nearest else f"known: {listing}"


def too_many_nodes(count: int) -> DagError:
    """The refusal of a graph of this many nodes."""
    return DagError(
        f"the graph has {count:,} nodes, and a run has at most {MAX_NODES:,}",
        hint="split it into several runs, for example one for every 10,000 items",
    )


def validated_timeout(seconds: object, owner: str) -> float | None:
    """The timeout in seconds as a float, or None for no timeout. Refuses what could never elapse."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError(
            f"timeout={seconds!r} of {owner} is a {type(seconds).__name__}",
            hint="give a number of seconds, such as timeout=30.0, or None for no timeout",
        )
    if not math.isfinite(seconds) or seconds <= 0:
        raise UsageError(
            f"timeout={seconds!r} of {owner} is not a positive, finite number of seconds",
            hint="give a number of seconds above zero, or None for no timeout",
        )
    return float(seconds)


class NodePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is run: its retries, its deadline and its queue (None: the run's own queue)."""

    retry: Retry = ACTION_RETRY
    timeout_seconds: float | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.retry, Retry):
            raise UsageError(
                f"retry={self.retry!r} is a {type(self.retry).__name__}, not a Retry",
                hint="write retry=hf.Retry(attempts=3)",
            )
        msgspec.structs.force_setattr(self, "timeout_seconds", validated_timeout(self.timeout_seconds, "a node"))
        queue: object = self.queue
        if queue is not None and (not isinstance(queue, str) or not queue):
            raise UsageError(
                f"queue={queue!r} is not a queue's name", hint="give a non-empty text, or None for the run's queue"
            )

    def describe(self) -> dict[str, object]:
        """The policy as plain JSON types, for signatures, exports and people."""
        return {"retry": self.retry.describe(), "timeout_seconds": self.timeout_seconds, "queue": self.queue}


DEFAULT_POLICY = NodePolicy()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node: what it runs (a registered job, or a method of the Dag class) and after what.

    `args` is the job's encoded call; None means that the node takes no arguments.
    """

    id: str
    name: str
    job: str | None = None
    method: str | None = None
    args: bytes | None = None
    depends_on: tuple[str, ...] = ()
    policy: NodePolicy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        if (self.job is None) == (self.method is None):
            given = "both a job and a method" if self.job is not None else "neither a job nor a method"
            raise DagError(f"node {self.name!r} has {given}", hint="a node runs exactly one of the two")
        # A parent named twice is one parent: it completes once, and a count of two would never be reached.
        if len(self.depends_on) > 1 and len(set(self.depends_on)) != len(self.depends_on):
            msgspec.structs.force_setattr(self, "depends_on", tuple(dict.fromkeys(self.depends_on)))


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in definition order, checked and indexed. Raises DagError unless they form a DAG."""

    nodes: tuple[Node, ...]
    by_id: Mapping[str, Node] = field(init=False, repr=False, compare=False)
    by_name: Mapping[str, Node] = field(init=False, repr=False, compare=False)
    entries: tuple[str, ...] = field(init=False, repr=False, compare=False)
    topological_order: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _successors: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _signature: str | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        nodes = tuple(self.nodes)
        by_id, by_name = _indexed(nodes)
        successors = _successors(nodes, by_id)
        entries = tuple(node.id for node in nodes if not node.depends_on)
        order = _topological_order(nodes, by_id, successors, entries)
        for name, value in (
            ("nodes", nodes),
            ("by_id", MappingProxyType(by_id)),
            ("by_name", MappingProxyType(by_name)),
            ("entries", entries),
            ("topological_order", order),
            ("_successors", successors),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.nodes)

    def __reduce__(self) -> tuple[type[Graph], tuple[tuple[Node, ...]]]:
        # The indexes are derived and a mapping proxy cannot be copied, so copies are rebuilt.
        return Graph, (self.nodes,)

    def successors(self, node_id: str) -> tuple[str, ...]:
        """Ids of the nodes that depend directly on this one, in definition order."""
        following = self._successors.get(node_id)
        if following is None:
            self.node(node_id)
            return ()
        return following

    def required(self, node_id: str) -> int:
        """How many completions make the node ready: its distinct parents; 1, the start itself, for an entry."""
        return len(self.node(node_id).depends_on) or 1

    def node(self, node_id: str) -> Node:
        """The node with this id; UnknownNode otherwise."""
        try:
            return self.by_id[node_id]
        except KeyError:
            raise UnknownNode(
                f"the graph has no node with id {node_id!r}", hint=known_names(node_id, self.by_id)
            ) from None

    def find(self, name_or_id: str) -> Node:
        """The node that a person means, by name first and then by id; UnknownNode otherwise."""
        node = self.by_name.get(name_or_id) or self.by_id.get(name_or_id)
        if node is None:
            raise UnknownNode(f"the graph has no node {name_or_id!r}", hint=known_names(name_or_id, self.by_name))
        return node

    def descendants(self, node_id: str) -> tuple[str, ...]:
        """Ids of everything that depends on the node, directly or not, nearest first."""
        found: dict[str, None] = {}
        waiting = deque(self.successors(node_id))
        while waiting:
            current = waiting.popleft()
            if current not in found:
                found[current] = None
                waiting.extend(self._successors.get(current, ()))
        return tuple(found)

    def path_from_entry(self, node_id: str) -> tuple[str, ...]:
        """Ids along a shortest path from an entry point to the node, both included (I30)."""
        child_of: dict[str, str | None] = {node_id: None}
        waiting = deque([node_id])
        while waiting:
            current = waiting.popleft()
            parents = self.node(current).depends_on
            if not parents:
                path = [current]
                while (following := child_of[path[-1]]) is not None:
                    path.append(following)
                return tuple(path)
            for parent in parents:
                if parent not in child_of:
                    child_of[parent] = current
                    waiting.append(parent)
        raise AssertionError(f"node {node_id!r} of a checked graph has no entry above it")

    @property
    def signature(self) -> str:
        """16 hex digits that differ when any node, edge, argument or policy differs, in any definition order."""
        if self._signature is not None:
            return self._signature
        # Policies are part of it: stored definitions are shared by signature, and two graphs that
        # retry differently must not share one. Most nodes share one policy value, and describing
        # it is the costly part.
        described: dict[int, msgspec.Raw] = {}
        canonical = [
            (
                node.id,
                node.name,
                node.job,
                node.method,
                None if node.args is None else hashlib.sha256(node.args).hexdigest(),
                sorted(node.depends_on),
                _described(node.policy, described),
            )
            for node in sorted(self.nodes, key=lambda node: node.id)
        ]
        data = msgspec.json.encode(canonical)
        if not data.isascii() or _DELETE in data:  # which Python's own writes otherwise, at eight times the price
            data = _canonical_json(msgspec.json.decode(data))
        signature = hashlib.sha256(data).hexdigest()[:16]
        object.__setattr__(self, "_signature", signature)
        return signature

    def mermaid(self, states: Mapping[str, str] | None = None) -> str:
        """The graph as a Mermaid flowchart; `states` maps node ids to a status to show and colour."""
        from holdfast.core import dag_drawing

        return dag_drawing.mermaid(self, states or {})

    def ascii(self, states: Mapping[str, str] | None = None) -> str:
        """The graph as lines for a terminal, level by level; `states` maps node ids to a status to show."""
        from holdfast.core import dag_drawing

        return dag_drawing.ascii_lines(self, states)

    def svg(self, states: Mapping[str, str] | None = None) -> str:
        """The graph as an SVG picture; `states` maps node ids to a status to show and colour."""
        from holdfast.core import dag_svg

        return dag_svg.svg(self, states)


def _canonical_json(value: object) -> bytes:
    """What signatures have always been made of."""
    import json  # functions and flows have no graph to sign

    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _described(policy: NodePolicy, seen: dict[int, msgspec.Raw]) -> msgspec.Raw:
    found = seen.get(id(policy))
    if found is None:
        # As if retry_on were the default: it is code, never stored, and an exception's module is another one where the
        # same file runs as a script, so that a program and its worker would not agree on the graph (I15).
        # Seconds as floats, for the same reason: a document holds 1.0 where the code may say 1.
        seconds = {"base": float(policy.retry.base), "cap": float(policy.retry.cap)}
        retry = {**policy.retry.describe(), **seconds, "retry_on": ACTION_RETRY.describe()["retry_on"]}
        found = seen[id(policy)] = msgspec.Raw(_canonical_json({**policy.describe(), "retry": retry}))
    return found


def _indexed(nodes: tuple[Node, ...]) -> tuple[dict[str, Node], dict[str, Node]]:
    if not nodes:
        raise DagError("the graph has no nodes", hint="add at least one step, task or node")
    if len(nodes) > MAX_NODES:
        raise too_many_nodes(len(nodes))
    edges = sum(len(node.depends_on) for node in nodes)
    if edges > MAX_EDGES:
        most = max(nodes, key=lambda node: len(node.depends_on))
        raise DagError(
            f"the graph has {edges:,} dependencies and may have {MAX_EDGES:,}; node {most.name!r} alone has "
            f"{len(most.depends_on):,}",
            hint="where every node of one group waits for every node of another, put one node between the groups",
        )
    by_id: dict[str, Node] = {}
    by_name: dict[str, Node] = {}
    for node in nodes:
        if node.name in by_name:
            raise DagError(
                f"two nodes are named {node.name!r}", hint="names are unique in a graph: give one of them another name"
            )
        if node.id in by_id:
            raise DagError(
                f"nodes {by_id[node.id].name!r} and {node.name!r} share the id {node.id!r}",
                hint="ids are unique in a graph: give one of them another id",
            )
        by_name[node.name] = node
        by_id[node.id] = node
    return by_id, by_name


def _successors(nodes: tuple[Node, ...], by_id: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    growing: dict[str, list[str]] = {}
    for node in nodes:
        for parent in node.depends_on:
            if parent not in by_id:
                raise DagError(
                    f"node {node.name!r} depends on {parent!r}, which is not in the graph",
                    hint=known_names(parent, by_id),
                )
            growing.setdefault(parent, []).append(node.id)
    return {parent: tuple(children) for parent, children in growing.items()}


def _topological_order(
    nodes: tuple[Node, ...],
    by_id: Mapping[str, Node],
    successors: Mapping[str, tuple[str, ...]],
    entries: Iterable[str],
) -> tuple[str, ...]:
    missing = {node.id: len(node.depends_on) for node in nodes}
    ready = deque(entries)
    order: list[str] = []
    while ready:
        current = ready.popleft()
        order.append(current)
        for child in successors.get(current, ()):
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    if len(order) < len(nodes):
        path = _cycle(by_id, {node_id for node_id, count in missing.items() if count})
        raise DagError(
            f"the graph has a cycle: {' -> '.join(path)} (each runs before the next)",
            hint=f"remove one of these dependencies, such as {path[1]!r} on {path[0]!r}",
        )
    return tuple(order)


def _cycle(by_id: Mapping[str, Node], stuck: set[str]) -> list[str]:
    """Names along one cycle, in the order of running, the first repeated at the end."""
    # Every stuck node has a stuck parent, so walking upwards must meet a node again.
    current = next(node_id for node_id in by_id if node_id in stuck)
    seen: dict[str, int] = {}
    walk: list[str] = []
    while current not in seen:
        seen[current] = len(walk)
        walk.append(current)
        current = next(parent for parent in by_id[current].depends_on if parent in stuck)
    circle = walk[seen[current] :][::-1]
    # Start where the definition does: the reader looks for the first of them.
    defined = {node_id: position for position, node_id in enumerate(by_id)}
    first = min(range(len(circle)), key=lambda position: defined[circle[position]])
    circle = circle[first:] + circle[:first]
    return [by_id[node_id].name for node_id in [*circle, circle[0]]]
