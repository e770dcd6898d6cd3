"""What `engine.start` accepts, turned into one plain value.

Everything that can be started ends here as names, bytes and a graph, so that the engine needs to know
no decorator and no class.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import msgspec

from holdfast.authoring.actions import Action, Bound
from holdfast.authoring.dags import Dag, OnFailure
from holdfast.authoring.flows import Flow
from holdfast.authoring.functions import PYTHON, Workflow
from holdfast.authoring.registry import Registry, own_queue
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, Codecs, ResultCodec, digest
from holdfast.core.codec_unset import unnoted
from holdfast.core.errors import DagError, GraphError, PayloadTooLarge, UnknownWorkflow, UsageError
from holdfast.core.graph import Graph, Node, NodePolicy, known_names

if TYPE_CHECKING:
    from holdfast.authoring.dag_builder import BuiltDag
    from holdfast.authoring.dag_template import DagTemplate
    from holdfast.authoring.deciders import Decider
    from holdfast.authoring.state_graphs import StateGraph

__all__ = ["StartSpec", "check_jobs", "graph_of_action", "is_state_graph", "resolve_start", "result_codec_of"]

STARTABLE = (
    "an instance of an hf.Dag class, what DagBuilder.build() gives, a workflow, an action or a template with its "
    "arguments, a state graph with a state, workflow.bind(…), action.bind(…), or a registered name"
)


class StartSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A start as data.

    `input_digest` is equal for equal inputs, whatever their bytes: it decides whether a key is used for
    the same start again (I12). `source` says where the graph will be read from at each decision: the
    class or the action that is registered as `workflow`, or, when it was built, `document`, its frozen
    nodes (I27); a function has no graph. `queue` is the definition's own, for a start that names none;
    None is that of the parent, or the default one.
    `override` is the policy given with `.options(…)` for this run alone; the graph holds it
    already, but code read later does not, so it has to be stored with the run.
    """

    workflow: str
    model: Literal["dag", "function", "flow", "graph"]
    input: bytes
    input_digest: str
    codec: str
    graph: Graph | None
    source: Literal["class", "action", "built", "function", "flow", "graph"]
    on_failure: OnFailure
    override: NodePolicy | None = None
    document: bytes = b""
    queue: str | None = None
    version: str = ""

    @property
    def signature(self) -> str:
        """Of a graph that is stored with the run, or of code; of a function, the Python that it is recorded by."""
        if self.model in ("flow", "graph"):
            return self.version
        if self.model == "function":
            return PYTHON
        return self.graph.signature if self.document and self.graph is not None else ""


def resolve_start(
    thing: object,
    args: tuple[Any, ...],
    registry: Registry,
    limit: int = DEFAULT_LIMIT_BYTES,
    codecs: Codecs = DEFAULT_CODECS,
) -> StartSpec:
    """The start of anything startable with these positional arguments; UsageError says what can be started.

    `limit` is the largest input in bytes; `codecs` are the engine's, which write it.
    """
    if isinstance(thing, str):
        return _by_name(thing, args, registry, limit, codecs)
    if isinstance(thing, Dag):
        if args:
            raise UsageError(
                f"{thing!r} was started with {len(args)} more arguments, but its fields are its input",
                hint=f"put them into the fields of {type(thing).__qualname__}",
            )
        return _of_dag(thing, registry, limit, codecs)
    if isinstance(thing, Bound):
        if args:
            raise UsageError(
                f"{'workflow' if isinstance(thing.target, Workflow) else 'action'} {thing.target.name} was bound to "
                f"its arguments and started with {len(args)} more",
                hint="give all of them to bind(…)",
            )
        if isinstance(thing.target, Workflow):
            return _of_function(thing.target, thing.args, thing.kwargs, registry, limit, codecs)
        if isinstance(thing.target, Flow):
            return _of_flow(thing.target, thing.args, thing.kwargs, registry, limit, codecs)
        return _of_action(thing.target, thing.args, thing.kwargs, registry, limit, codecs)
    if isinstance(thing, Flow):
        return _of_flow(thing, args, {}, registry, limit, codecs)
    if isinstance(thing, Workflow):
        return _of_function(thing, args, {}, registry, limit, codecs)
    if isinstance(thing, Action):
        return _of_action(thing, args, {}, registry, limit, codecs)
    if is_state_graph(thing):
        return _of_state_graph(thing, args, registry, limit, codecs)
    from holdfast.authoring.dag_builder import BuiltDag  # for those who build graphs at run time
    from holdfast.authoring.dag_template import BoundTemplate, DagTemplate

    if isinstance(thing, BuiltDag):
        if args:
            raise UsageError(
                f"{thing!r} was started with {len(args)} arguments, but its nodes have theirs already",
                hint="give them to its nodes, or start a @hf.dag_template with arguments",
            )
        return _of_built(thing, registry, limit, codecs)
    if isinstance(thing, DagTemplate):
        return _of_template(thing, args, {}, registry, limit, codecs)
    if isinstance(thing, BoundTemplate):
        if args:
            raise UsageError(
                f"template {thing.template.name} was bound to its arguments and started with {len(args)} more",
                hint="give all of them to bind(…)",
            )
        return _of_template(thing.template, thing.args, thing.kwargs, registry, limit, codecs)
    raise _refusal(thing)


def graph_of_action(action: Action[..., Any], name: str | None = None) -> Graph:
    """The graph of an action started on its own: one node named like the action, called with the run's input.

    `name` is the alias that a run was started under, since its node keeps that name (I15).
    """
    name = name or action.name
    return Graph((Node(id=name, name=name, job=name, policy=action.policy),))


def _by_name(name: str, args: tuple[Any, ...], registry: Registry, limit: int, codecs: Codecs) -> StartSpec:
    found = registry.startable(name)
    if isinstance(found, Flow):
        return _of_flow(found, args, {}, registry, limit, codecs)
    if isinstance(found, Workflow):
        return _of_function(found, args, {}, registry, limit, codecs)
    if isinstance(found, Action):
        return _of_action(found, args, {}, registry, limit, codecs)
    if is_state_graph(found):
        return _of_state_graph(found, args, registry, limit, codecs)
    if isinstance(found, type) and issubclass(found, Dag):
        if not args:
            return _of_dag(found(), registry, limit, codecs)
        if len(args) == 1 and isinstance(args[0], Mapping):
            return _of_dag(found(**args[0]), registry, limit, codecs)
        raise UsageError(
            f"{name} was started by name with {len(args)} positional arguments, but its fields have names",
            hint=f'give one mapping: engine.start({name!r}, {{"field": value}}), or start an instance',
        )
    from holdfast.authoring.dag_template import DagTemplate

    if isinstance(found, DagTemplate):
        return _of_template(found, args, {}, registry, limit, codecs)
    raise _refusal(found)


def _of_dag(instance: Dag, registry: Registry, limit: int, codecs: Codecs) -> StartSpec:
    cls = type(instance)
    graph = cls.compiled_dag()  # first: a class without nodes is not registered, and this says why
    _ = graph.signature  # a long graph's takes a while, which must not be spent inside a decision
    workflow = cls.__holdfast__.name
    _check_known(workflow, registry)
    return StartSpec(
        workflow=workflow,
        model="dag",
        input=instance.encode_fields(limit, codecs),
        input_digest=cls.__dag__.fields.digest({name: getattr(instance, name) for name in cls.__dag__.fields.names}),
        codec=codecs.default.tag,
        graph=graph,
        source="class",
        on_failure=cls.__dag__.on_failure,
    )


def _of_action(
    action: Action[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    registry: Registry,
    limit: int,
    codecs: Codecs,
) -> StartSpec:
    _check_known(action.name, registry)
    action.check_arguments(args, kwargs)
    registered = registry.actions.get(action.name)
    data, input_digest = action.call.encode_input(args, kwargs, limit, codecs)
    return StartSpec(
        workflow=action.name,
        model="dag",
        input=data,
        input_digest=input_digest,
        codec=codecs.default.tag,
        graph=graph_of_action(action),
        source="action",
        on_failure="fail",
        override=action.policy if registered is not None and registered.policy != action.policy else None,
    )


def _of_function(
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    registry: Registry,
    limit: int,
    codecs: Codecs,
) -> StartSpec:
    _check_known(workflow.name, registry)
    workflow.check_arguments(args, kwargs)
    data, input_digest = workflow.call.encode_input(args, kwargs, limit, codecs)
    return StartSpec(
        workflow=workflow.name,
        model="function",
        input=data,
        input_digest=input_digest,
        codec=codecs.default.tag,
        graph=None,
        source="function",
        on_failure="fail",
        queue=workflow.queue,
    )


def _of_flow(
    flow: Flow[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    registry: Registry,
    limit: int,
    codecs: Codecs,
) -> StartSpec:
    _check_known(flow.name, registry)
    flow.check_arguments(args, kwargs)
    data, input_digest = flow.call.encode_input(args, kwargs, limit, codecs)
    return StartSpec(
        workflow=flow.name,
        model="flow",
        input=data,
        input_digest=input_digest,
        codec=codecs.default.tag,
        graph=None,
        source="flow",
        on_failure="fail",
        queue=own_queue(flow.queue),
        version=flow.graph.signature,
    )


def result_codec_of(definition: object) -> ResultCodec | None:
    """What reads the results of its runs; None if it has none, or nobody here knows the definition."""
    if isinstance(definition, Action | Workflow | Flow):
        return definition.call
    return definition.state_type if is_state_graph(definition) else None


def is_state_graph(thing: object) -> TypeGuard[StateGraph[Any]]:
    """Without loading their module, which most programs do not need."""
    return hasattr(thing, "__state_graph__") and not isinstance(thing, type)


def is_decider(thing: object) -> TypeGuard[type[Decider[Any, Any, Any, Any]]]:
    """Without loading their modules, likewise."""
    return isinstance(thing, type) and hasattr(thing, "__decider__")


def _of_state_graph(
    graph: StateGraph[Any], args: tuple[Any, ...], registry: Registry, limit: int, codecs: Codecs
) -> StartSpec:
    from holdfast.authoring.state_code import encode_state
    from holdfast.core.state_outcomes import joined

    graph.use()  # first: what is wrong with it is to be told before what is wrong with the call
    _check_known(graph.name, registry)
    if len(args) != 1:
        fields = ", ".join(f'"{name}": …' for name in [*graph.state_type.fields][:3])
        raise GraphError(
            f"graph {graph.name!r} was started with {len(args)} arguments, and takes one: the state it begins with"
            if args
            else f"graph {graph.name!r} was started without a state",
            hint=f"write engine.start(graph, {{{fields}}})",
        )
    state = graph.state_type.encode_whole(args[0], f"the state that graph {graph.name!r} was started with", limit)
    data = encode_state(state, codecs)
    if len(data) > limit:
        raise PayloadTooLarge(
            f"the state that graph {graph.name!r} was started with is {len(data):,} bytes, over the limit of {limit:,}",
            hint="store the data elsewhere and pass a reference to it, or raise the engine's payload_limit_bytes",
        )
    return StartSpec(
        workflow=graph.name,
        model="graph",
        input=data,
        input_digest=digest(unnoted(joined(state))),
        codec=codecs.default.tag,
        graph=None,
        source="graph",
        on_failure="fail",
        queue=own_queue(graph.queue),
        version=graph.signature,
    )


def _of_built(built: BuiltDag, registry: Registry, limit: int, codecs: Codecs) -> StartSpec:
    if registry.has_code_of(built.name):
        raise DagError(
            f"the built DAG {built.name!r} has the name of something that is registered, and its runs would be taken "
            "for runs of that",
            hint=f"give the builder another name, such as DagBuilder({built.name + '-batch'!r})",
        )
    check_jobs(built.graph, registry, limit)
    return StartSpec(
        workflow=built.name,
        model="dag",
        input=b"",
        input_digest=digest(built.graph.signature.encode()),
        codec=codecs.default.tag,
        graph=built.graph,
        source="built",
        on_failure=built.on_failure,
        document=built.nodes_json,
    )


def _of_template(
    template: DagTemplate[...],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    registry: Registry,
    limit: int,
    codecs: Codecs,
) -> StartSpec:
    _check_known(template.name, registry)
    template.check_arguments(args, kwargs)
    data = template.call.encode_call(args, kwargs, limit=limit, codecs=codecs)
    # The decoded form, as everywhere (I14): what was built must not depend on what storing would change.
    decoded_args, decoded_kwargs = template.call.decode_call(data, codecs=codecs)
    built = template(*decoded_args, **decoded_kwargs)
    check_jobs(built.graph, registry, limit)
    _ = built.graph.signature  # not to be computed inside a decision
    return StartSpec(
        workflow=template.name,
        model="dag",
        input=data,
        input_digest=template.call.input_digest(data, codecs=codecs),
        codec=codecs.default.tag,
        graph=built.graph,
        source="built",
        on_failure=built.on_failure,
        document=built.nodes_json,
    )


def check_jobs(graph: Graph, registry: Registry, limit: int = DEFAULT_LIMIT_BYTES) -> None:
    """UsageError unless this registry knows every job of the graph and no node's arguments are over the limit."""
    for name in sorted({node.job for node in graph.nodes if node.job is not None} - registry.actions.keys()):
        node = next(node for node in graph.nodes if node.job == name)
        raise DagError(
            f"node {node.name!r} runs the action {name!r}, which is not in this engine's registry",
            hint="give the action and the engine the same registry=, or import the module that defines it; "
            + known_names(name, registry.actions),
        )
    for node in graph.nodes:
        if node.args is not None and len(node.args) > limit:
            raise PayloadTooLarge(
                f"the arguments of node {node.name!r} are {len(node.args):,} bytes, over the limit of {limit:,}",
                hint="store the data elsewhere and pass a reference to it, or raise the engine's payload_limit_bytes",
            )


def _check_known(workflow: str, registry: Registry) -> None:
    if not registry.has_code_of(workflow):
        known = known_names(workflow, registry.known_workflows())
        raise UnknownWorkflow(
            f"{workflow!r} is not in this engine's registry, so no worker of it could run it",
            hint=f"define it with the registry= that Engine(registry=…) was given; {known}",
        )


def _refusal(thing: object) -> UsageError:
    from holdfast.authoring.dag_builder import DagBuilder

    if hasattr(thing, "__decider__"):  # its instances begin by themselves
        decider = (thing if isinstance(thing, type) else type(thing)).__qualname__
        return UsageError(
            f"{decider} is a decider, whose instances begin with their first input",
            hint=f"write engine.execute({decider}, input)",
        )
    if isinstance(thing, type) and issubclass(thing, Dag):
        if thing is Dag:
            return DagError(
                "hf.Dag itself was started", hint="define a subclass with steps and start an instance of it"
            )
        fields = ", ".join(f"{name}=…" for name in thing.__dag__.fields.names)
        return UsageError(
            f"the class {thing.__qualname__} was started, not an instance of it",
            hint=f"write engine.start({thing.__qualname__}({fields}))",
        )
    if hasattr(thing, "__state_graph__"):
        return GraphError(
            "the class hf.StateGraph itself was started",
            hint='make a graph, graph = hf.StateGraph(State, name="research"), and start that',
        )
    if isinstance(thing, DagBuilder):
        return DagError(f"{thing!r} was started, and is not built yet", hint="write engine.start(builder.build())")
    if inspect.iscoroutine(thing):
        owner = None if thing.cr_frame is None else thing.cr_frame.f_locals.get("self")
        kind = "action" if isinstance(owner, Action) else "workflow"
        name = f"{kind} {owner.name}" if isinstance(owner, Action | Workflow) else thing.__qualname__
        thing.close()  # or Python would warn later, far from the mistake, that it was never awaited
        return UsageError(
            f"{name} was called already, and a coroutine was started",
            hint=f"pass the {kind} and its arguments: engine.start({kind}, argument), or {kind}.bind(…)",
        )
    if inspect.isroutine(thing):
        name = getattr(thing, "__qualname__", repr(thing))
        return UsageError(
            f"{name} is a plain function, which has no name to be stored under",
            hint="decorate it with @hf.action, with @hf.workflow, or with @hf.dag_template if it builds a DAG, and "
            "start that",
        )
    return UsageError(f"a {type(thing).__name__} cannot be started: {thing!r:.80}", hint=f"start {STARTABLE}")
