"""`hf.StateGraph`: nodes over a shared, typed state, with edges that may lead back.

A node gets its own copy of the state and returns what it changes. What the nodes of one step give is merged in an
order that depends on the graph alone, then the edges are followed from there. What can be wrong with a graph is told
where it is written, as far as that can be known; the rest when it is first started, or with `check()`.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import CodeType, FrameType, MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

import msgspec

from holdfast.authoring import reducers as reducers  # `hf.reducers` is found here
from holdfast.authoring.actions import UNSET, Unset
from holdfast.authoring.registry import Definition, Place, Registry, default_registry, validated_name
from holdfast.authoring.state_laws import is_async
from holdfast.authoring.state_nodes import (
    Edge,
    GraphNode,
    NodePolicy,
    SideEffectPolicy,
    Subgraph,
    checked_function,
    checked_node_name,
    checked_policies,
    node_timeout,
    takes_context,
)
from holdfast.authoring.state_options import GraphOptions, Redaction
from holdfast.authoring.state_types import StateType, names_near
from holdfast.core.errors import GraphError, UsageError
from holdfast.core.retry import ACTION_RETRY, Retry

__all__ = ["StateGraph"]

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])


class StateGraph(Generic[S]):
    """A graph that can be started with a state: `engine.start(graph, {"question": "…"})`.

    It is registered under its `name`, or that of its state (I15). `reduce(state, delta)` takes the place of the fields'
    reducers: it returns the new state, or the fields of it that changed, and what two nodes wrote is its business.
    """

    __holdfast__: Definition
    __state_graph__: ClassVar[bool] = True  # lets others know one without loading this module

    def __init__(
        self,
        state: type[S],
        *,
        name: str | None = None,
        reduce: Callable[[Any, Any], Any] | None = None,
        max_concurrent: int = 8,
        queue_depth: int = 1024,
        default_timeout: float | None = 30.0,
        max_steps: int = 10_000,
        backpressure_seconds: float | None = 60.0,
        keep_checkpoints: int | None = None,
        queue: str = "default",
        emitter: Any = None,
        redact: Collection[Redaction] = (),
        aliases: tuple[str, ...] | list[str] = (),
        registry: Registry | None = None,
    ) -> None:
        own = validated_name(getattr(state, "__name__", "graph") if name is None else name, "a state graph")
        others = tuple(validated_name(alias, f"an alias of graph {own!r}") for alias in aliases)
        self.options = GraphOptions(
            graph=own,
            max_concurrent=max_concurrent,
            queue_depth=queue_depth,
            default_timeout=default_timeout,
            max_steps=max_steps,
            backpressure_seconds=backpressure_seconds,
            keep_checkpoints=keep_checkpoints,
            queue=queue,
            emitter=emitter,
            redact=cast("tuple[Redaction, ...]", redact),
        )
        if reduce is not None and not callable(reduce):
            raise GraphError(
                f"reduce={reduce!r:.80} of graph {own!r} is a {type(reduce).__name__}",
                hint="give a function: reduce=lambda state, delta: {**state, **delta}",
            )
        if is_async(reduce):
            raise GraphError(f"reduce of graph {own!r} is an async def", hint="make it a plain def")
        self.reduce = reduce
        self._state = state
        self._names_near = names_near(state)
        self._state_type: StateType | None = None
        self._read_state(early=True)
        self._nodes: dict[str, GraphNode] = {}
        self._edges: list[Edge] = []
        self._entries: list[str] = []
        self._finish: list[str] = []
        self._checked = False
        self._in_use = False
        self._signature = ""
        frame = sys._getframe(1)
        self._made_by: tuple[CodeType, int] = frame.f_code, frame.f_lineno
        self.__holdfast__ = Definition(kind="workflow", name=own, aliases=others, place=_place(frame, own))
        self._registry = default_registry if registry is None else registry
        self._register()

    def __repr__(self) -> str:
        return f"<state graph {self.name} of {len(self._nodes)} nodes>"

    # -- what it is

    @property
    def name(self) -> str:
        """The name it is registered and stored under."""
        return self.__holdfast__.name

    @property
    def registry(self) -> Registry:
        """Where it is registered."""
        return self._registry

    @property
    def queue(self) -> str:
        """The queue of its runs, for a start that names none."""
        return self.options.queue

    @property
    def state_type(self) -> StateType:
        """Its state, field by field."""
        if self._state_type is None:
            self._read_state(early=False)
        return cast("StateType", self._state_type)

    @property
    def nodes(self) -> Mapping[str, GraphNode]:
        """The nodes by name, in the order in which they were declared."""
        return MappingProxyType(self._nodes)

    @property
    def edges(self) -> Sequence[Edge]:
        """The edges in the order in which they were declared."""
        return tuple(self._edges)

    @property
    def entries(self) -> Sequence[str]:
        """The nodes that a run begins with."""
        return tuple(self._entries)

    @property
    def finish_nodes(self) -> Sequence[str]:
        """The nodes at which a branch may end."""
        return tuple(self._finish)

    @property
    def signature(self) -> str:
        """Equal for graphs with the same state, nodes and edges, in whatever process; the nodes' code is not in it."""
        if not self._signature:
            shape = {key: value for key, value in self.document().items() if key != "options"}
            self._signature = hashlib.sha256(msgspec.json.encode(shape, order="sorted")).hexdigest()
        return self._signature

    # -- building

    @overload
    def node(self, fn: F, /, *, name: str | None = ...) -> F: ...
    @overload
    def node(
        self,
        /,
        *,
        name: str | None = ...,
        retry: Retry = ...,
        timeout: float | Unset | None = ...,
        recordable: bool = ...,
        requires_idempotency: bool = ...,
        idempotency_key: Callable[[Any], str] | None = ...,
        label: str | None = ...,
        queue: str | None = ...,
        goes_to: Collection[str] | None = ...,
    ) -> Callable[[F], F]: ...
    def node(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        retry: Retry = ACTION_RETRY,
        timeout: float | Unset | None = UNSET,
        recordable: bool = False,
        requires_idempotency: bool = False,
        idempotency_key: Callable[[Any], str] | None = None,
        label: str | None = None,
        queue: str | None = None,
        goes_to: Collection[str] | None = None,
    ) -> Any:
        """Make a function a node. It stays the plain function that it is, so that it can be called in tests.

        `goes_to` names the nodes that it may lead to with `Goto`, `Many` or `Send`: those that no edge leads to are
        found unreachable otherwise, and it may then go to no other. `()` is for one that ends the run with `Stop`.
        """

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            checked_function(function, self.name)
            own = self._new_name(function.__name__ if name is None else name)
            owner = f"node {own!r} of graph {self.name!r}"
            default = self.options.default_timeout
            policy = NodePolicy(
                timeout=default if timeout is UNSET else node_timeout(timeout, owner),
                retry=retry,
                idempotency_key=idempotency_key,
            )
            effects = SideEffectPolicy(recordable=recordable, requires_idempotency=requires_idempotency)
            checked_policies(own, self.name, policy, effects)
            self._nodes[own] = GraphNode(
                name=own,
                fn=function,
                policy=policy,
                effects=effects,
                label=_checked_label(label, owner),
                queue=None if queue is None else validated_name(queue, f"the queue of {owner}"),
                goes_to=None if goes_to is None else self._names(goes_to, f"goes_to of {owner}"),
                takes_context=takes_context(function),
                is_async=inspect.iscoroutinefunction(function),
            )
            self._changed()
            return function

        return decorate if fn is None else decorate(fn)

    def subgraph(
        self,
        name: str,
        graph: StateGraph[Any],
        *,
        input: Callable[[S], Any] | None = None,
        output: Callable[[Any], Mapping[str, Any] | None] | None = None,
        label: str | None = None,
    ) -> None:
        """Make another graph a node: a run of its own, whose parent is this one.

        It is given the fields that both states have, or what `input(state)` returns; its changes of those come back,
        or what `output(its state)` returns.
        """
        own = self._new_name(name)
        owner = f"node {own!r} of graph {self.name!r}"
        if not isinstance(graph, StateGraph):
            raise GraphError(
                f"the subgraph of {owner} is {graph!r:.80}, a {type(graph).__name__}", hint="give an hf.StateGraph"
            )
        for option, function in (("input", input), ("output", output)):
            if function is not None and not callable(function):
                raise GraphError(
                    f"{option}={function!r:.80} of {owner} is a {type(function).__name__}",
                    hint=f"give a function of a state that returns a dict of fields: {option}=lambda state: …",
                )
        self._nodes[own] = GraphNode(
            name=own,
            policy=NodePolicy(timeout=None),
            label=_checked_label(label, owner),
            subgraph=Subgraph(graph=graph, input=input, output=output),
        )
        self._changed()

    def edge(self, source: str, target: str, when: Callable[[S], object] | None = None) -> None:
        """Let `target` follow `source`, if `when` holds for the state after the step. All that hold are taken."""
        self._open("the edge", f"from {source!r} to {target!r}")
        source, target = self._names((source, target), f"an edge of graph {self.name!r}")
        if when is not None and not callable(when):
            raise GraphError(
                f"when={when!r:.80} of the edge from {source!r} to {target!r} in graph {self.name!r} is a "
                f"{type(when).__name__}",
                hint='give a function of the state: when=lambda state: state["ok"]',
            )
        if is_async(when):
            raise GraphError(
                f"when of the edge from {source!r} to {target!r} in graph {self.name!r} is an async def",
                hint="make it a plain def of the state; what has to be awaited belongs in a node, which writes a field",
            )
        leaving = [edge for edge in self._edges if edge.source == source]
        if any(edge.target == target and edge.when == when for edge in leaving):
            raise GraphError(
                f"graph {self.name!r} has the edge from {source!r} to {target!r} twice", hint="leave one of them out"
            )
        self._edges.append(Edge(source, target, len(leaving), when))
        self._changed()

    def start_at(self, *names: str) -> None:
        """Let runs begin with these nodes."""
        self._add(names, self._entries, "start_at")

    def finish(self, *names: str) -> None:
        """Let branches end at these nodes, where no edge leads on."""
        self._add(names, self._finish, "finish")

    def check(self) -> None:
        """GraphError that names what is wrong with the graph; nothing if it can be started."""
        if not self._checked:
            from holdfast.authoring.state_validation import check_graph

            self._checked = True  # first: a graph may be a part of its own parts
            try:
                check_graph(self)
            except BaseException:
                self._checked = False
                raise

    def use(self) -> None:
        """For the engine: check it, and refuse changes from here on, since runs follow it."""
        self.check()
        self._in_use = True

    # -- for people

    def mermaid(
        self, *, states: Mapping[str, str] | None = None, taken: Collection[tuple[str, str]] | None = None
    ) -> str:
        """A flowchart; with the statuses of nodes by name, and with the edges that a run took marked."""
        from holdfast.authoring.state_drawing import mermaid

        return mermaid(self, states or {}, taken or ())

    def ascii(self, *, states: Mapping[str, str] | None = None) -> str:
        """The same as lines of text."""
        from holdfast.authoring.state_drawing import ascii_lines

        return ascii_lines(self, states or {})

    def document(self) -> dict[str, Any]:
        """The graph in JSON's own types, for tools."""
        from holdfast.authoring.state_drawing import document

        return document(self)

    # -- inside

    def _read_state(self, *, early: bool) -> None:
        try:
            self._state_type = StateType(self._state, self.options.graph, self._names_near)
        except NameError as error:
            if early:  # an annotation may name what is defined further down
                return
            raise GraphError(
                f"an annotation of the state {self._state.__name__} of graph {self.name!r} cannot be read: {error}",
                hint="import or define what it names at the top level of the module, also at run time",
            ) from None

    def _register(self) -> None:
        definition = self.__holdfast__
        earlier = self._registry.workflows.get(definition.name)
        if isinstance(earlier, StateGraph):
            code, line = earlier._made_by
            # The module itself did not change between the two, so this is no reload.
            if code is self._made_by[0] and line != self._made_by[1]:
                raise UsageError(
                    f"the name {definition.name!r} is defined twice: by {earlier.__holdfast__.place} and by "
                    f"{definition.place}",
                    hint="give one of the graphs another name=, or keep them apart with registry=hf.Registry()",
                )
        self._registry.add(self)

    def _open(self, what: str, which: str) -> None:
        if self._in_use:
            raise GraphError(
                f"{what} {which} was added to graph {self.name!r} after its first start",
                hint="declare nodes and edges where the graph is made, before anything is started",
            )

    def _new_name(self, name: object) -> str:
        own = checked_node_name(name, self.name)
        self._open("the node", repr(own))
        if own in self._nodes:
            raise GraphError(
                f"graph {self.name!r} has the node {own!r} twice", hint='give one of them another name="…"'
            )
        return own

    def _names(self, names: object, where: str) -> tuple[str, ...]:
        if isinstance(names, str) or not isinstance(names, Collection):
            raise GraphError(f"{where} is {names!r:.80}, a {type(names).__name__}", hint='give a list: ["write"]')
        for name in names:
            if not isinstance(name, str):
                shown = getattr(name, "__name__", None)
                told = f"the function {shown}" if shown is not None else f"{name!r:.80}, a {type(name).__name__}"
                raise GraphError(f"{where} names {told}", hint=f"give the node's name, as a text: {shown or 'write'!r}")
        return tuple(names)

    def _add(self, names: tuple[str, ...], known: list[str], what: str) -> None:
        self._open(what, ", ".join(map(repr, names)))
        if not names:
            raise GraphError(f"{what}() of graph {self.name!r} names no node", hint=f'write {what}("write")')
        for name in self._names(names, f"{what} of graph {self.name!r}"):
            if name in known:
                raise GraphError(f"{what} of graph {self.name!r} names {name!r} twice", hint="name each node once")
            known.append(name)
        self._changed()

    def _changed(self) -> None:
        self._checked = False
        self._signature = ""
        self._registry.version += 1  # what a worker derived from the names is out of date


def _place(frame: FrameType, name: str) -> Place:
    code = frame.f_code
    around = "" if code.co_name == "<module>" else f"{code.co_qualname}.<locals>."
    module = str(frame.f_globals.get("__name__", "unknown"))
    return Place(module, f"{around}StateGraph({name!r})", code.co_filename, frame.f_lineno)


def _checked_label(label: object, owner: str) -> str | None:
    if label is None:
        return None
    return validated_name(label, f"the label of {owner}")
