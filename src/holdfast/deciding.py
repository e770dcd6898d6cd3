"""The engine's verbs for deciders: give an instance an input, and look at what came of it.

There is one way in. Whoever gives an input, here, from an effect, a timer or the inbox, ends in the same decision, in
one transaction; what follows from it is in the stream, and nothing is returned.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.authoring.durations import instant_us
from holdfast.authoring.startable import is_decider
from holdfast.core.decider_operations import DECIDER, EnqueueInput, Executed, ExecuteInput, ForgetSnapshot
from holdfast.core.errors import UnknownWorkflow, UsageError
from holdfast.core.operations import Changed, Offer
from holdfast.core.queries import AllWork, ObservationsOf, StreamAfter
from holdfast.core.rows import Fact, Observation, Run, Work
from holdfast.engine_parts import EnginePart
from holdfast.models.folding import Folded, own
from holdfast.runtime.folds import folded_now, folded_up_to, submit
from holdfast.runtime.instances import run_of_instance
from holdfast.start_options import checked_text
from holdfast.store.contract import FindRuns

# The modules of deciders themselves are imported by the verbs that need them: every engine has these verbs, and few
# programs have deciders.
if TYPE_CHECKING:
    from holdfast.authoring.decider_code import BoundDecider, RoutedInput
    from holdfast.authoring.deciders import Decider
    from holdfast.authoring.recorded import Recorded
    from holdfast.authoring.state_machine import StateMachine
    from holdfast.engine import Engine
    from holdfast.instance_documents import Instance, InstanceSnapshot, ObservedInput, Transition
    from holdfast.runtime.worker import Worker

log = logging.getLogger("holdfast.deciders")

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - the letters of the model
E = TypeVar("E")
F = TypeVar("F")
PAGE = 1_000
LOOKS = 50  # at an instance that never stands still


class Deciding(EnginePart):
    """What an engine can do with deciders. A base of `Engine`, kept apart for its subject."""

    async def execute(
        self,
        decider: type[Decider[S, I, E, F]] | str,
        input: I,
        /,
        *,
        command_id: str | None = None,
        tx: Any = None,
    ) -> None:
        """Give an instance an input: fold, decide, append, enqueue and schedule, in one transaction.

        Nothing is returned: what came of it is in the stream. The same `command_id` applies once (I12). `tx` is a
        PostgreSQL connection in a transaction of the caller's: the input is applied if that commits.
        """
        code = code_for(self._engine, decider)
        routed = code.route(input)
        _warn_of_reuse(await execute_routed(self._engine, code, routed, command_id, tx), code, routed, command_id)

    async def execute_dynamic(
        self, decider: str, payload: Mapping[str, Any], /, *, command_id: str | None = None
    ) -> None:
        """`execute` for untyped callers: the payload has "type", the name of the input's class, and its fields."""
        code = code_for(self._engine, decider)
        routed = code.route_mapping(payload)
        _warn_of_reuse(await execute_routed(self._engine, code, routed, command_id), code, routed, command_id)

    async def enqueue_input(
        self,
        decider: type[Decider[S, I, E, F]] | str,
        input: I | Mapping[str, Any],
        /,
        *,
        command_id: str | None = None,
    ) -> None:
        """Keep an input for an instance; a worker applies it soon, in the order in which inputs were enqueued."""
        code = code_for(self._engine, decider)
        routed = code.route_mapping(input) if isinstance(input, Mapping) else code.route(input)
        _warn_of_reuse(await enqueue_routed(self._engine, code, routed, command_id), code, routed, command_id)

    async def state(
        self, decider: type[Decider[S, I, E, F]], workflow_id: str, /, *, at: int | datetime | None = None
    ) -> S:
        """The state of an instance now, after its event number `at`, or at that time; the initial one before any."""
        code = code_for(self._engine, decider)
        run = await _find_instance(self._engine, code, workflow_id)
        if run is None:
            _checked_at(at, 0, f"{code.name} {workflow_id!r}")
            state: S = code.initial()
            return state
        if at is None:
            folded = await folded_now(self._engine.store, run, code, self._engine.definitions)
            self._engine.definitions.folding.learn(run.id, folded)
        else:
            folded = await folded_up_to(self._engine.store, run, code, await _sequence_at(self._engine, run, at))
        state = own(folded.state, code)
        return state

    async def stream(
        self,
        decider: type[Decider[S, I, E, F]],
        workflow_id: str,
        /,
        *,
        after: int = 0,
        limit: int | None = None,
    ) -> list[Recorded[E]]:
        """The events of an instance, oldest first, and the engine's own records among them (`system`)."""
        code = code_for(self._engine, decider)
        run = await _find_instance(self._engine, code, workflow_id)
        return [] if run is None else [code.recorded(fact) for fact in await _facts(self._engine, run, after, limit)]

    async def snapshot(self, decider: type[Decider[S, I, E, F]] | str, workflow_id: str, /) -> InstanceSnapshot:
        """The state of an instance with its pending effects and timers, its inbox and what was observed of it."""
        code = code_for(self._engine, decider)
        run = await _find_instance(self._engine, code, workflow_id)
        if run is None:
            raise UnknownWorkflow(
                f"{code.name} has no instance {workflow_id!r}", hint="an instance begins with its first input"
            )
        from holdfast.instance_documents import InstanceSnapshot, observed_input, pending_effects, pending_timers

        run, folded, work, observed = await _one_moment(self._engine, run, code)
        return InstanceSnapshot(
            run_id=run.id,
            workflow=run.workflow,
            workflow_id=workflow_id,
            status=run.status,
            state=own(folded.state, code),
            view=code.view(folded.state),
            sequence=run.base,
            effects=pending_effects(work),
            timers=pending_timers(work),
            inbox=run.mailbox,
            observations=tuple([observed_input(row, self._engine.codecs) for row in observed]),
        )

    async def instances(
        self,
        decider: type[Decider[S, I, E, F]] | str,
        /,
        *,
        status: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Instance]:
        """Instances of a decider; `after` is the run_id of the last one of the page before."""
        from holdfast.instance_documents import listed_instance

        code = code_for(self._engine, decider)
        found: list[Run] = []
        for name in code.definition.cls.__holdfast__.names:
            wanted = () if status is None else (checked_text(status, "status"),)
            found += await self._engine.store.find(FindRuns(workflow=name, status=wanted, limit=limit, after=after))
        found.sort(key=lambda run: run.id, reverse=True)  # one order over all names, or `after` would pass some over
        return [listed_instance(run) for run in found[:limit] if run.model == DECIDER]

    async def observations(self, decider: type[Decider[S, I, E, F]] | str, workflow_id: str, /) -> list[ObservedInput]:
        """The inputs that an instance was given, as far as `observe_inputs` kept them."""
        code = code_for(self._engine, decider)
        run = await _find_instance(self._engine, code, workflow_id)
        if run is None:
            return []
        from holdfast.instance_documents import observed_input

        rows: list[Observation] = await self._engine.store.rows(ObservationsOf(run.id))
        return [observed_input(row, self._engine.codecs) for row in rows]

    async def transitions(self, decider: type[Decider[S, I, E, F]] | str, /) -> list[Transition]:
        """Which ways instances were seen to take, and how often; needs `observe_inputs`."""
        from holdfast.instance_documents import Transition

        code = code_for(self._engine, decider)
        seen: dict[tuple[str | None, str, str | None], int] = {}
        for name in code.definition.cls.__holdfast__.names:
            for before, given, after, count in await self._engine.store.transitions(name):
                seen[before, given, after] = seen.get((before, given, after), 0) + count
        rows = sorted(seen.items(), key=lambda item: tuple(map(str, item[0])))
        return [Transition(before=b, input=i, after=a, count=count) for (b, i, a), count in rows]

    async def observed_state_machine(self, decider: type[Decider[S, I, E, F]] | str, /) -> StateMachine:
        """The state machine that instances were seen to be, to be drawn with .mermaid() and .dot()."""
        from holdfast.authoring.state_machine import StateMachine

        code = code_for(self._engine, decider)
        rows = [
            (each.before, each.input, each.after or "?", each.count)
            for each in await self._engine.transitions(code.name)
        ]
        declared = code.definition.machine().definition
        return StateMachine.observed(rows, name=code.name, initial=declared.initial, terminals=declared.terminals)

    async def delete_snapshot(self, decider: type[Decider[S, I, E, F]] | str, workflow_id: str, /) -> bool:
        """Forget the stored state of an instance; it is folded anew when it is needed (I38). False if there is none."""
        code = code_for(self._engine, decider)
        run = await run_of_instance(self._engine.store, code, workflow_id)
        changed: Changed = await self._engine.coordinator.submit(ForgetSnapshot(run=run))
        self._engine.definitions.folding.forget(run)
        return changed.changed


def code_for(engine: Engine, decider: type[Decider[Any, Any, Any, Any]] | str) -> BoundDecider:
    """The code of a decider by its class or name; UnknownWorkflow or UsageError otherwise."""
    if isinstance(decider, str):
        code = engine.definitions.decider(checked_text(decider, "a decider"))
        if code is None:
            found = engine.registry.startable(decider)  # UnknownWorkflow, with the nearest names
            raise UsageError(f"{decider} is no decider but {found!r:.80}", hint="start it with engine.start")
        return code
    if not is_decider(decider):
        from holdfast.authoring.decider_code import refuse_instance

        refuse_instance(decider)
        raise UsageError(f"{decider!r:.80} is no decider", hint="give a subclass of hf.Decider, or its name")
    code = engine.definitions.decider(decider.__holdfast__.name)
    if code is None or code.definition.cls is not decider:
        raise UsageError(
            f"{decider.__qualname__} is not registered with this engine",
            hint="give the engine and the decider the same registry=",
        )
    return code


async def enqueue_routed(
    engine: Engine, code: BoundDecider, routed: RoutedInput, command_id: str | None = None
) -> Executed:
    """Keep an input for its instance; whether it is queued, or a duplicate."""
    engine.expect_queue(code.queue)
    operation = EnqueueInput(
        run=await run_of_instance(engine.store, code, routed.key),
        workflow=code.name,
        key=routed.key,
        data=routed.data,
        codec=routed.codec,
        input_type=routed.type,
        command=_command(command_id, routed),
        id=engine.system.ids.new(),
        observe=engine.settings.observe_inputs,
    )
    queued: Executed = await engine.coordinator.submit(operation)
    return queued


async def execute_routed(
    engine: Engine, code: BoundDecider, routed: RoutedInput, command_id: str | None = None, tx: Any = None
) -> Executed:
    """Give an instance an input; whether it was applied, ignored or a duplicate, and how long its stream is then."""
    store, command = engine.store, _command(command_id, routed)
    run = await run_of_instance(store, code, routed.key)
    worker, offer = _room(engine, code.queue) if tx is None else (None, None)
    operation = ExecuteInput(
        run=run,
        workflow=code.name,
        key=routed.key,
        data=routed.data,
        codec=routed.codec,
        input_type=routed.type,
        command=command,
        id=engine.system.ids.new(),
        observe=engine.settings.observe_inputs,
        offer=offer,
    )
    executed: Executed
    if tx is not None:
        from holdfast.joining import execute_in  # few hand over a transaction of their own

        return await execute_in(
            tx, operation, store=store, coordinator=engine.coordinator, definitions=engine.definitions
        )
    handed: tuple[Any, ...] = ()
    try:
        executed = await submit(operation, coordinator=engine.coordinator, store=store, definitions=engine.definitions)
        handed = executed.handed
        return executed
    finally:
        if worker is not None and offer is not None:
            worker.accept(handed)


def _warn_of_reuse(executed: Executed, code: BoundDecider, routed: RoutedInput, command_id: str | None) -> None:
    """An id of the caller's that was used for something else hides an input; one that inputs carry may mean to."""
    if executed.differs and command_id is not None:
        log.warning(
            "command id %r of %s/%s was used before, for an input with other data, so this %s was not applied; give "
            "every command an id of its own",
            command_id,
            code.name,
            routed.key,
            routed.type,
        )


def _room(engine: Engine, queue: str) -> tuple[Worker | None, Offer | None]:
    """A worker of this process that may take what follows at once."""
    if not engine.settings.hand_over:
        return None, None
    for worker in engine.local_workers:
        if worker.free > 0 and queue in worker.queues:
            return worker, worker.reserve()
    return None, None


def _command(given: str | None, routed: RoutedInput) -> str | None:
    return routed.command if given is None else checked_text(given, "command_id")


async def _find_instance(engine: Engine, code: BoundDecider, key: str) -> Run | None:
    run = await run_of_instance(engine.store, code, checked_text(key, "workflow_id"))
    return next(iter(await engine.store.runs([run])), None)


async def _one_moment(
    engine: Engine, run: Run, code: BoundDecider
) -> tuple[Run, Folded, list[Work], list[Observation]]:
    """An instance and what belongs to it, read until nothing was written in between (K4), within reason."""
    looks = 0
    while True:
        folded = await folded_now(engine.store, run, code, engine.definitions)
        work: list[Work] = await engine.store.rows(AllWork(run.id))
        observed: list[Observation] = await engine.store.rows(ObservationsOf(run.id))
        again = next(iter(await engine.store.runs([run.id])), run)
        looks += 1
        if again.version == run.version or looks == LOOKS:
            return run, folded, work, observed
        run = again


async def _facts(engine: Engine, run: Run, after: int, limit: int | None) -> list[Fact]:
    facts: list[Fact] = []
    while limit is None or len(facts) < limit:
        page: list[Fact] = await engine.store.rows(StreamAfter(run.id, after, PAGE))
        facts += page
        if len(page) < PAGE:
            break
        after = page[-1].sequence
    return facts if limit is None else facts[:limit]


async def _sequence_at(engine: Engine, run: Run, at: int | datetime) -> int:
    _checked_at(at, run.base, f"{run.workflow} {run.key!r}")
    if isinstance(at, datetime):
        until = instant_us("at", at)
        return max((fact.sequence for fact in await _facts(engine, run, 0, None) if fact.at <= until), default=0)
    return at


def _checked_at(at: int | datetime | None, length: int, whose: str) -> None:
    """UsageError unless it is a point in a stream of this length."""
    if at is None:
        return
    if isinstance(at, datetime):
        instant_us("at", at)
    elif type(at) is not int or at < 0:
        raise UsageError(f"at={at!r:.80}", hint="give the sequence of an event, from 0, or a time")
    elif at > length:
        raise UsageError(
            f"{whose} has no event {at}: it has {length or 'none'} so far",
            hint=f"give at=0 to {length}, or leave it out for the state of now",
        )
