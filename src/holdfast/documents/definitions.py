"""What can be started, and what runs here follow: names, parameters, documentation and graphs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.dag_template import DagTemplate
from holdfast.authoring.dags import Dag
from holdfast.authoring.deciders import Decider
from holdfast.authoring.flows import Flow
from holdfast.authoring.functions import Workflow
from holdfast.authoring.projections import Projection
from holdfast.authoring.startable import is_state_graph
from holdfast.core.codec_shape import display
from holdfast.core.errors import HoldfastError, UnknownWorkflow
from holdfast.core.graph import known_names
from holdfast.documents.graph_view import GraphView, view_of_definition
from holdfast.documents.listing import counts_of_runs
from holdfast.documents.payloads import ParameterView, parameters_of
from holdfast.store.contract import ListRuns

if TYPE_CHECKING:
    from holdfast.engine import Engine

LOOKED_AT: Final = 500


class DefinitionView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can be started, or whose runs are in the database though its code is not here."""

    name: str
    model: str
    signature: str
    doc: str
    parameters: tuple[ParameterView, ...]
    known_here: bool
    runs: dict[str, int] | None


class DefinitionDetail(DefinitionView, frozen=True, kw_only=True):
    """The same with its graph."""

    graph: GraphView | None
    mermaid: str | None


class DefinitionList(msgspec.Struct, frozen=True, kw_only=True):
    """Every definition, by name."""

    definitions: tuple[DefinitionView, ...]


async def definitions_of(engine: Engine) -> DefinitionList:
    """What this process knows, and the workflows of the newest runs that it does not."""
    known = {name: _view(name, thing) for name, thing in _things(engine).items()}
    for run in await engine.store.list_runs(ListRuns(limit=LOOKED_AT)):
        if run.workflow not in known and engine.definitions.thing(run.workflow) is None:
            known[run.workflow] = _unknown(run.workflow, run.model)
    return DefinitionList(definitions=tuple(known[name] for name in sorted(known)))


async def definition_of(engine: Engine, name: str) -> DefinitionDetail:
    """One of them with its graph; UnknownWorkflow if neither code nor runs have this name."""
    thing = _things(engine).get(name) or engine.definitions.thing(name)
    counts = await counts_of_runs(engine, ListRuns(workflow=name))
    if thing is None:
        runs = await engine.store.list_runs(ListRuns(workflow=name, limit=1))
        if not runs:
            raise UnknownWorkflow(f"there is no workflow {name!r:.80}", hint=known_names(name, [*_things(engine)]))
        view, graph = _unknown(name, runs[0].model), None
    else:
        view, graph = _view(name, thing), _graph(thing)
    fields = msgspec.structs.asdict(view) | {"runs": counts.counts}
    return DefinitionDetail(**fields, graph=graph, mermaid=None if thing is None else _mermaid(thing))


def _things(engine: Engine) -> dict[str, Any]:
    """By its own name alone: an alias is the same thing."""
    found: dict[str, Any] = {}
    for table in (engine.registry.actions, engine.registry.workflows):
        for name, thing in table.items():
            if thing.__holdfast__.name == name:
                found[name] = thing
    return found


def _view(name: str, thing: Any) -> DefinitionView:
    return DefinitionView(
        name=name,
        model=_model(thing),
        signature=_signature(thing),
        doc=_own_doc(getattr(thing, "fn", thing)),
        parameters=_parameters(thing),
        known_here=True,
        runs=None,
    )


def _own_doc(thing: Any) -> str:
    """What its author wrote. Python gives an instance its class's words and a class those of its base: ours, then."""
    if isinstance(thing, type):
        return inspect.cleandoc(vars(thing).get("__doc__") or "")
    return (inspect.getdoc(thing) or "") if inspect.isroutine(thing) else ""


def _unknown(name: str, model: str) -> DefinitionView:
    return DefinitionView(name=name, model=model, signature="", doc="", parameters=(), known_here=False, runs=None)


def _model(thing: Any) -> str:
    if is_state_graph(thing):
        return "graph"
    if isinstance(thing, type):
        return "decider" if issubclass(thing, Decider) else "dag"
    for kind, model in ((Flow, "flow"), (Workflow, "function"), (Projection, "projection")):
        if isinstance(thing, kind):
            return model
    return "dag"  # an action or a template


def _signature(thing: Any) -> str:
    """Of its graph, where it has one."""
    try:
        if isinstance(thing, Flow):
            return thing.graph.signature
        if is_state_graph(thing):
            return str(thing.signature)
        if isinstance(thing, type) and issubclass(thing, Dag):
            return thing.compiled_dag().signature
    except HoldfastError:
        return ""  # its graph says what is wrong with it
    return ""


def _parameters(thing: Any) -> tuple[ParameterView, ...]:
    if is_state_graph(thing):
        fields = thing.state_type.fields.values()
        return tuple(ParameterView(name=each.name, type=display(each.annotation), default=None) for each in fields)
    if isinstance(thing, type) and issubclass(thing, Decider):
        inputs = thing.__decider__.types.inputs.by_name.values()
        return tuple(ParameterView(name=each.name, type=_shown_fields(each.kind), default=None) for each in inputs)
    if isinstance(thing, type) and issubclass(thing, Dag):
        return tuple(
            ParameterView(
                name=name, type=display(hint), default=None if default is None else f"{default.make()!r:.200}"
            )
            for name, hint, default in thing.__dag__.fields.described()
        )
    return parameters_of(thing.fn) if isinstance(thing, Action | Workflow | Flow | DagTemplate) else ()


def _shown_fields(kind: type) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in parameters_of(kind))


def _graph(thing: Any) -> GraphView | None:
    try:
        return view_of_definition(thing)
    except HoldfastError:  # an unfinished definition: its listing must not fail over it
        return None


def _mermaid(thing: Any) -> str | None:
    try:
        if isinstance(thing, Flow):
            return thing.graph.mermaid()
        if is_state_graph(thing):
            return str(thing.mermaid())
        if isinstance(thing, type) and issubclass(thing, Dag):
            return thing.compiled_dag().mermaid()
    except HoldfastError:
        return None
    return None
