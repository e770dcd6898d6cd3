"""From words on a command line to something that can be started.

A word is JSON if it parses as JSON and its parameter is not a text; whatever the annotation does not
accept as JSON is tried as text. So `5` is a number for an `int`, a text for a `str`, and
`2031-05-01` needs no quotes for a `date`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.authoring.actions import Action
from holdfast.authoring.dag_builder import BuiltDag, DagBuilder
from holdfast.authoring.dag_template import DagTemplate
from holdfast.authoring.dags import Dag
from holdfast.authoring.deciders import Decider
from holdfast.authoring.flows import Flow
from holdfast.authoring.functions import Workflow
from holdfast.authoring.registry import Registry
from holdfast.authoring.startable import is_state_graph
from holdfast.cli.failures import NOT_FOUND, USAGE, Failure
from holdfast.cli.loading import load_modules
from holdfast.core.codec import DEFAULT_CODECS
from holdfast.core.errors import HoldfastError, PayloadRefused, UsageError
from holdfast.core.graph import known_names

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph

Startable = (
    Action[..., Any] | Workflow[..., Any] | Flow[..., Any] | DagTemplate[...] | type[Dag] | BuiltDag | DagBuilder
)


def find_startable(target: str, registry: Registry) -> Startable | StateGraph[Any]:
    """What `module:name` means, or a bare name among what --app has imported."""
    module_name, colon, path = target.partition(":")
    if not colon:
        return _registered(target, registry)
    (module,) = load_modules([module_name])
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    if _is_startable(found):
        startable: Startable = found
        return startable
    _refuse_decider(found, target)
    offered = sorted(name for name, thing in vars(module).items() if _is_startable(thing))
    _refuse(module, path, found, offered)


def _is_startable(thing: object) -> bool:
    if isinstance(thing, type):
        return issubclass(thing, Dag) and thing is not Dag
    return is_state_graph(thing) or isinstance(thing, Action | Workflow | Flow | DagTemplate | BuiltDag | DagBuilder)


def _refuse_decider(thing: object, name: str) -> None:
    if isinstance(thing, type) and issubclass(thing, Decider):
        raise Failure(
            f"{name} is a decider, whose instances begin with their first input",
            hint=f"holdfast execute {name} '{{\"type\": …}}', with one of {thing.__decider__.types.inputs.names}",
            code=USAGE,
        )


def _refuse(module: ModuleType, path: str, found: object, offered: Sequence[str]) -> NoReturn:
    nothing = "it defines no workflow, no flow, no state graph, no action, no Dag and no template"
    known = f"it has {', '.join(offered)}" if offered else nothing
    if found is None:
        raise Failure(
            f"module {module.__name__} has no {path!r}",
            hint=known_names(path, offered) if offered else known,
            code=NOT_FOUND,
        )
    raise Failure(
        f"{module.__name__}:{path} has the type {type(found).__name__}, which cannot be started",
        hint=f"name a workflow, a flow, a state graph, an action, a Dag class or a template of {module.__name__}: "
        f"{known}",
        code=USAGE,
    )


def _registered(name: str, registry: Registry) -> Startable:
    if not registry.known_workflows():
        raise Failure(f"{name!r} names no module", hint=f"write MODULE:{name}, or say --app MODULE as well", code=USAGE)
    found: Any = registry.startable(name)
    _refuse_decider(found, name)
    startable: Startable = found
    return startable


def bind_call(startable: Startable | StateGraph[Any], words: Sequence[str]) -> tuple[Any, tuple[Any, ...]]:
    """What `engine.start` takes, and what comes after it: the state of a state graph, and nothing for the others."""
    from holdfast.authoring.state_graphs import StateGraph

    if isinstance(startable, StateGraph):
        from holdfast.cli.graph_arguments import state_of_words

        return startable, (state_of_words(startable, words),)
    return bind(startable, words), ()


def bind(startable: Startable, words: Sequence[str]) -> Any:
    """What `engine.start` takes: something with its arguments bound, a Dag instance, or a built DAG."""
    try:
        if isinstance(startable, BuiltDag | DagBuilder):
            return _built(startable, words)
        if isinstance(startable, Action | Workflow | Flow | DagTemplate):
            return _bound(startable, words)
        return startable(**_fields(startable, words))
    except PayloadRefused as error:
        raise UsageError(error.message, hint=error.hint) from error


def _built(dag: BuiltDag | DagBuilder, words: Sequence[str]) -> BuiltDag:
    if words:
        raise Failure(
            f"{words[0]!r} is one argument too many: the nodes of {dag.name} have theirs already",
            hint="write a @hf.dag_template to build it from arguments",
            code=USAGE,
        )
    return dag.build() if isinstance(dag, DagBuilder) else dag


def _bound(
    action: Action[..., Any] | Workflow[..., Any] | Flow[..., Any] | DagTemplate[...], words: Sequence[str]
) -> Any:
    signature = inspect.signature(action.fn)
    hints = _hints(action.fn)
    parameters = list(signature.parameters.values())
    by_name = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    in_order = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    rest = next((each for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in by_name:
            kwargs[name] = parse_word(value, hints.get(name, Any), name)
            continue
        parameter = in_order[len(args)] if len(args) < len(in_order) else rest
        # A word too many has no parameter; check_arguments below says so and shows the signature.
        name = parameter.name if parameter is not None else "?"
        args.append(parse_word(word, hints.get(name, Any), name))
    return action.bind(*args, **kwargs)


def _fields(dag: type[Dag], words: Sequence[str]) -> dict[str, Any]:
    names = dag.__dag__.fields.names
    hints = _hints(dag)
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            shown = " ".join(f"{each}=…" for each in names) or "it has none"
            raise Failure(
                f"{word!r} is not written as FIELD=VALUE", hint=f"the fields of {dag.__name__}: {shown}", code=USAGE
            )
        if name in given:
            raise Failure(f"the field {name!r} is given twice", hint="give it once", code=USAGE)
        given[name] = parse_word(value, hints.get(name, Any), name)
    return given


def parse_word(word: str, annotation: Any, name: str) -> Any:
    """The value that a word stands for, as the annotation understands it."""
    if annotation is str:
        return word
    refusal: HoldfastError | None = None
    for candidate in _readings(word):
        try:
            return DEFAULT_CODECS.decode(candidate, annotation, where=f"argument {name!r}")
        except HoldfastError as error:
            refusal = refusal or error
    shown = getattr(annotation, "__name__", None) or str(annotation)
    raise Failure(
        f"argument {name!r} is {word!r}, which is no {shown}",
        hint="a number or true is written plainly, a list or a record as JSON in quotes: '{\"id\": 7}'",
        code=USAGE,
    ) from refusal


def _readings(word: str) -> list[bytes]:
    text = json.dumps(word).encode()
    try:
        json.loads(word, parse_constant=_no_constant)
    except ValueError:
        return [text]
    return [word.encode(), text]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is Python's, not JSON's")


def _hints(thing: Any) -> dict[str, Any]:
    import typing

    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"an annotation of {thing.__qualname__} cannot be read: {error}",
            hint="import or define what it names at the top level of its module",
        ) from None
