"""Starting a run by name, with arguments that come as JSON."""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Any

from holdfast.authoring.actions import Action
from holdfast.authoring.dag_template import DagTemplate
from holdfast.authoring.dags import Dag
from holdfast.authoring.deciders import Decider
from holdfast.authoring.flows import Flow
from holdfast.authoring.functions import Workflow
from holdfast.authoring.startable import is_state_graph
from holdfast.core.errors import KeyConflict, PayloadRefused, UsageError
from holdfast.documents.payloads import fitted
from holdfast.explain.unfit import plain_refusal
from holdfast.web.answers import StartedAnswer
from holdfast.web.calls import Call
from holdfast.web.questions import StartBody

if TYPE_CHECKING:
    from holdfast.engine import Engine


async def start_run(call: Call) -> StartedAnswer:
    body: StartBody = call.body
    key = body.key or call.key
    thing, args = bound(call.engine, body)
    began = call.engine.store.now()
    handle = await _started(call, thing, args, key)
    call.targets.update(workflow=body.workflow, run=handle.id)
    (row,) = await call.engine.store.runs([handle.id])
    # A key that was there before leads to a run that is older than this request.
    return StartedAnswer(id=handle.id, key=row.key, created=key is None or row.created >= began)


async def _started(call: Call, thing: Any, args: tuple[Any, ...], key: str | None) -> Any:
    body: StartBody = call.body
    try:
        return await call.engine.start(
            thing,
            *args,
            key=key,
            queue=body.queue,
            priority=body.priority,
            tags=body.tags,
            at=body.at,
            paused=body.paused,
            if_exists=body.if_exists,
        )
    except PayloadRefused as refused:
        raise in_plain_words(refused) from refused.__cause__
    except KeyConflict as conflict:
        hint = "use another key, or the input that the run of this key was started with"
        raise KeyConflict(conflict.message, hint=hint) from conflict


def in_plain_words(refused: PayloadRefused) -> PayloadRefused:
    """A refusal as its sender understands it; as it is, if it is about something else, such as the size."""
    plain = plain_refusal(refused.message)
    return refused if plain == refused.message else PayloadRefused(plain, hint="give a value of that type, as JSON")


def bound(engine: Engine, body: StartBody) -> tuple[Any, tuple[Any, ...]]:
    """What `engine.start` takes: arguments have the types that the definition names, whatever JSON has made of them."""
    found: Any = engine.registry.startable(body.workflow)
    if isinstance(found, Action | Workflow | Flow | DagTemplate):
        args, kwargs = _converted(found.fn, body.args, body.kwargs)
        return found.bind(*args, **kwargs), ()
    fields = _fields(body)
    if is_state_graph(found):
        try:
            return found, (found.state_type.from_json(fields, f"the state of {body.workflow}"),)
        except PayloadRefused as refused:
            raise in_plain_words(refused) from refused.__cause__
    if isinstance(found, type) and issubclass(found, Dag):
        hints = _hints(found)
        values = {name: _value(value, hints.get(name, Any), name) for name, value in fields.items()}
        return _made(found, values), ()
    if isinstance(found, type) and issubclass(found, Decider):
        raise UsageError(
            f"{body.workflow} is a decider, whose instances begin with their first input",
            hint=f"POST deciders/{body.workflow}/execute",
        )
    raise UsageError(f"{body.workflow} cannot be started", hint="GET definitions lists what can be")


def _fields(body: StartBody) -> dict[str, Any]:
    """The fields of a Dag or a state: keywords, or one object."""
    if not body.args:
        return body.kwargs
    if len(body.args) == 1 and isinstance(body.args[0], dict) and not body.kwargs:
        return body.args[0]
    raise UsageError(f"{body.workflow} takes fields, not arguments", hint='give them by name: "kwargs": {"field": …}')


def _converted(function: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    hints, names, rest = _hints(function), list[str](), None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            rest = parameter.name
    values = []
    for number, value in enumerate(args):
        name = names[number] if number < len(names) else rest
        values.append(_value(value, hints.get(name or "", Any), name or str(number)))
    return values, {name: _value(value, hints.get(name, Any), name) for name, value in kwargs.items()}


def _value(value: Any, annotation: Any, name: str) -> Any:
    if annotation is Any:
        return value
    return fitted(value, annotation, subject=f"Argument {name!r}")


def _made(dag: type[Dag], values: dict[str, Any]) -> Dag:
    try:
        return dag(**values)
    except TypeError as error:
        raise UsageError(f"{dag.__name__} cannot be made: {error}", hint="its fields are in GET definitions") from error


def _hints(thing: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError:
        return {}  # the codec says what is wrong with the annotation
