"""What the code of a workflow can ask of its run: `hf.sleep`, `hf.wait_for`, `hf.send` and the others.

Each finds the run in `running_function`. Where there is none, those with a plain meaning have it (time, chance,
sleeping) and the others are refused. Inside an action all are refused: an action may take as long as it likes and do
what it likes, but nothing in it is recorded, so that a wait or a seeded number there would not be what it seems.

What is given to a call is checked when the call is made, not when it is awaited: the line of the mistake is then the
one in the traceback.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, TypeVarTuple, cast, overload

from holdfast.authoring.actions import Action, Bound
from holdfast.authoring.conditions import (
    AllOf,
    AnyOf,
    Condition,
    Ended,
    Identified,
    Received,
    as_condition,
    checked_run_id,
    make_wait,
)
from holdfast.authoring.context import current, from_an_action, is_running
from holdfast.authoring.dag_builder import BuiltDag
from holdfast.authoring.dags import Dag
from holdfast.authoring.durations import instant_us, span_us
from holdfast.authoring.events import Event, as_event
from holdfast.authoring.function_calls import (
    BroadcastCall,
    Call,
    ChildCall,
    ChildResult,
    ExecuteCall,
    FunctionRun,
    SendCall,
    SideEffect,
    running_function,
)
from holdfast.authoring.functions import Workflow
from holdfast.authoring.plain_run import PlainRun, outside_a_run
from holdfast.authoring.registry import Definition, validated_name
from holdfast.authoring.startable import resolve_start, result_codec_of
from holdfast.core.codec import MAX_INT, ResultCodec
from holdfast.core.errors import UsageError
from holdfast.core.function_operations import Delivered, Queued, Sent

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph

__all__ = [
    "ChildHandle",
    "broadcast",
    "continue_as",
    "execute",
    "expose",
    "now",
    "on_rollback",
    "patched",
    "rng",
    "send",
    "side_effect",
    "sleep",
    "start_child",
    "uuid4",
    "wait_for",
]

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


# --- time and chance ---------------------------------------------------------------------------------------------


def now() -> datetime:
    """The time of the run's last recorded entry, aware and in UTC: the same in every replay (I56)."""
    run = _run_here("hf.now()", "use datetime.now(UTC) there")
    return datetime.now(UTC) if run is None else run.now()


def uuid4() -> uuid.UUID:
    """A random UUID that is the same in every replay (I56)."""
    run = _run_here("hf.uuid4()", "use uuid.uuid4() there, or hf.current().idempotency_key")
    return uuid.uuid4() if run is None else run.uuid4()


def rng() -> random.Random:
    """A random generator that gives the same numbers in every replay (I56); not for secrets."""
    run = _run_here("hf.rng()", "use the random module there")
    return random.Random() if run is None else run.rng()  # noqa: S311 - for people's dice


def sleep(
    span: timedelta | float | None = None,
    /,
    *,
    weeks: float | None = None,
    days: float | None = None,
    hours: float | None = None,
    minutes: float | None = None,
    seconds: float | None = None,
    until: datetime | None = None,
) -> Call[None]:
    """Sleep durably: a process that dies meanwhile changes nothing. An instant that has passed is no sleep at all."""
    _run_here("hf.sleep(…)", "use asyncio.sleep or time.sleep there, or sleep in the workflow")
    units = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    if until is None:
        microseconds = span_us("hf.sleep", span, **units)
    else:
        if span is not None or any(amount is not None for amount in units.values()):
            raise UsageError("hf.sleep was given until= and a time as well", hint="give one of them")
        microseconds = max(0, instant_us("hf.sleep", until) - instant_us("hf.sleep", now()))
    # A run has an event loop of its own, on which timers are durable by themselves.
    return asyncio.sleep(microseconds / 1_000_000)


# --- waiting -----------------------------------------------------------------------------------------------------


@overload
def wait_for(condition: Condition[T], /) -> Call[T]: ...
@overload
def wait_for(condition: str, /) -> Call[Received[Any]]: ...
def wait_for(*conditions: Any) -> Call[Any]:
    """Wait durably for an event, a time, the end of a run, or a combination of them.

    Gives `hf.Received`, `hf.TimeReached` or `hf.RunEnded` for whichever came first, and a list for `hf.all_of`.
    """
    run = _run_of("hf.wait_for(…)", "wait in the workflow, and pass what came to the action")
    if len(conditions) > 1:
        raise UsageError(
            f"hf.wait_for was given {len(conditions)} conditions",
            hint="say which is meant: hf.any_of(…), which is also written with |, or hf.all_of(…)",
        )
    condition = conditions[0] if conditions else None
    if condition is None:
        raise UsageError(
            "hf.wait_for was given nothing to wait for", hint="give an event, or a time as in hf.after(seconds=5)"
        )
    return _waiting(run, as_condition("hf.wait_for", condition))


def _waiting(run: FunctionRun, condition: Condition[Any]) -> Call[Any]:
    if isinstance(condition, AllOf):
        return _all(run, condition.members)
    leaves = condition.members if isinstance(condition, AnyOf) else (condition,)
    if any(isinstance(leaf, AllOf) for leaf in leaves):
        return _first(run, leaves)
    for leaf in leaves:
        if isinstance(leaf, Ended) and leaf.run_id == run.run_id:
            raise UsageError(
                f"run {run.run_id} of {run.workflow_name} waits for its own end, which would never come",
                hint="give hf.ended(…) the id of another run",
            )
    return run.call(make_wait(leaves, instant_us("the run's time", run.now()), run.registry.events))


async def _all(run: FunctionRun, members: tuple[Condition[Any], ...]) -> list[Any]:
    return list(await asyncio.gather(*[_waiting(run, member) for member in members]))


async def _first(run: FunctionRun, members: tuple[Condition[Any], ...]) -> Any:
    """A race that an all_of takes part in. What it has taken when another wins stays taken."""
    single = tuple(member for member in members if not isinstance(member, AllOf))
    several = [member for member in members if isinstance(member, AllOf)]
    racing: list[Condition[Any]] = [AnyOf(single), *several] if single else [*several]
    tasks = [asyncio.ensure_future(_waiting(run, member)) for member in racing]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- other runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChildHandle(Generic[R]):
    """A run that this one has started. hf.ended and hf.send take it, and its id."""

    id: str
    workflow: str
    result_codec: ResultCodec | None = field(repr=False, compare=False)

    def result(self) -> Call[R]:
        """Its result, once it has ended; RunFailed or RunCancelled if it has none."""
        run = _run_of("the result of a child", "await it in the workflow")
        return run.call(ChildResult(workflow=self.workflow, run_id=self.id, result_codec=self.result_codec))


@overload
def start_child(
    workflow: Bound[R], /, *, key: str | None = ..., queue: str | None = ..., detached: bool = ...
) -> Call[ChildHandle[R]]: ...
@overload
def start_child(
    workflow: Dag | BuiltDag, /, *, key: str | None = ..., queue: str | None = ..., detached: bool = ...
) -> Call[ChildHandle[None]]: ...
@overload
def start_child(
    workflow: StateGraph[S],
    state: S | Mapping[str, Any],
    /,
    *,
    key: str | None = ...,
    queue: str | None = ...,
    detached: bool = ...,
) -> Call[ChildHandle[S]]: ...
@overload
def start_child(
    workflow: Callable[[*Ts], Coroutine[Any, Any, R]],
    /,
    *args: *Ts,
    key: str | None = ...,
    queue: str | None = ...,
    detached: bool = ...,
) -> Call[ChildHandle[R]]: ...
@overload
def start_child(
    workflow: str, /, *args: Any, key: str | None = ..., queue: str | None = ..., detached: bool = ...
) -> Call[ChildHandle[Any]]: ...
def start_child(  # type: ignore[misc]  # mypy cannot match *Ts with *args
    workflow: Any, /, *args: Any, key: str | None = None, queue: str | None = None, detached: bool = False
) -> Call[ChildHandle[Any]]:
    """Start another run and go on; awaiting the call gives its handle, once it is started.

    A cancel of this run passes down to its children, unless they are `detached`.
    """
    run = _run_of("hf.start_child(…)", from_an_action("engine.start(…, key=hf.current().idempotency_key)"))
    if isinstance(run, PlainRun):
        raise outside_a_run("hf.start_child(…)")
    if not isinstance(detached, bool):
        raise UsageError(f"detached={detached!r:.80} of hf.start_child", hint="give True or False")
    spec = resolve_start(workflow, args, run.registry, MAX_INT)
    known = run.registry.startable(workflow) if isinstance(workflow, str) else workflow
    target = known.target if isinstance(known, Bound) else known
    request = ChildCall(
        name=spec.workflow,
        startable=workflow,
        args=args,
        input_digest=spec.input_digest,
        result_codec=result_codec_of(target),
        awaits=False,
        key=None if key is None else validated_name(key, "the key in hf.start_child"),
        queue=spec.queue if queue is None else validated_name(queue, "the queue in hf.start_child"),
        detached=detached,
    )
    return _started(run.call(request), request)


async def _started(call: Coroutine[Any, Any, Any], request: ChildCall) -> ChildHandle[Any]:
    return ChildHandle(cast(str, await call), request.name, request.result_codec)


@overload
def send(event: Event[None], /, *, to: str | Identified, id: str | None = ...) -> Call[Sent]: ...
@overload
def send(event: Event[T], payload: T, /, *, to: str | Identified, id: str | None = ...) -> Call[Sent]: ...
@overload
def send(event: str, payload: Any = ..., /, *, to: str | Identified, id: str | None = ...) -> Call[Sent]: ...
def send(event: Any, payload: Any = None, /, *, to: str | Identified, id: str | None = None) -> Call[Sent]:
    """Send an event to one run, once however often this run is replayed.

    Gives `Delivered`, `Queued`, `TargetEnded` or `TargetNotFound`. With an `id`, a second send of it to that run
    changes nothing.
    """
    run = _run_of("hf.send(…)", from_an_action("engine.send(…, id=hf.current().idempotency_key)"))
    known = as_event("hf.send", event, run.registry)
    known.check(payload)
    return run.call(SendCall(event=known, payload=payload, to=checked_run_id("hf.send", to), id=_checked_id(id)))


@overload
def broadcast(event: Event[None], /, *, to_all: bool = ..., id: str | None = ...) -> Call[Delivered | Queued]: ...
@overload
def broadcast(
    event: Event[T], payload: T, /, *, to_all: bool = ..., id: str | None = ...
) -> Call[Delivered | Queued]: ...
@overload
def broadcast(
    event: str, payload: Any = ..., /, *, to_all: bool = ..., id: str | None = ...
) -> Call[Delivered | Queued]: ...
def broadcast(
    event: Any, payload: Any = None, /, *, to_all: bool = False, id: str | None = None
) -> Call[Delivered | Queued]:
    """Send an event to the run that has waited for it longest, or to all that wait; kept if none does."""
    run = _run_of("hf.broadcast(…)", from_an_action("engine.broadcast(…, id=hf.current().idempotency_key)"))
    known = as_event("hf.broadcast", event, run.registry)
    known.check(payload)
    if not isinstance(to_all, bool):
        raise UsageError(f"to_all={to_all!r:.80} of hf.broadcast", hint="give True or False")
    return run.call(BroadcastCall(event=known, payload=payload, to_all=to_all, id=_checked_id(id)))


def execute(decider: Any, input: Any, /, *, command_id: str | None = None) -> Call[None]:
    """Give an input to a decider, once however often this run is replayed."""
    run = _run_of("hf.execute(…)", from_an_action("engine.execute(…, command_id=hf.current().idempotency_key)"))
    definition = getattr(decider, "__holdfast__", None)
    if isinstance(decider, str):
        name = validated_name(decider, "the decider in hf.execute")
    elif isinstance(decider, type) and isinstance(definition, Definition) and not issubclass(decider, Dag):
        name = definition.name
    else:
        raise UsageError(
            f"hf.execute was given {decider!r:.80}, which is no decider",
            hint="give the Decider class or its name; actions and workflows are simply awaited",
        )
    if command_id is not None:
        validated_name(command_id, "the command_id in hf.execute")
    request = ExecuteCall(decider=name, input=input, command_id=command_id)
    request.check()
    return run.call(request)


# --- the run itself ----------------------------------------------------------------------------------------------


def side_effect(fn: Callable[[], R], /, *, name: str | None = None) -> Call[R]:
    """Call a plain function once and record its value: for something small that is no action's worth.

    It may be called again if the process dies before its value is recorded, and it must not block.
    """
    if inspect.iscoroutinefunction(fn) or isinstance(fn, Action | Workflow):
        raise UsageError(
            f"hf.side_effect was given {fn!r:.80}, which is to be awaited", hint="make it an @hf.action and await that"
        )
    if not callable(fn):
        raise UsageError(
            f"hf.side_effect was given {fn!r:.80}, a {type(fn).__name__}",
            hint="give a function without arguments: hf.side_effect(lambda: …)",
        )
    _check_no_arguments("hf.side_effect", fn)
    shown = getattr(fn, "__name__", type(fn).__name__) if name is None else name
    request = SideEffect(fn=fn, name=validated_name(shown, "hf.side_effect"))
    run = _run_here("hf.side_effect(…)", "call the function itself there")
    return _called(fn) if run is None else run.call(request)


async def _called(fn: Callable[[], R]) -> R:
    return fn()


def continue_as(workflow: Callable[[*Ts], Coroutine[Any, Any, Any]] | Bound[Any], /, *args: *Ts) -> Never:
    """End this call of the workflow here and go on as another one, with a fresh history: same run, same id."""
    run = _run_of("hf.continue_as(…)", "call it in the workflow itself")
    given, call_args, kwargs = _unbound("hf.continue_as", workflow, args)
    if not isinstance(given, Workflow):
        raise UsageError(
            f"hf.continue_as was given {given!r:.80}, which is no workflow",
            hint="give a function that is decorated with @hf.workflow, and its arguments: "
            f"hf.continue_as({run.workflow_name}, …)",
        )
    run.registry.workflow(given.name)  # or nobody could go on with it
    given.check_arguments(call_args, kwargs)
    given.call.encode_call(call_args, kwargs, limit=MAX_INT)
    run.continue_as(given, call_args, kwargs)


def on_rollback(action: Callable[[*Ts], Coroutine[Any, Any, Any]] | Bound[Any], /, *args: *Ts) -> None:
    """Run this action if the run fails or is cancelled: what was registered last runs first."""
    run = _run_of("hf.on_rollback(…)", "call it in the workflow, after the action")
    given, call_args, kwargs = _unbound("hf.on_rollback", action, args)
    if not isinstance(given, Action):
        fix = "decorate it with @hf.action and give that with its arguments: hf.on_rollback(release, 17)"
        if isinstance(given, Coroutine):
            given.close()  # or Python would warn that it was never awaited
            fix = "give the action and its arguments, not the call: hf.on_rollback(release, 17)"
        raise UsageError(f"hf.on_rollback was given {given!r:.80}, which is no action", hint=fix)
    given.check_arguments(call_args, kwargs)
    # Refused now, and not when there is something to undo.
    given.call.encode_call(call_args, kwargs, limit=MAX_INT)
    run.on_rollback(given, call_args, kwargs)


def expose(name: str, fn: Callable[[], Any], /) -> None:
    """Let others ask for a value of this run: `await handle.query(name)` calls the function when it is asked."""
    run = _run_of("hf.expose(…)", "call it in the workflow; notes of an action are written with hf.current().note")
    validated_name(name, "a value in hf.expose")
    given: object = fn
    if not callable(given) or inspect.iscoroutinefunction(given) or isinstance(given, Action | Workflow):
        raise UsageError(
            f"hf.expose({name!r}) was given {fn!r:.80}, which cannot be asked at once",
            hint='give a plain function without arguments: hf.expose("progress", lambda: done / total)',
        )
    _check_no_arguments(f"hf.expose({name!r})", fn)
    run.expose(name, fn)


def patched(name: str, /) -> bool:
    """True where new code is to be taken, False in runs that passed here before it existed.

    `if hf.patched("fraud-check"): new() else: old()` keeps old runs on the path they began.
    """
    run = _run_here("hf.patched(…)", "ask in the workflow, and pass the answer to the action")
    validated_name(name, "a patch in hf.patched")
    return True if run is None else run.patched(name)


# --- who is asking -----------------------------------------------------------------------------------------------


def _run_here(what: str, instead: str) -> FunctionRun | None:
    """The run whose code is calling, None outside of any; UsageError inside an action and in another thread."""
    if is_running():
        raise UsageError(
            f"{what} was called inside {current().node.name}, which is an action or a step: only the code of a "
            "workflow is recorded and replayed",
            hint=instead,
        )
    run = running_function.get()
    if run is not None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                f"{what} was called by workflow {run.workflow_name} in a thread, where its place in the order of "
                "things could not be repeated",
                hint="call it in the workflow's own code and pass the value on",
            ) from None
    return run


def _run_of(what: str, instead: str) -> FunctionRun:
    run = _run_here(what, instead)
    if run is None:
        raise outside_a_run(what)
    return run


def _unbound(what: str, thing: object, args: tuple[Any, ...]) -> tuple[object, tuple[Any, ...], Mapping[str, Any]]:
    """What was given, and the arguments it was given with or bound to."""
    if not isinstance(thing, Bound):
        return thing, args, {}
    if args:
        raise UsageError(
            f"{what} was given {thing.target.name}, which is bound to its arguments, and {len(args)} more",
            hint="give all of them to bind(…)",
        )
    return thing.target, thing.args, thing.kwargs


def _checked_id(id: str | None) -> str | None:
    return None if id is None else validated_name(id, "the id of an event")


def _check_no_arguments(what: str, fn: Callable[..., Any]) -> None:
    try:
        inspect.signature(fn).bind()
    except TypeError as error:
        raise UsageError(
            f"{what} was given a function that cannot be called without arguments: {error}",
            hint="wrap it: lambda: function(argument)",
        ) from None
    except ValueError:
        return  # written in C, and without a signature that Python shows
