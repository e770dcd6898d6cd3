"""`hf.DagBuilder`: a DAG whose nodes are known only when it is started, such as one for every item of a list.

Its nodes run registered actions. `build()` gives a frozen value that is stored with the run (I27), so a
later deploy changes what the jobs do but never which nodes there are. Nothing here is random: the same
calls give the same ids, so a start that is repeated under its key finds the run of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import msgspec

from holdfast.authoring.actions import UNSET, Action, Unset, overridden
from holdfast.authoring.dag_nodes import Previous
from holdfast.authoring.dags import ON_FAILURE, OnFailure
from holdfast.authoring.registry import Registry, default_registry, validated_name
from holdfast.core.dag_document import document, frozen_policy, stored_nodes
from holdfast.core.errors import DagError, UsageError
from holdfast.core.graph import MAX_NODES, Graph, Node, NodePolicy, known_names, too_many_nodes
from holdfast.core.ids import hashed
from holdfast.core.retry import ACTION_RETRY, Retry

__all__ = ["BuiltDag", "BuiltNode", "DagBuilder"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BuiltNode:
    """A node of one builder, for `depends_on`."""

    id: str
    name: str
    _builder: DagBuilder = field(repr=False, compare=False)


class _NoNodes(list[BuiltNode]):
    """What a fan-out over nothing returns. As `depends_on` it stands for what its nodes would have waited for (I27)."""

    def __init__(self, builder: DagBuilder, waits_for: tuple[str, ...]) -> None:
        super().__init__()
        self.builder = builder
        self.waits_for = waits_for


BuiltDependency: TypeAlias = "str | BuiltNode | Previous"
BuiltDependencies: TypeAlias = "BuiltDependency | Iterable[BuiltDependency]"


@dataclass(frozen=True, slots=True)
class BuiltDag:
    """A complete DAG that `engine.start` accepts. It shares nothing with the builder it came from.

    `nodes_json` is what is stored with the run.
    """

    name: str
    graph: Graph
    on_failure: OnFailure
    nodes_json: bytes = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.graph)

    def __repr__(self) -> str:
        return f"<BuiltDag {self.name} of {len(self):,} node{'' if len(self) == 1 else 's'}>"

    def dag_signature(self) -> str:
        """16 hex digits that differ when a node, an edge, an argument or a policy differs."""
        return self.graph.signature

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        return self.graph.mermaid()

    def ascii(self) -> str:
        """The graph as lines for a terminal."""
        return self.graph.ascii()

    def to_json(self) -> str:
        """The document that `handle.export_dag()` would give, not frozen yet."""
        return msgspec.json.format(msgspec.json.encode(document(self.graph, None)), indent=2).decode()


class DagBuilder:
    """Collects nodes and builds DAGs from them.

    `on_failure` says what happens when a node gives up ("pause", "fail", "cancel", "skip"); `registry` is where
    jobs that are given by name are looked up. A builder can be built, added to and built again.
    """

    def __init__(self, name: str, *, on_failure: OnFailure = "pause", registry: Registry | None = None) -> None:
        self.name = validated_name(name, "a DagBuilder")
        if on_failure not in ON_FAILURE:
            raise DagError(
                f"DagBuilder {name!r} has on_failure={on_failure!r}", hint=known_names(str(on_failure), ON_FAILURE)
            )
        self._on_failure: OnFailure = on_failure
        self._registry = default_registry if registry is None else registry
        self._nodes: list[Node] = []
        self._handles: dict[str, BuiltNode] = {}
        self._ids: set[str] = set()
        self._previous: tuple[str, ...] = ()
        self._policies: dict[NodePolicy, NodePolicy] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<DagBuilder {self.name} of {len(self):,} node{'' if len(self) == 1 else 's'}>"

    def node(
        self,
        name: str,
        *,
        job: Action[..., Any] | str,
        args: Mapping[str, Any] | None = None,
        depends_on: BuiltDependencies | Unset | None = UNSET,
        retry: Retry | Unset = UNSET,
        timeout: float | Unset | None = UNSET,
        queue: str | Unset | None = UNSET,
    ) -> BuiltNode:
        """Add a node that runs an action with these arguments, and return its handle.

        It waits for the node added before it, or for all nodes of the fan-out before it; `depends_on` says
        otherwise, by name or handle, and None or [] makes it an entry point. Policies are the action's, with
        what is given here on top.
        """
        self._check_name(name)
        self._check_room(1)
        parents = self._parents(depends_on, name)
        action = self._job(job, name)
        policy = self._policy(action, retry, timeout, queue, name)
        encoded = self._arguments(action, args, name)
        added = self._add(name, action.name, encoded, parents, policy)
        self._previous = (added.id,)
        return added

    def fan_out(
        self,
        items: Iterable[T],
        *,
        name: Callable[[T], str],
        job: Action[..., Any] | str,
        args: Callable[[T], Mapping[str, Any]] | Mapping[str, Any] | None = None,
        depends_on: BuiltDependencies | Unset | None = UNSET,
        retry: Retry | Unset = UNSET,
        timeout: float | Unset | None = UNSET,
        queue: str | Unset | None = UNSET,
    ) -> list[BuiltNode]:
        """Add one node for each item, all waiting for the same, and return their handles in that order.

        `name` and `args` are functions of the item. Without `depends_on` each waits for the node before the
        fan-out. Afterwards all of them together are what the next node follows.

        Nothing is added if anything is wrong. Without items nothing is added either: the list is empty, and the
        next node follows what it would have followed without this call. One that is given the empty list as its
        `depends_on` waits for what the items' nodes would have waited for.
        """
        self._check_fan_out(items, name)
        parents = self._parents(depends_on, "fan_out")
        action = self._job(job, "fan_out")
        policy = self._policy(action, retry, timeout, queue, "fan_out")
        if isinstance(items, Sized):  # the whole number is a better answer than the first that is too many
            self._check_room(len(items))
        room = MAX_NODES - len(self._nodes)
        prepared: dict[str, bytes | None] = {}
        for item in items:
            item_name = self._of_item(name, item, "name")
            self._check_name(item_name)
            if item_name in prepared:
                raise DagError(
                    f"{self._shown}: fan_out gives two items the name {item_name!r}, the second is {item!r:.80}",
                    hint="put what tells the items apart into the name",
                )
            item_args = self._of_item(args, item, "args") if callable(args) else args
            prepared[item_name] = self._arguments(action, item_args, item_name)
            if len(prepared) > room:
                raise too_many_nodes(len(self._nodes) + len(prepared))
        added = [self._add(each, action.name, encoded, parents, policy) for each, encoded in prepared.items()]
        if not added:
            return _NoNodes(self, parents)
        self._previous = tuple(each.id for each in added)
        return added

    def build(self) -> BuiltDag:
        """The DAG of all nodes so far, frozen; DagError if there is none, or if it is too large to be stored."""
        if not self._nodes:
            raise DagError(f"{self._shown} has no nodes, so there is nothing to run", hint="add some with node(…)")
        graph = Graph(tuple(self._nodes))
        return BuiltDag(self.name, graph, self._on_failure, stored_nodes(graph))

    # -- adding

    def _add(self, name: str, job: str, args: bytes | None, parents: tuple[str, ...], policy: NodePolicy) -> BuiltNode:
        node_id = self._new_id(name)
        self._nodes.append(Node(id=node_id, name=name, job=job, args=args, depends_on=parents, policy=policy))
        self._ids.add(node_id)
        handle = self._handles[name] = BuiltNode(node_id, name, self)
        return handle

    def _new_id(self, name: str) -> str:
        node_id = f"n_{hashed(self.name, name)[:8]}"
        again = 1
        while node_id in self._ids:
            again += 1
            node_id = f"n_{hashed(self.name, name, str(again))[:8]}"
        return node_id

    # -- checking

    @property
    def _shown(self) -> str:
        return f"DAG {self.name!r}"

    def _check_room(self, more: int) -> None:
        if len(self._nodes) + more > MAX_NODES:
            raise too_many_nodes(len(self._nodes) + more)

    def _check_name(self, name: object) -> None:
        text = validated_name(name, f"a node of {self._shown}")
        if text in self._handles:
            raise DagError(
                f"{self._shown} has a node {text!r} already",
                hint="names are unique in a DAG: put what tells the two apart into the name",
            )

    def _check_fan_out(self, items: object, name: object) -> None:
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise DagError(
                f"{self._shown}: fan_out was given {items!r:.80}, a {type(items).__name__}, as its items",
                hint="give a list or another iterable; read an asynchronous one first",
            )
        if not callable(name):
            raise DagError(
                f"{self._shown}: fan_out was given name={name!r:.80}, but every item needs a name of its own",
                hint='give a function of the item, such as name=lambda item: f"process_{item}"',
            )

    def _of_item(self, function: Callable[[T], Any], item: T, option: str) -> Any:
        try:
            return function(item)
        except Exception as error:
            error.add_note(f"raised by {option}= of fan_out in {self._shown}, for the item {item!r:.80}")
            raise

    def _job(self, job: object, node: str) -> Action[..., Any]:
        if isinstance(job, str):
            found = self._registry.actions.get(job)
            if found is None:
                raise DagError(
                    f"{self._shown}, node {node!r}: no action is registered as {job!r}",
                    hint=f"import the module that defines it; {known_names(job, self._registry.actions)}",
                )
            return found
        if not isinstance(job, Action):
            raise DagError(
                f"{self._shown}, node {node!r}: job={job!r:.80} is a {type(job).__name__}, not an action",
                hint="decorate the function with @hf.action and pass the action, or its name",
            )
        return job

    def _policy(
        self,
        action: Action[..., Any],
        retry: Retry | Unset,
        timeout: float | Unset | None,
        queue: str | Unset | None,
        node: str,
    ) -> NodePolicy:
        owner = f"node {node!r} of {self._shown}"
        merged = overridden(action.policy, retry, timeout, queue, owner)
        registered = self._registry.actions.get(action.name, action)
        allowed = (ACTION_RETRY.retry_on, registered.policy.retry.retry_on)
        if merged.retry.retry_on not in allowed:
            raise DagError(
                f"{owner} has a retry_on of its own, which is code and cannot be stored with a built DAG",
                hint=f"put it on the action: @hf.action(retry=hf.Retry(retry_on=…)) of {action.name}",
            )
        policy = frozen_policy(merged)
        return self._policies.setdefault(policy, policy)

    def _arguments(self, action: Action[..., Any], args: object, node: str) -> bytes | None:
        if args is None:
            args = {}
        if not isinstance(args, Mapping):
            raise DagError(
                f"{self._shown}, node {node!r}: args is {args!r:.80}, a {type(args).__name__}",
                hint='give the arguments by name: args={"user_id": 7}',
            )
        try:
            return action.encode_keywords(args)
        except UsageError as error:
            raise type(error)(f"{self._shown}, node {node!r}: {error.message}", hint=error.hint) from error

    # -- dependencies

    def _parents(self, given: object, node: str) -> tuple[str, ...]:
        if given is UNSET:
            return self._previous
        if given is None:
            return ()
        if isinstance(given, _NoNodes) and given.builder is self:
            return given.waits_for
        listed = (given,) if isinstance(given, str | BuiltNode | Previous) else given
        if isinstance(listed, bytes | Mapping) or not isinstance(listed, Iterable):
            raise self._odd(listed, node)
        found: dict[str, None] = {}
        for member in listed:
            if isinstance(member, BuiltNode):
                found[self._own(member, node).id] = None
            elif isinstance(member, str):
                found[self._named(member, node).id] = None
            elif isinstance(member, Previous):
                found.update(dict.fromkeys(self._previous))
            else:
                raise self._odd(member, node)
        return tuple(found)

    def _own(self, handle: BuiltNode, node: str) -> BuiltNode:
        if handle._builder is not self:
            raise DagError(
                f"{self._shown}, node {node!r} depends on {handle.name!r}, which is a node of another builder "
                f"({handle._builder!r})",
                hint="add both to one builder: a run waits only for nodes of its own",
            )
        return handle

    def _named(self, name: str, node: str) -> BuiltNode:
        handle = self._handles.get(name)
        if handle is None:
            itself = name == node
            what = "itself" if itself else f"{name!r}, and there is no such node yet"
            fix = "leave it out" if itself else "define it first, or correct the name"
            raise DagError(
                f"{self._shown}, node {node!r} depends on {what}", hint=f"{fix}; {known_names(name, self._handles)}"
            )
        return handle

    def _odd(self, given: object, node: str) -> DagError:
        return DagError(
            f"{self._shown}, node {node!r}: depends_on holds {given!r:.80}, a {type(given).__name__}",
            hint="give names of nodes, handles that node(…) and fan_out(…) returned, hf.PREVIOUS, or None",
        )
