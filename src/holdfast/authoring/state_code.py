"""A state graph bound to the codecs of an engine: `GraphCode`, as the machine asks for it, and what a worker needs.

The authors' functions behind `merge` and `taken` run inside decisions and get decoded copies; whatever they raise is
told with their names, since nobody sees a traceback of a decision.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.authoring.registry import Registry
from holdfast.authoring.routes import Goto, Many, Send, Stop
from holdfast.authoring.state_fields import Written, canonical
from holdfast.authoring.state_graphs import StateGraph
from holdfast.authoring.state_nodes import Edge, GraphNode
from holdfast.authoring.state_subgraphs import subgraph_delta, subgraph_input
from holdfast.authoring.state_types import StateType
from holdfast.authoring.state_validation import unknown_node
from holdfast.core.authors_line import authors_line
from holdfast.core.codec import JSON, Codecs, decode_stored_result, is_labelled, labelled, unlabelled
from holdfast.core.codec_faithful import short
from holdfast.core.errors import GraphError
from holdfast.core.state_outcomes import NOTHING, Fields, Outcome, Route, Sent, joined, split, with_sent
from holdfast.models.state_code import NodePlan

__all__ = ["BoundGraph", "encode_state"]

RETURNS = (
    "return a dict of the fields that change, None, hf.Goto(…), hf.Many(…), hf.Stop(…), or a list of hf.Send(…) items"
)


def encode_state(fields: Fields, codecs: Codecs) -> bytes:
    """A state as the input of a run, written with the codec that the run's row will name."""
    data = joined(fields)
    return data if codecs.default is JSON else codecs.default.encode(msgspec.json.decode(data))


class BoundGraph:
    """Implements `models.state_code.GraphCode`. `name` is the one that a run is stored under, which may be an alias."""

    def __init__(
        self, graph: StateGraph[Any], *, codecs: Codecs, limit: int, registry: Registry, name: str | None = None
    ) -> None:
        graph.use()
        self.graph = graph
        self.registry = registry
        self.name = name or graph.name
        self.codecs = codecs
        self.limit = limit
        self.state_type: StateType = graph.state_type
        # Its shape, which `use` has fixed; plain attributes, since every step asks for most of them.
        self.entries: Sequence[str] = tuple(graph.entries)
        self.finish = frozenset(graph.finish_nodes)
        self.nodes: Mapping[str, NodePlan] = {name: _plan(node) for name, node in graph.nodes.items()}
        self.max_concurrent = graph.options.max_concurrent
        self.queue_depth = graph.options.queue_depth
        self.max_steps = graph.options.max_steps
        self.keep_checkpoints = graph.options.keep_checkpoints
        self._edges: dict[str, list[Edge]] = {}
        for edge in graph.edges:
            self._edges.setdefault(edge.source, []).append(edge)
        # Nodes of one step ask about the same state, one after the other.
        self._looked_at: tuple[Fields | None, Any] = (None, None)

    def __repr__(self) -> str:
        return f"<bound {self.graph!r}>"

    # -- its shape

    @property
    def backpressure(self) -> int | None:
        seconds = self.graph.options.backpressure_seconds
        return None if seconds is None else int(seconds * 1_000_000)

    def definition(self, node: str) -> GraphNode:
        """The node's function and policies; GraphError if the graph has none of that name (any more)."""
        found = self.graph.nodes.get(node)
        if found is None:
            raise unknown_node(self.graph, node, "a run")
        return found

    def own_key(self, node: str, state: object) -> str | None:
        """The idempotency key that the node's author makes of a state; None if the engine's own is to be used."""
        key = self.definition(node).policy.idempotency_key
        if key is None:
            return None
        where = f"idempotency_key of node {node!r} of graph {self.name!r}"
        try:
            made: object = key(state)
        except Exception as error:
            raise GraphError(
                f"{where} raised {type(error).__name__}: {error}{authors_line(error)}", hint="repair that function"
            ) from error
        if not isinstance(made, str) or not made:
            raise GraphError(
                f"{where} returned a {type(made).__name__}",
                hint="return a text that is the same whenever the effect is the same",
            )
        return made

    # -- its state

    def initial(self, data: bytes, codec: str) -> dict[str, bytes]:
        fields = split(canonical(data, codec, self.codecs))
        return self.state_type.complete(fields, f"the input of graph {self.name!r}")

    def encode(self, state: object, whose: str) -> dict[str, bytes]:
        """A whole state as fields, with its defaults; `whose` says in an error what it is."""
        return self.state_type.encode_whole(state, whose, self.limit)

    def encode_part(self, part: Mapping[str, object], whose: str) -> dict[str, bytes]:
        """Some fields of a state."""
        return self.state_type.encode_part(part, whose, self.limit)

    def state_for(self, fields: Fields, sent: Sent | None = None) -> Any:
        """A fresh state for a node: the merged one, with what it was sent alone in front."""
        return self.state_type.decode(with_sent(fields, sent))

    def result(self, state: Fields) -> bytes:
        return self.seal(joined(state))

    def read_result(self, stored: bytes) -> Any:
        """The state that a run ended with, as the caller is to receive it."""
        return decode_stored_result(self.state_type, self.codecs, stored)

    def seal(self, data: bytes) -> bytes:
        codec = self.codecs.default
        return data if codec is JSON else labelled(codec.encode(msgspec.json.decode(data)), codec.tag)

    def unseal(self, stored: bytes) -> bytes:
        if not is_labelled(stored):
            return stored
        written = unlabelled(stored)
        return canonical(written.data, written.codec, self.codecs)

    # -- deciding

    def merge(self, state: Fields, deltas: Sequence[tuple[str, Fields]]) -> dict[str, bytes]:
        if self.graph.reduce is not None:
            return self._reduced(state, deltas)
        written: dict[str, list[Written]] = {}
        for node, delta in deltas:
            for name, data in delta.items():
                written.setdefault(name, []).append((node, data))
        merged = dict(state)
        for name, given in written.items():
            field = self.state_type.fields.get(name)
            if field is None:
                raise self.state_type.unknown(name, f"the delta of node {given[0][0]!r} of graph {self.name!r}")
            merged[name] = field.merged(merged.get(name), given, self.limit)
        return merged

    def _reduced(self, state: Fields, deltas: Sequence[tuple[str, Fields]]) -> dict[str, bytes]:
        merged = dict(state)
        for node, delta in deltas:
            if not delta:
                continue
            where = f"reduce of graph {self.name!r}"
            part = {name: self.state_type.fields[name].decode(data) for name, data in delta.items()}
            try:
                given = self.graph.reduce(self.state_type.decode(merged), part)  # type: ignore[misc]  # looked at by merge
            except Exception as error:
                raise GraphError(
                    f"{where} raised {type(error).__name__}, merging what node {node!r} gave: {error}"
                    f"{authors_line(error)}",
                    hint="repair reduce: it gets the state and a dict of what a node gave, and returns the new state",
                ) from error
            if self.state_type.is_state(given):
                given = {name: getattr(given, name) for name in self.state_type.fields}
            if not isinstance(given, Mapping):
                raise GraphError(
                    f"{where} returned a {type(given).__name__}",
                    hint="return the new state, or a dict of the fields that changed",
                )
            merged.update(self.state_type.encode_part(given, f"what {where} returned", self.limit))
        return merged

    def taken(self, node: str, state: Fields) -> list[tuple[int, str]]:
        found = []
        for edge in self._edges.get(node, ()):
            if edge.when is None or self._holds(edge, state):
                found.append((edge.number, edge.target))
        return found

    def _holds(self, edge: Edge, state: Fields) -> bool:
        if self._looked_at[0] is not state:
            self._looked_at = (state, self.state_type.decode(state))
        try:
            holds = edge.when(self._looked_at[1])  # type: ignore[misc]  # it has one
            if not inspect.iscoroutine(holds):
                return bool(holds)
            holds.close()
            raise TypeError("it gave a coroutine, which nobody awaits")
        except Exception as error:
            raise GraphError(
                f"when of the edge from {edge.source!r} to {edge.target!r} in graph {self.name!r} raised "
                f"{type(error).__name__}: {error}{authors_line(error)}",
                hint="repair it; a field that nobody wrote yet has no value: state.get(…), or give the field a default",
            ) from error

    def route_to(self, route: Route) -> str:
        if route.node not in self.nodes:
            raise unknown_node(self.graph, route.node, "a node's answer")
        return route.node

    # -- what a node gave back

    def outcome(self, node: str, returned: object, state: object = None) -> Outcome:
        """What a node returned, checked and encoded. `state` is what it was given, to tell whether it returns that."""
        if returned is None:
            return NOTHING
        whose = f"the delta of node {node!r} of graph {self.name!r}"
        if returned is state or self.state_type.is_state(returned):
            raise GraphError(
                f"node {node!r} of graph {self.name!r} returned the whole state",
                hint='return only what changes, such as {"notes": ["one more"]}: fields with a reducer would be merged '
                "with themselves",
            )
        if returned.__class__ is dict or isinstance(returned, Mapping):
            return Outcome(delta=self._delta(returned, whose))
        if isinstance(returned, Stop):
            return Outcome(delta=self._delta(returned.delta, whose), stop=True)
        if isinstance(returned, Goto | Send):
            return self._routed(node, (returned,), None, whose)
        if isinstance(returned, Many):
            return self._routed(node, returned.targets, returned.delta, whose)
        if isinstance(returned, list | tuple):
            for item in returned:
                if not isinstance(item, Send | Goto):
                    raise GraphError(
                        f"node {node!r} of graph {self.name!r} returned a list with a {type(item).__name__}",
                        hint="a list holds hf.Send(…) or hf.Goto(…) items; for names write hf.Many([…])",
                    )
            return self._routed(node, returned, None, whose)
        close = getattr(returned, "close", None)
        if hasattr(returned, "__await__") and close is not None:
            close()  # or Python would warn, far from the mistake, that it was never awaited
        raise GraphError(f"node {node!r} of graph {self.name!r} returned a {type(returned).__name__}", hint=RETURNS)

    def _routed(
        self, node: str, targets: Sequence[str | Goto | Send], delta: Mapping[str, Any] | None, whose: str
    ) -> Outcome:
        merged = self._delta(delta, whose)
        routes = []
        for target in targets:
            sent: Sent | None = None
            name = target if isinstance(target, str) else target.node
            self._check_target(node, name)
            if isinstance(target, Send):
                sent = {field: msgspec.Raw(data) for field, data in self._sent(target, node).items()}
            elif isinstance(target, Goto) and target.delta is not None:
                for field, data in self._delta(target.delta, whose).items():
                    if field in merged:
                        raise GraphError(
                            f"{whose} has the field {field!r} twice", hint="give a field in one of the deltas only"
                        )
                    merged[field] = data
            routes.append(Route(name, sent))
        return Outcome(delta=merged, route=tuple(routes))

    def _sent(self, send: Send, node: str) -> dict[str, bytes]:
        whose = f"what node {node!r} of graph {self.name!r} sends to {send.node!r}"
        if self.state_type.is_state(send.state):
            return self.state_type.encode_whole(send.state, whose, self.limit)
        if not isinstance(send.state, Mapping):
            raise GraphError(
                f"{whose} is {short(send.state)}, a {type(send.state).__name__}", hint="send a dict of fields"
            )
        return self.state_type.encode_part(send.state, whose, self.limit)

    def _check_target(self, node: str, name: str) -> None:
        if name not in self.nodes:
            raise unknown_node(self.graph, name, f"what node {node!r} returned")
        declared = self.definition(node).goes_to
        if declared is not None and name not in declared:
            raise GraphError(
                f"node {node!r} of graph {self.name!r} goes to {name!r}, and declares goes_to={list(declared)!r}",
                hint=f"add {name!r} to its goes_to",
            )

    def _delta(self, delta: Mapping[str, Any] | None, whose: str) -> dict[str, msgspec.Raw]:
        encoded = self.state_type.encode_part(delta or {}, whose, self.limit)
        return {name: msgspec.Raw(data) for name, data in encoded.items()}

    # -- subgraphs

    def subgraph_input(self, node: str, fields: Fields) -> tuple[str, dict[str, Any]]:
        """The graph that this node is, by name, and what a run of it is started with."""
        found = self.definition(node)
        given = subgraph_input(self.graph, found, fields, self.limit)
        return found.subgraph.graph.name, given  # type: ignore[union-attr]  # looked at by the line above

    def subgraph_outcome(self, node: str, before: Fields, child_state: Fields) -> Outcome:
        """What a run of that graph changed, from our state before it and its own at its end."""
        delta = subgraph_delta(self.graph, self.definition(node), before, child_state, self.limit)
        return Outcome(delta={name: msgspec.Raw(data) for name, data in delta.items()})


def _plan(node: GraphNode) -> NodePlan:
    timeout = node.policy.timeout
    return NodePlan(
        name=node.name,
        timeout=None if timeout is None else int(timeout * 1_000_000),
        queue=node.queue,
        label=node.label,
        subgraph=node.subgraph is not None,
    )
