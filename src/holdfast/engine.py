"""The public engine: open a store, start runs, wait for results, run workers, and what operators need.

Everything that changes anything is submitted to the coordinator as an operation; this module only turns
calls into operations and results into values.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar, TypeVarTuple, Unpack, overload

import msgspec

from holdfast.authoring.actions import Bound
from holdfast.authoring.context import current, is_running, refuse_inside_a_workflow
from holdfast.authoring.dags import Dag
from holdfast.authoring.registry import Registered, Registry, default_registry
from holdfast.authoring.startable import resolve_start
from holdfast.coordinator import Coordinator
from holdfast.core import quoting
from holdfast.core.errors import EngineClosed, UsageError
from holdfast.core.function_operations import Sent
from holdfast.core.operations import Started, StartRun
from holdfast.core.rows import Run
from holdfast.core.settings import Settings, make_settings
from holdfast.deciding import Deciding
from holdfast.handle import Handle, StepExecution, executions_by_ancestry
from holdfast.listing import Runs, page_of, question
from holdfast.models.dag import definition_id
from holdfast.operating import Operating
from holdfast.projecting import Projecting
from holdfast.runtime import telemetry as t
from holdfast.runtime.announcer import ENDED, STREAM, Announcer
from holdfast.runtime.announcer import WORK as WORK_CHANNEL
from holdfast.runtime.codecs import open_codecs
from holdfast.runtime.counting import Counting
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.flow_log import write_flow_log
from holdfast.runtime.graph_listening import GraphListening
from holdfast.runtime.place import Place
from holdfast.runtime.stores import DEFAULT_URL, as_url, check_transactional, open_store, redacted
from holdfast.runtime.stray_events import StrayEventKeeper
from holdfast.runtime.system import System, real_system
from holdfast.runtime.unserved import UnservedQueues
from holdfast.runtime.watch import Watch
from holdfast.sending import broadcast_operation, send_operation
from holdfast.start_options import (
    Identified,
    StartOptions,
    StartOptionsOrTx,
    check_worker,
    checked_text,
    start_operation,
    unknown_options,
)
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.authoring.dag_builder import BuiltDag
    from holdfast.authoring.dag_template import BoundTemplate, DagTemplate
    from holdfast.authoring.events import Event
    from holdfast.authoring.state_graphs import StateGraph
    from holdfast.blocking import BlockingEngine
    from holdfast.emitters import Emitter
    from holdfast.runtime.worker import Worker

log = logging.getLogger("holdfast.engine")

R = TypeVar("R")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")


class Engine(Deciding, Projecting, Operating):
    """A door to one store.

    `async with Engine(url) as engine:` opens it (and migrates the schema), `engine.worker()` runs work in
    this process. Settings are keyword arguments; `hf.Settings` documents them.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        registry: Registry | None = None,
        system: System | None = None,
        store: Store | None = None,
        metrics: t.Metrics | None = None,
        emitter: Emitter | Sequence[Emitter] | None = None,
        **settings: Any,
    ) -> None:
        self.url = as_url(url or os.environ.get("HOLDFAST_URL") or DEFAULT_URL)
        self.settings: Settings = make_settings(settings | {"registry": registry}, os.environ)
        self.codecs = open_codecs(self.settings.codec)
        self.system = system or real_system()
        self.registry = registry or default_registry
        self.definitions = RegistryDefinitions(self.registry, self.codecs, self.settings.payload_limit_bytes)
        self.metrics: t.Metrics = metrics or t.Recorder()
        self._graph_listening = GraphListening(self.definitions, self.metrics, emitter)
        self._levels = t.Levels(self.metrics)
        self._given_store = store
        self._store: Store | None = None
        self._place: Place | None = None  # in which it was opened
        self._coordinator: Coordinator | None = None
        self._watch: Watch | None = None
        self._announcer: Announcer | None = None
        self._workers: list[Worker] = []
        self.stray_events: StrayEventKeeper | None = None
        self._unserved = UnservedQueues(lambda: self.store)
        self._background: set[asyncio.Task[Any]] = set()
        self.listeners: list[Callable[[str], None]] = []  # told the channel when another process has news

    def __repr__(self) -> str:
        return f"<Engine {redacted(self.url)} {'open' if self._coordinator else 'closed'}>"

    # -- life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def blocking(self) -> BlockingEngine:
        """This engine for a program without an event loop: the same calls, not awaited, and a plain `with`."""
        from holdfast.blocking import BlockingEngine  # built on this module, and of use to few

        return BlockingEngine(self)

    async def open(self, *, migrate: bool = True) -> None:
        """Connect, check that the database is ours, and bring its schema up to date unless told to leave it."""
        refuse_inside_a_workflow()
        if self._place is not None and self._place.loop.is_closed():
            self._forget()
        if self._coordinator is not None:
            raise UsageError("the engine is open already", hint="open it once and share it in this process")
        store = self._given_store or open_store(
            self.url, self.system, timeout_seconds=self.settings.store_timeout_seconds
        )
        try:
            await store.open()
            if migrate:
                await store.migrate()
        except BaseException:
            with contextlib.suppress(Exception):
                await store.close()
            raise
        from holdfast.models.decisions import decisions  # all models: whoever opens no store decides nothing

        coordinator = Coordinator(
            store,
            decisions(
                self.definitions,
                folding=self.definitions.folding,
                states=lambda: self.definitions.states,
                observe_inputs=self.settings.observe_inputs,
            ),
            self.system.clock,
            batch_limit=self.settings.batch_limit,
            cache_rows=self.settings.cache_rows,
            store_timeout_seconds=self.settings.store_timeout_seconds,
        )
        self._store, self._coordinator = store, coordinator
        self._place = Place()
        if not self.codecs.are_ours:
            quoting.forbid_for(self)
        self._watch = Watch(store, coordinator.cache.run_row)
        self.stray_events = StrayEventKeeper(store, coordinator)
        coordinator.observers += [self._watch.on_commit, self.stray_events.on_commit]
        coordinator.observers.append(lambda commit: self.definitions.folding.absorb(commit.changes))
        coordinator.audience.spectators += [
            Counting(self.metrics).on_commit,
            write_flow_log,
            self._graph_listening.on_commit,
        ]
        coordinator.claim_observers.append(self._graph_listening.on_claim)
        if os.environ.get("HOLDFAST_TRACE") == "operations":
            from holdfast.runtime.trace import Tracer

            tracer = Tracer(sys.stderr.write)
            coordinator.observers.append(tracer.on_commit)
            coordinator.claim_observers.append(tracer.on_claim)
        try:
            await self.definitions.see_code(store)
            if store.shared and self.settings.notify:
                self._announcer = Announcer(store, lambda: bool(self.definitions.projections()))
                coordinator.audience.heralds.append(self._announcer.on_commit)
                await store.listen(self._heard)
        except BaseException:  # half open it would keep its connections, and could not be opened again
            with contextlib.suppress(Exception):
                await self.close()
            raise

    async def close(self) -> None:
        """Stop local workers, finish what was submitted, and disconnect."""
        if self._place is not None and self._place.loop.is_closed():
            self._forget()
        if self._coordinator is None:
            return
        self.store  # noqa: B018 - refuses what it must
        for worker in list(self._workers):
            await worker.stop()
        self._workers.clear()
        self._unserved.close()
        for task in list(self._background):
            task.cancel()
        if self.stray_events is not None:
            await self.stray_events.close()
        await self._coordinator.close()
        if self._announcer is not None:
            await self._announcer.close()
        if self._watch is not None:
            await self._watch.close(EngineClosed("the engine was closed while a result was awaited"))
        await self.store.close()
        self._forget()

    def _forget(self) -> None:
        """It is closed, or its event loop is, and with that all that it had there."""
        self._workers.clear()
        self._store = self._coordinator = self._watch = self._announcer = self._place = None
        quoting.allow_for(self)

    def _heard(self, channel: str) -> None:
        for worker in self._workers:
            if channel == WORK_CHANNEL:
                worker.wake()
            elif channel == ENDED:
                worker.look()
            elif channel == STREAM:
                worker.projections.look()
        if channel == ENDED and self._watch is not None:
            self._watch.hint()
        for listener in self.listeners:
            listener(channel)

    @property
    def store(self) -> Store:
        refuse_inside_a_workflow()
        if self._store is None or self._place is None:
            raise EngineClosed("the engine is not open", hint="use `async with engine:` around it")
        self._place.check()
        if self._store.kind == "sqlite" and is_running() and current().transactional:
            raise UsageError(
                f"{current().node.name} is transactional and used the engine: on SQLite its transaction holds the one "
                "writer, so that call would wait for ever",
                hint="use hf.current().tx inside, and the engine in a node of its own, before or after",
            )
        return self._store

    @property
    def coordinator(self) -> Coordinator:
        if self._coordinator is None:
            raise EngineClosed("the engine is not open", hint="use `async with engine:` around it")
        self.store  # noqa: B018 - refuses what it must
        return self._coordinator

    @property
    def watch(self) -> Watch:
        if self._watch is None:
            raise EngineClosed("the engine is not open", hint="use `async with engine:` around it")
        self.store  # noqa: B018 - refuses what it must
        return self._watch

    # -- starting runs

    @overload
    async def start(
        self, workflow: Dag | BuiltDag | BoundTemplate, /, **options: Unpack[StartOptionsOrTx]
    ) -> Handle[None]: ...
    @overload
    async def start(
        self, workflow: DagTemplate[...], /, *args: Any, **options: Unpack[StartOptionsOrTx]
    ) -> Handle[None]: ...
    @overload
    async def start(
        self, workflow: StateGraph[S], state: S | Mapping[str, Any], /, **options: Unpack[StartOptionsOrTx]
    ) -> Handle[S]: ...
    @overload
    async def start(self, workflow: Bound[R], /, **options: Unpack[StartOptionsOrTx]) -> Handle[R]: ...
    @overload
    async def start(
        self, workflow: Callable[[*Ts], Awaitable[R]], /, *args: *Ts, **options: Unpack[StartOptionsOrTx]
    ) -> Handle[R]: ...
    @overload
    async def start(self, workflow: str, /, *args: Any, **options: Unpack[StartOptionsOrTx]) -> Handle[Any]: ...
    async def start(  # type: ignore[misc]  # mypy cannot match *Ts with *args
        self,
        workflow: Any,
        /,
        *args: Any,
        key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        tags: Mapping[str, str] | None = None,
        at: datetime | None = None,
        paused: bool = False,
        if_exists: str = "same",
        tx: Any = None,
        **unknown: Any,
    ) -> Handle[Any]:
        """Start a run, or find the one that has this key: the same key and input is the same run (I12).

        `tx` is a PostgreSQL connection in a transaction of the caller's: the run exists if that commits.
        """
        if unknown:
            raise unknown_options(workflow, unknown)
        spec = resolve_start(workflow, args, self.registry, self.settings.payload_limit_bytes, self.codecs)
        if spec.source == "action" and getattr(self.registry.startable(spec.workflow), "transactional", False):
            check_transactional(self.store, f"action {spec.workflow}")
        operation = start_operation(
            self.system.ids.new(),
            spec,
            key=key,
            aliases=self.registry.names_of(spec.workflow)[1:],
            queue=queue,
            priority=priority,
            tags=tags,
            at=at,
            paused=paused,
            if_exists=if_exists,
        )
        if spec.source in ("class", "flow"):  # it may have been defined after the engine was opened
            await self.definitions.see_code(self.store)
        if operation.nodes and spec.graph is not None:  # decided on here at once: no need to read it back
            self.definitions.remember(definition_id("built", operation.run, 0), spec.graph)
        queues = {operation.queue}
        if spec.graph is not None:
            queues = {spec.graph.by_id[node].policy.queue or operation.queue for node in spec.graph.entries}
        for name in queues:
            self._unserved.expect(name, self._workers)
        if tx is not None:
            from holdfast.joining import start_in  # few hand over a transaction of their own

            return Handle(self, await start_in(tx, operation, self.store, self.coordinator), key)
        worker = self._worker_with_room(operation, queues)
        offer = worker.reserve() if worker is not None else None
        if worker is None or offer is None:
            started: Started = await self.coordinator.submit(operation)
            return Handle(self, started.run, key)
        try:
            started = await self.coordinator.submit(msgspec.structs.replace(operation, offer=offer))
        except BaseException:
            worker.accept(())
            raise
        worker.accept(started.handed)
        return Handle(self, started.run, key)

    def _worker_with_room(self, operation: StartRun, queues: set[str]) -> Worker | None:
        if not self.settings.hand_over or operation.paused or operation.due:
            return None
        return next(
            (worker for worker in self._workers if worker.free > 0 and not queues.isdisjoint(worker.queues)), None
        )

    @overload
    async def run(
        self,
        workflow: Dag | BuiltDag | BoundTemplate,
        /,
        *,
        timeout: float | None = ...,
        **options: Unpack[StartOptions],
    ) -> None: ...
    @overload
    async def run(
        self, workflow: DagTemplate[...], /, *args: Any, timeout: float | None = ..., **options: Unpack[StartOptions]
    ) -> None: ...
    @overload
    async def run(
        self,
        workflow: StateGraph[S],
        state: S | Mapping[str, Any],
        /,
        *,
        timeout: float | None = ...,
        **options: Unpack[StartOptions],
    ) -> S: ...
    @overload
    async def run(
        self, workflow: Bound[R], /, *, timeout: float | None = ..., **options: Unpack[StartOptions]
    ) -> R: ...
    @overload
    async def run(
        self,
        workflow: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        timeout: float | None = ...,
        **options: Unpack[StartOptions],
    ) -> R: ...
    @overload
    async def run(
        self, workflow: str, /, *args: Any, timeout: float | None = ..., **options: Unpack[StartOptions]
    ) -> Any: ...
    async def run(  # type: ignore[misc]  # mypy cannot match *Ts with *args
        self, workflow: Any, /, *args: Any, timeout: float | None = None, **options: Any
    ) -> Any:
        """Start and wait for the result."""
        handle: Handle[Any] = await self.start(workflow, *args, **options)
        return await handle.result(timeout)

    # -- events

    async def send(
        self,
        event: Event[R] | str,
        payload: R | None = None,
        *,
        to: str | Identified,
        id: str | None = None,
        tx: Any = None,
    ) -> Sent:
        """Send an event to one run: `Delivered`, `Queued`, `TargetEnded` or `TargetNotFound`.

        The same `id` applies once, however often it is sent. `tx` is a PostgreSQL connection in a transaction of the
        caller's: the event is sent if that commits.
        """
        operation = send_operation(
            event,
            payload,
            to=to,
            identity=self.system.ids.new() if id is None else id,
            registry=self.registry,
            codecs=self.codecs,
            limit=self.settings.payload_limit_bytes,
        )
        sent: Sent
        if tx is None:
            sent = await self.coordinator.submit(operation)
        else:
            from holdfast.joining import apply_in

            sent = await apply_in(tx, operation, self.store, self.coordinator)
        return sent

    async def broadcast(
        self, event: Event[R] | str, payload: R | None = None, *, to_all: bool = False, id: str | None = None
    ) -> Sent:
        """Send an event to whoever has waited for it longest, or to all who wait; kept until somebody does."""
        sent: Sent = await self.coordinator.submit(
            broadcast_operation(
                event,
                payload,
                to_all=to_all,
                identity=self.system.ids.new() if id is None else id,
                registry=self.registry,
                codecs=self.codecs,
                limit=self.settings.payload_limit_bytes,
            )
        )
        return sent

    # -- workers

    def worker(
        self, *, queues: tuple[str, ...] | list[str] = ("default",), concurrency: int = 100
    ) -> AbstractAsyncContextManager[Worker]:
        """Claim and run work in this process while the context lasts."""
        check_worker(queues, concurrency)
        return self._worker(tuple(queues), concurrency)

    @asynccontextmanager
    async def _worker(self, queues: tuple[str, ...], concurrency: int) -> AsyncIterator[Worker]:
        from holdfast.runtime.worker import Worker  # a third of everything, and who only starts runs needs none of it

        worker = Worker(
            store=self.store,
            coordinator=self.coordinator,
            definitions=self.definitions,
            settings=self.settings,
            clock=self.system.clock,
            ids=self.system.ids,
            randomness=self.system.randomness,
            metrics=self.metrics,
            levels=self._levels,
            codecs=self.codecs,
            queues=queues,
            concurrency=concurrency,
            within=self.system.within,
        )
        await worker.start()
        self._workers.append(worker)
        try:
            yield worker
        finally:
            await worker.stop()
            if worker in self._workers:
                self._workers.remove(worker)

    def expect_queue(self, queue: str) -> None:
        """Work was put on this queue: say so if nobody serves it."""
        self._unserved.expect(queue, self._workers)

    @property
    def local_workers(self) -> tuple[Worker, ...]:
        """The workers of this engine in this process."""
        return tuple(self._workers)

    async def settle(self, *, timeout: float | None = None) -> None:
        """Return when nothing is due and nothing is running. What waits for an event, a time or a person waits on."""
        from holdfast.settling import settle  # of use to tests and scripts

        await settle(self, timeout)

    async def run_worker(
        self,
        *,
        stop: asyncio.Event | None = None,
        queues: tuple[str, ...] | list[str] = ("default",),
        concurrency: int = 100,
        handle_signals: bool = False,
    ) -> None:
        """Run a worker until `stop` is set. With `handle_signals`, SIGTERM and Ctrl-C stop it: once politely,
        a second time at once."""
        stop = stop or asyncio.Event()
        async with self.worker(queues=queues, concurrency=concurrency) as worker:
            if handle_signals:
                self._install_signals(stop, worker)
            await stop.wait()

    def _install_signals(self, stop: asyncio.Event, worker: Worker) -> None:
        from holdfast.runtime.stop_requests import StopRequests  # of use to programs that are workers

        loop = asyncio.get_running_loop()
        requests = StopRequests(loop.time)

        def asked() -> None:
            if not requests.asked():
                return
            if stop.is_set():
                log.warning("asked twice: stopping at once; what is running will be given back")
                task = loop.create_task(worker.hurry())
                self._background.add(task)
            else:
                log.info("stopping: finishing what is running (ask again to stop at once)")
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, asked)

    # -- finding runs

    def get_active(self, run_id: str) -> Run | None:
        """A run that has not ended, as this process last saw it, without asking the store: for people and metrics.

        It may be stale by a batch, or by what another process wrote; None if this process does not remember it.
        """
        return self.coordinator.get_active(checked_text(run_id, "a run id"))

    def get(self, run_id: str) -> Handle[Any]:
        """A handle on a run by its id. Awaiting it checks that the run exists."""
        return Handle(self, checked_text(run_id, "a run id"))

    async def find(
        self,
        *,
        workflow: str | type[Any] | Registered | None = None,
        status: str | list[str] | tuple[str, ...] | None = None,
        tags: Mapping[str, str] | None = None,
        since: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Runs:
        """Runs that match, newest first; `after` is the cursor of the page before."""
        return await page_of(self.store, question(workflow, status, tags, since, limit), after, self.registry)

    async def find_executions(self, ancestry_hash: str) -> list[tuple[str, StepExecution]]:
        """The attempts that carry this hash, each with its run: one, and one more for every fork that shares it."""
        return await executions_by_ancestry(self, checked_text(ancestry_hash, "ancestry_hash"))
