"""`hf.Dag`: a class whose methods are the nodes of a graph and whose fields are the run's input.

The class *is* the definition: nothing of its graph is stored, so a deploy changes what running runs
do next (I31). Everything that can be wrong with the graph is found when the class is created. Nodes
speak through side effects, never through `self`: every attempt gets its own instance, decoded from
the stored fields, possibly in another process, so assigning to it is an error.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Never, Self, dataclass_transform

import msgspec

from holdfast.authoring.actions import UNSET, Action, Isolation, Unset
from holdfast.authoring.dag_chain import ResolvedNode, resolved
from holdfast.authoring.dag_conditions import Condition, Conditions, bound_conditions, check_names, listed_conditions
from holdfast.authoring.dag_fields import DagFields
from holdfast.authoring.dag_nodes import Declaration, DeclaredNode, JobNode, MethodNode, check_method
from holdfast.authoring.registry import Definition, Registry, default_registry
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, JSON, Codecs
from holdfast.core.errors import DagError, UnknownNode, UsageError
from holdfast.core.graph import Graph, Node, NodePolicy, known_names
from holdfast.core.retry import RetryOn

__all__ = ["ON_FAILURE", "Dag", "DagDefinition", "NodeCall", "OnFailure", "callable_of", "job_call"]

OnFailure = Literal["pause", "fail", "cancel", "skip"]
ON_FAILURE: tuple[OnFailure, ...] = ("pause", "fail", "cancel", "skip")


class NodeCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A node ready to be run: a call without arguments, where it may run, and what to ask before.

    Any of `cancel_if`, then any of `skip_if`, may say that it is not to run; each may return an awaitable.
    `retry_on` is the part of the policy that is code, which a stored graph does not hold.
    """

    call: Callable[[], Any]
    is_async: bool
    transactional: bool
    isolation: Isolation | None = None
    skip_if: tuple[Callable[[], Any], ...] = ()
    cancel_if: tuple[Callable[[], Any], ...] = ()
    depends_on_run: tuple[Callable[[], Any], ...] = ()
    retry_on: RetryOn = (Exception,)

    def __call__(self) -> Any:
        return self.call()


class DagDefinition:
    """What a Dag class says, resolved: its nodes, fields and policies."""

    __slots__ = (
        "_graph", "by_name", "cancel_if", "cls", "fields", "methods", "nodes", "on_failure",
        "own_cancel_if", "policies", "registry",
    )  # fmt: skip

    def __init__(
        self,
        cls: type[Dag],
        *,
        nodes: tuple[ResolvedNode, ...],
        fields: DagFields,
        on_failure: OnFailure,
        registry: Registry,
        own_cancel_if: tuple[Condition, ...] = (),
    ) -> None:
        self.cls = cls
        self.nodes = nodes
        self.by_name = {each.name: each.node for each in nodes}
        self.methods = {each.node.attribute: each.node for each in nodes if isinstance(each.node, MethodNode)}
        self.policies = {each.name: _policy(each) for each in nodes}
        self.own_cancel_if = own_cancel_if
        inherited = [base.__dag__.own_cancel_if for base in _dag_bases(cls) if base is not cls]
        self.cancel_if = tuple(condition for each in (*inherited, own_cancel_if) for condition in each)
        self.fields = fields
        self.on_failure = on_failure
        self.registry = registry
        self._graph: Graph | None = None
        if nodes:
            checked = self._built(types_may_come_later=True)
            # Of a job's arguments only what can be known now: its annotations may name types that are defined later.
            self._graph = checked if all(each.node.declaration.job is None for each in nodes) else None

    @property
    def graph(self) -> Graph:
        """The graph, built at the first use; DagError for a class without nodes."""
        if self._graph is None:
            if not self.nodes:
                raise DagError(
                    f"{self.cls.__qualname__} has no nodes, so there is nothing to run",
                    hint="decorate a method with @hf.step or @hf.task, or start a subclass that has some",
                )
            self._graph = self._built(types_may_come_later=False)
        return self._graph

    def is_plain(self, method: str) -> bool:
        """Whether a step is its method and nothing more: no conditions, and nothing special that is worth a retry."""
        declared = self.methods.get(method)
        if not isinstance(declared, MethodNode) or self.cancel_if:
            return False
        said = declared.declaration
        free = all(each is UNSET or not each for each in (said.skip_if, said.cancel_if, said.depends_on_run))
        return free and self.policies[declared.node_name].retry.retry_on == (Exception,)

    def _built(self, *, types_may_come_later: bool) -> Graph:
        return Graph(tuple(self._node(each, types_may_come_later) for each in self.nodes))

    def _node(self, resolved_node: ResolvedNode, types_may_come_later: bool) -> Node:
        declaration = resolved_node.node.declaration
        job = declaration.job
        return Node(
            id=resolved_node.name,
            name=resolved_node.name,
            job=None if job is None else job.name,
            method=resolved_node.node.attribute if job is None else None,
            args=None if job is None else self._arguments(resolved_node.name, job, declaration, types_may_come_later),
            depends_on=resolved_node.depends_on,
            policy=self.policies[resolved_node.name],
        )

    def _arguments(
        self, name: str, job: Action[..., Any], declaration: Declaration, types_may_come_later: bool
    ) -> bytes | None:
        try:
            return job.encode_keywords(declaration.args)
        except UsageError as error:
            if types_may_come_later and type(error) is UsageError:
                return None
            where = f"class {self.cls.__qualname__}, {declaration.kind} {name!r}"
            raise type(error)(f"{where}: {error.message}", hint=error.hint) from error


class FrozenInstance(UsageError, AttributeError):
    """An attribute of an instance was assigned or deleted. Also what Python raises for that, which typing relies on."""

    default_hint = "leave the instance as it is: it is the input of its run"


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Dag:
    """Base of class DAGs: annotated attributes are the input, `@hf.step` and `@hf.task` the nodes.

    Class options: `on_failure` says what happens when a node gives up ("pause", "fail", "cancel", "skip"),
    `name` and `aliases` how it is stored, `registry` where it is registered, `cancel_if` what is asked before
    every node and cancels the run. A subclass inherits fields, nodes, on_failure and registry, may insert nodes
    into its parent's chain, and adds its own cancel_if to its parent's.
    """

    __holdfast__: ClassVar[Definition]
    __dag__: ClassVar[DagDefinition]

    def __init_subclass__(
        cls,
        *,
        on_failure: OnFailure | Unset = UNSET,
        name: str | None = None,
        aliases: tuple[str, ...] | list[str] = (),
        registry: Registry | None = None,
        cancel_if: Conditions = (),
        **unknown: Any,
    ) -> None:
        super().__init_subclass__()
        for option in unknown:
            raise DagError(
                f"{cls.__qualname__} has no class option {option!r}",
                hint=known_names(option, ("on_failure", "name", "aliases", "registry", "cancel_if")),
            )
        inherited = getattr(cls, "__dag__", None)
        if on_failure is UNSET:
            on_failure = "pause" if inherited is None else inherited.on_failure
        if on_failure not in ON_FAILURE:
            raise DagError(
                f"{cls.__qualname__} has on_failure={on_failure!r}", hint=known_names(str(on_failure), ON_FAILURE)
            )
        if registry is None:
            registry = default_registry if inherited is None else inherited.registry
        try:
            nodes = _declared_nodes(cls)
            fields = DagFields.declared_by(cls, _dag_bases(cls))
            _check_attributes(cls, nodes, fields)
            _check_jobs(nodes, registry)
            definition = DagDefinition(
                cls,
                nodes=resolved(list(nodes.values())),
                fields=fields,
                on_failure=on_failure,
                registry=registry,
                own_cancel_if=listed_conditions(cancel_if, "cancel_if of the class"),
            )
            _check_conditions(cls, definition)
        except DagError as error:
            raise DagError(f"class {cls.__qualname__}: {error.message}", hint=error.hint) from None
        cls.__dag__ = definition
        cls.__holdfast__ = Definition.of(cls, "workflow", name, aliases)
        # An abstract base can never be started, so its name stays free for others.
        if nodes:
            registry.add(cls)

    def __init__(self, *positional: Never, **fields: Any) -> None:
        if type(self) is Dag:
            raise UsageError("Dag itself cannot be instantiated", hint="define a subclass with steps")
        if positional:
            raise UsageError(
                f"{type(self).__qualname__} was given {len(positional)} positional values",
                hint=f"give its fields by name: {', '.join(type(self).__dag__.fields.names) or 'it has none'}",
            )
        self.__dict__.update(self.__dag__.fields.checked(fields))

    if not TYPE_CHECKING:  # a checker that saw these would allow assigning to any attribute

        def __setattr__(self, name: str, value: object) -> Never:
            raise FrozenInstance(
                f"{type(self).__qualname__}.{name} cannot be assigned: an instance is the frozen input of its run, and "
                "other nodes would not see the change",
                hint="write results where the next node can read them, such as your database",
            )

        def __delattr__(self, name: str) -> Never:
            raise FrozenInstance(
                f"{type(self).__qualname__}.{name} cannot be deleted: an instance is the frozen input of its run",
                hint="leave it, or start a run with another input",
            )

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dag) and type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self.__dag__.fields.digest(self._values())))

    @classmethod
    def bind(cls, **fields: Any) -> Self:
        """An instance with these fields: what `engine.start` accepts, as for actions and functions."""
        return cls(**fields)

    @classmethod
    def compiled_dag(cls) -> Graph:
        """The graph of this class as it is now; DagError if it has no nodes."""
        return _definition_of(cls).graph

    @classmethod
    def dag_signature(cls) -> str:
        """16 hex digits that change when the graph or a policy in it changes."""
        return cls.compiled_dag().signature

    @classmethod
    def mermaid(cls) -> str:
        """The graph as a Mermaid flowchart."""
        return cls.compiled_dag().mermaid()

    @classmethod
    def decode_fields(cls, data: bytes, codec: str | None = None, codecs: Codecs = DEFAULT_CODECS) -> Self:
        """The instance whose `encode_fields` gave these bytes, written with the codec of that tag."""
        instance = cls.__new__(cls)
        instance.__dict__.update(_definition_of(cls).fields.decode(data, codec, codecs))
        return instance

    def encode_fields(self, limit: int = DEFAULT_LIMIT_BYTES, codecs: Codecs = DEFAULT_CODECS) -> bytes:
        """The fields as the stored input of a run, for `decode_fields`; PayloadTooLarge if that is over the limit."""
        return self.__dag__.fields.encode(self._values(), limit, codecs)

    def _values(self) -> dict[str, Any]:
        # Not __dict__ itself: a cached property of the user's may live there too.
        return {name: self.__dict__[name] for name in self.__dag__.fields.names}

    def node_callable(self, node_name: str) -> NodeCall:
        """The node's method on this instance, or its job with its arguments; UnknownNode otherwise."""
        graph = self.compiled_dag()
        node = graph.by_name.get(node_name)
        if node is None:
            raise UnknownNode(
                f"{type(self).__qualname__} has no node {node_name!r}", hint=known_names(node_name, graph.by_name)
            )
        return callable_of(self, node)


def callable_of(instance: Dag, node: Node) -> NodeCall:
    """What a node of a graph runs on this instance, by the node's method or job and not by its name.

    For stored graphs, whose nodes may have been renamed. MissingJob or UnknownNode if the code is gone.
    """
    definition = type(instance).__dag__
    if node.method is not None and definition.is_plain(node.method):
        method = definition.methods[node.method]
        return NodeCall(
            call=functools.partial(method.fn, instance),
            is_async=method.is_async,
            transactional=method.declaration.transactional is True,
        )
    if node.job is not None:
        ready = job_call(node, definition.registry)
        # A class's node is known by its id, also in a stored graph where its name was changed.
        declared = definition.by_name.get(node.id)
        if not isinstance(declared, JobNode) or declared.job.name != node.job:
            declared = None
    else:
        declared = definition.methods.get(str(node.method))
        if not isinstance(declared, MethodNode):
            raise UnknownNode(
                f"node {node.name!r} runs the method {node.method!r}, which {type(instance).__qualname__} does not "
                "have as a step or task",
                hint="bring the method back, or change the node with import_dag: "
                + known_names(str(node.method), definition.methods),
            )
        ready = NodeCall(
            call=functools.partial(declared.fn, instance),
            is_async=declared.is_async,
            transactional=declared.transactional,
        )
    return _with_conditions(ready, definition, declared, instance)


def job_call(node: Node, registry: Registry) -> NodeCall:
    """What a node that runs a job does, in a class or in a DAG without one; MissingJob if the code is gone."""
    action = registry.action(str(node.job))
    # Decoded for every call: what the job receives is the stored form, and its own copy.
    args, kwargs = ((), {}) if node.args is None else action.call.decode_call(node.args, JSON.tag)
    return NodeCall(
        call=functools.partial(action.fn, *args, **kwargs),
        is_async=action.is_async,
        transactional=action.transactional,
        isolation=action.isolation,
        retry_on=action.policy.retry.retry_on,
    )


def _with_conditions(
    ready: NodeCall, definition: DagDefinition, declared: DeclaredNode | None, instance: Dag
) -> NodeCall:
    skip_if: tuple[Condition, ...] = ()
    cancel_if = definition.cancel_if
    after_runs: tuple[Condition, ...] = ()
    retry_on = ready.retry_on
    if declared is not None:
        declaration = declared.declaration
        skip_if = () if declaration.skip_if is UNSET else declaration.skip_if
        cancel_if += () if declaration.cancel_if is UNSET else declaration.cancel_if
        after_runs = () if declaration.depends_on_run is UNSET else declaration.depends_on_run
        retry_on = definition.policies[declared.node_name].retry.retry_on
    if not skip_if and not cancel_if and not after_runs and retry_on == ready.retry_on:
        return ready
    return msgspec.structs.replace(
        ready,
        skip_if=bound_conditions(skip_if, instance),
        cancel_if=bound_conditions(cancel_if, instance),
        depends_on_run=bound_conditions(after_runs, instance),
        retry_on=retry_on,
    )


def _definition_of(cls: type[Dag]) -> DagDefinition:
    if cls is Dag:
        raise UsageError("Dag itself has no nodes and no fields", hint="define a subclass with steps")
    return cls.__dag__


def _dag_bases(cls: type[Dag]) -> list[type[Dag]]:
    return [base for base in reversed(cls.__mro__) if issubclass(base, Dag) and base is not Dag]


def _declared_nodes(cls: type[Dag]) -> dict[str, DeclaredNode]:
    """The nodes of a class by attribute, in definition order; an overridden one keeps its place."""
    nodes: dict[str, DeclaredNode] = {}
    for base in reversed(cls.__mro__):
        if base in (object, Dag):
            continue
        for attribute, value in list(vars(base).items()):
            earlier = nodes.get(attribute)
            if isinstance(value, DeclaredNode):
                _check_hides_none(value)
                if base is cls:
                    _adopt(value, attribute, earlier)
                nodes[attribute] = value
            elif earlier is not None:
                nodes[attribute] = _overridden(cls, attribute, value, earlier)
    return nodes


def _check_hides_none(node: DeclaredNode) -> None:
    if node.hides is not None:
        raise DagError(
            f"{node.attribute!r} is a {node.hides.declaration.kind} in line {node.hides.line} and a "
            f"{node.declaration.kind} in line {node.line} of the class, and Python keeps the second only",
            hint="rename one of them",
        )


def _adopt(node: DeclaredNode, attribute: str, earlier: DeclaredNode | None) -> None:
    if node.attribute != attribute:
        raise DagError(
            f"one {node.declaration.kind} is assigned to both {attribute!r} and {node.attribute!r}",
            hint="declare a second one",
        )
    if earlier is None:
        return
    if earlier.declaration.kind != node.declaration.kind:
        raise DagError(
            f"{attribute!r} is a {earlier.declaration.kind} in a base class and a {node.declaration.kind} here",
            hint=f"use @hf.{earlier.declaration.kind} again, or another attribute",
        )
    node.declaration = node.declaration.completed_from(earlier.declaration)
    if isinstance(node, MethodNode):
        check_method(node.fn, node.declaration, f"@hf.{node.declaration.kind}")


def _overridden(cls: type[Dag], attribute: str, value: object, earlier: DeclaredNode) -> DeclaredNode:
    """The node for a method that overrides one without being decorated again."""
    if not inspect.isfunction(value):
        raise DagError(
            f"{attribute!r} is a {earlier.declaration.kind} in a base class and a {type(value).__name__} here",
            hint="override it with a method, or use another attribute",
        )
    declaration = msgspec.structs.replace(earlier.declaration, job=None, args={})
    check_method(value, declaration, f"@hf.{declaration.kind}")
    node: MethodNode[Any, Any] = MethodNode(value, declaration)
    node.attribute = attribute
    setattr(cls, attribute, node)
    return node


# What a subclass would break by using the same attribute for a node or a field.
RESERVED = frozenset(name for name in vars(Dag) if not name.startswith("_"))


def _check_attributes(cls: type[Dag], nodes: dict[str, DeclaredNode], fields: DagFields) -> None:
    if "__init__" in vars(cls):
        raise DagError(
            "it defines __init__, which would not be called when a worker decodes an instance",
            hint="declare fields by annotation, with defaults; compute the rest in properties",
        )
    for name in fields.names:
        if name in nodes:
            kind = nodes[name].declaration.kind
            raise DagError(f"{name!r} is both a field and a {kind}", hint="rename one of them")
    for name in (*nodes, *fields.names):
        if name in RESERVED:
            what = f"a {nodes[name].declaration.kind}" if name in nodes else "a field"
            keep = f"; name={name!r} still shows the node under that name" if name in nodes else ""
            raise DagError(f"{name!r} is {what} and also a method of hf.Dag", hint=f"rename the attribute{keep}")


def _policy(each: ResolvedNode) -> NodePolicy:
    declaration = each.node.declaration
    return declaration.policy(f"{declaration.kind} {each.name}")


def _check_conditions(cls: type[Dag], definition: DagDefinition) -> None:
    nodes, fields = {each.node.attribute for each in definition.nodes}, definition.fields.names
    check = functools.partial(check_names, cls=cls, nodes=nodes, fields=fields)
    check(definition.cancel_if, option="cancel_if", owner="the class")
    for each in definition.nodes:
        declaration = each.node.declaration
        owner = f"{declaration.kind} {each.name!r}"
        if declaration.skip_if is not UNSET:
            check(declaration.skip_if, option="skip_if", owner=owner)
        if declaration.cancel_if is not UNSET:
            check(declaration.cancel_if, option="cancel_if", owner=owner)
        if declaration.depends_on_run is not UNSET:
            check(declaration.depends_on_run, option="depends_on_run", owner=owner)


def _check_jobs(nodes: dict[str, DeclaredNode], registry: Registry) -> None:
    for node in nodes.values():
        if isinstance(node, JobNode) and node.job.name not in registry.actions:
            raise DagError(
                f"{node.declaration.kind} {node.node_name!r} runs the action {node.job.name!r}, which is in another "
                "registry",
                hint="give the action and the class the same registry=",
            )
