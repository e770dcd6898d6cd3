"""What is known about a run at the moment of asking: committed rows, and the code of this process.

Nothing here is ever used for a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.authoring.registry import MAIN_MODULES
from holdfast.core.decider_operations import DECIDER, INPUT_EVENT
from holdfast.core.errors import HoldfastError
from holdfast.core.flow_graph import FlowGraph
from holdfast.core.function_operations import TURN, end_topic, event_topic
from holdfast.core.graph import Graph
from holdfast.core.queries import AllWork, Attempts, DeadEvents, EventsFor, Holds, OpenWork, QueuedEvents, WaitsOf
from holdfast.core.rows import (
    ACTION_ENOUGH,
    BLOCKED,
    CALL,
    CANCELLING,
    EFFECT,
    INBOX,
    LEASED,
    OPEN_WORK,
    PAUSED,
    PENDING,
    READY,
    RUNNING,
    SET_IN_PLACE,
    SUSPENDED,
    TIMER,
    Event,
    History,
    Hold,
    Run,
    Wait,
    Work,
)
from holdfast.explain.graph_standing import Standing, standing_of
from holdfast.models.dag_items import latest_of
from holdfast.models.machine import PAUSED_BY_ITSELF, facts_of
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.store.contract import Store, WorkerRow

# Stands in a command for what only a person can know.
MODULE: Final = "MODULE"
# A question about more nodes than this is answered faster by all work of the run.
MANY_PARENTS: Final = 500
WORKERS_COUNTED: Final = 50
BLOCKED_LOOKED_AT: Final = 5
# Of a run that very many events were sent to, their number must do.
EVENTS_LOOKED_AT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """One of the things that a run waits for: an event by its name, or the end of another run."""

    address: str
    name: str  # as the code has it
    since: int
    event: str = ""
    ended: str = ""

    @classmethod
    def of(cls, wait: Wait) -> Awaited:
        kind, what = ("event", event_topic("")) if wait.topic.startswith(event_topic("")) else ("ended", end_topic(""))
        found = {kind: wait.topic.removeprefix(what)}
        return cls(address=wait.address, name=wait.name, since=wait.since, **found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A run, the latest attempt of every node that matters, and who could go on with it."""

    run: Run
    now: int
    work: tuple[Work, ...]  # the latest attempts that are open or gave up, in the order of the graph
    parents: Mapping[str, Work]  # the latest attempts of the parents of those that are blocked
    workers: tuple[WorkerRow, ...]
    taken: Mapping[str, int]  # slots in use, by worker
    holds: tuple[Hold, ...]
    paused_at: int
    paused_by_itself: bool  # because it could not go on, and not because somebody asked for it
    graph: Graph | None
    flow: FlowGraph | None = None  # that a run of a flow follows
    definitions: RegistryDefinitions
    waits: tuple[Awaited, ...] = ()
    others: Mapping[str, Run]  # the runs that it waits for
    mailbox: tuple[str, ...] = ()  # names of events that were sent to it and that it has not taken
    refused: tuple[Event, ...] = ()  # events of its own that are dead letters
    last: History | None = None  # the latest line of a function's record
    standing: Standing | None = None  # of a state graph: its step, and what it asks people
    inbox_since: int | None = None  # when the oldest input in the inbox of a decider's instance was queued

    @property
    def status(self) -> str:
        """The run's status; a claim does not write the run's row, and it is running all the same."""
        is_running = self.run.status in (PENDING, SUSPENDED) and any(
            item.status == LEASED and item.kind != CALL for item in self.work
        )
        return RUNNING if is_running else self.run.status

    @property
    def is_function(self) -> bool:
        return self.run.model == "function"

    @property
    def is_graph(self) -> bool:
        """Whether the run follows a state graph, whose items are called NODE@STEP."""
        return self.standing is not None

    @property
    def is_instance(self) -> bool:
        """Whether the run is an instance of a decider."""
        return self.run.model == DECIDER

    def is_parked(self, item: Work) -> bool:
        """Whether the item is the turn of a function that waits: nobody can take it before something comes."""
        if item.kind != TURN or self.run.status not in (SUSPENDED, PAUSED, CANCELLING):
            return False
        return item.status == BLOCKED or (item.status == READY and item.due > self.now)

    @property
    def live(self) -> tuple[WorkerRow, ...]:
        return tuple(worker for worker in self.workers if worker.lease_until >= self.now)

    @property
    def title(self) -> str:
        if self.is_instance:
            return f"{self.run.workflow}/{self.run.key} (run {self.run.id})"
        return f"run {self.run.id} of {self.run.workflow}"

    def says(self, text: str) -> bool:
        """Whether the summary has this text already: that of a paused or failed run holds the run's own reason."""
        return (self.run.status == PAUSED or self.run.ended) and text in (self.run.reason or "")

    def name(self, node: str) -> str:
        """What people call the node, and commands too."""
        if self.is_function:
            return self.run.workflow if node == TURN else node
        known = None if self.graph is None else self.graph.by_id.get(node)
        return node if known is None else known.name

    def shown(self, item: Work) -> str:
        """The item for people, who know a call by its action, and an effect by its type, rather than by its address."""
        if item.kind == EFFECT:
            return f"effect {type_of(item)} ({item.node})"
        if item.kind == TIMER:
            key = item.node.removeprefix("timer/")
            return f"timer {type_of(item)} ({item.node})" if key.startswith("#") else f"timer {key}"
        if item.kind == INBOX:
            return "its inbox"
        return f"{item.name} ({item.node.rpartition('|')[2]})" if item.kind == CALL else self.name(item.node)

    def module_for(self, item: Work | None = None) -> str:
        """The module that a worker must import to run the item, as far as this process knows it."""
        registry = self.definitions.registry
        job = registry.actions.get(item.name) if item is not None and item.kind in ACTION_ENOUGH else None
        thing = job if job is not None else self.definitions.thing(self.run.workflow)
        if item is not None and item.kind in ACTION_ENOUGH and job is None:
            return MODULE  # what calls it may be known here, and the action itself not
        definition = getattr(thing, "__holdfast__", None)
        if definition is None:
            return MODULE
        place = definition.place
        return Path(place.file).stem if place.module in MAIN_MODULES else str(place.module)

    def app(self) -> tuple[str, ...]:
        """`--app MODULE` for a command that goes on at once if it has the code, where this process knows the module."""
        module = self.module_for()
        if self.is_graph:  # what follows is in its code, so that nothing goes on without it
            return ("--app", module)
        return () if self.run.definition is not None or module == MODULE else ("--app", module)


def type_of(item: Work) -> str:
    """The type of an effect, or of the input that a timer gives."""
    return item.name[len(item.workflow) + 1 :]


def executions(item: Work) -> int:
    """How often it was run in all (I3). An attempt has a number; a timer is one row, which counts its failures."""
    return max(1, item.failures) if item.kind in SET_IN_PLACE else item.attempt


def budget(definitions: RegistryDefinitions, workflow: str) -> str:
    """How often a replayed effect or timer of a decider may be run, for people; its code knows the number."""
    code = definitions.decider(workflow)
    if code is None:
        return "with a fresh budget of attempts"
    return "once" if code.retry.attempts == 1 else f"up to {code.retry.attempts} times"


async def look(store: Store, run: Run, definitions: RegistryDefinitions) -> Situation:
    """Read what explains the run. Of a large one only what is open is read, unless something has given up."""
    graph = await _graph(store, run, definitions)
    # Of an instance that has ended what is still open matters, and it may have had very many effects.
    whole = run.gave_up or (run.ended and run.model != DECIDER)
    question = AllWork(run.id) if whole else OpenWork(run.id)
    latest: dict[str, Work] = {item.node: item for item in await store.rows(question)}
    latest |= await _retried_and_blocked(store, run, latest.values())
    position = {} if graph is None else {node: place for place, node in enumerate(graph.topological_order)}
    work = tuple(sorted(latest.values(), key=lambda item: position.get(item.node, len(position))))
    if run.model == DECIDER:
        work = tuple(sorted(work, key=lambda item: (item.due, item.created, len(item.node), item.node)))
    over = run.ended and not any(item.status in OPEN_WORK for item in work)
    workers = () if over else tuple(await store.workers())
    waits = () if run.ended else tuple(Awaited.of(wait) for wait in await store.rows(WaitsOf(run.id)))
    pause = await _pause(store, run)
    return Situation(
        run=run,
        now=store.now(),
        work=work,
        parents=await _parents(store, run, graph, work),
        workers=workers,
        taken=await _taken(store, work, workers),
        holds=() if over else tuple(await store.rows(Holds())),
        paused_at=run.created if pause is None else pause.at,
        paused_by_itself=pause is not None and facts_of(pause)["by"] in PAUSED_BY_ITSELF,
        graph=graph,
        flow=await _flow_graph(store, run, definitions),
        definitions=definitions,
        waits=waits,
        others={other.id: other for other in await store.runs([wait.ended for wait in waits if wait.ended])},
        mailbox=await _mailbox(store, run),
        refused=await _refused(store, run),
        last=await _last(store, run),
        standing=await standing_of(store, run, definitions),
        inbox_since=await _inbox_since(store, run),
    )


async def _graph(store: Store, run: Run, definitions: RegistryDefinitions) -> Graph | None:
    try:
        return await definitions.load(store, run)
    except HoldfastError:  # damaged, or a class that does not compile: the rest can still be told
        return None


async def _flow_graph(store: Store, run: Run, definitions: RegistryDefinitions) -> FlowGraph | None:
    if run.model != "flow" or run.ended:
        return None
    try:
        return await definitions.flow_graph(store, run)
    except HoldfastError:  # of a newer version: the rest can still be told
        return None


async def _parents(store: Store, run: Run, graph: Graph | None, work: tuple[Work, ...]) -> dict[str, Work]:
    if graph is None or run.ended:
        return {}
    blocked = [item.node for item in work if item.status == BLOCKED and item.node in graph.by_id]
    wanted = frozenset(parent for node in blocked[:BLOCKED_LOOKED_AT] for parent in graph.by_id[node].depends_on)
    if not wanted:
        return {}
    rows = await store.rows(Attempts(run.id, wanted) if len(wanted) <= MANY_PARENTS else AllWork(run.id))
    return {item.node: item for item in rows}


async def _retried_and_blocked(store: Store, run: Run, latest: Iterable[Work]) -> dict[str, Work]:
    """Nodes that wait for their next attempt, with the counts of what a changed graph put before them."""
    retried = (item.node for item in latest if item.status == BLOCKED and item.attempt > 1)
    nodes = frozenset(retried if run.model == "dag" else ())
    attempts: dict[str, list[Work]] = {}
    for item in await store.rows(Attempts(run.id, nodes)) if nodes else ():
        attempts.setdefault(item.node, []).append(item)
    return {node: latest_of(run, rows) for node, rows in attempts.items()}


async def _taken(store: Store, work: tuple[Work, ...], workers: tuple[WorkerRow, ...]) -> dict[str, int]:
    waiting = {item.name: item for item in work if item.status == READY}.values()
    able = [worker for worker in workers if any(worker.knows(item) for item in waiting)]
    return {worker.id: len(await store.leased_to(worker.id)) for worker in able[:WORKERS_COUNTED]}


async def _pause(store: Store, run: Run) -> History | None:
    """The entry of the pause that lasts; None if the run is not paused, or was started so."""
    if run.status != PAUSED:
        return None
    entries = await store.history(run.id)
    return next((entry for entry in reversed(entries) if entry.kind == "paused"), None)


async def _mailbox(store: Store, run: Run) -> tuple[str, ...]:
    if run.ended or run.model == DECIDER or not 0 < run.mailbox <= EVENTS_LOOKED_AT:
        return ()
    return tuple(event.name for event in await store.rows(EventsFor(run.id)))


async def _refused(store: Store, run: Run) -> tuple[Event, ...]:
    if run.model != DECIDER and (run.ended or run.model != "function"):
        return ()
    return tuple(event for event in await store.rows(DeadEvents(EVENTS_LOOKED_AT)) if event.target == run.id)


async def _last(store: Store, run: Run) -> History | None:
    if run.ended or run.model != "function" or not run.entries:
        return None
    found = await store.history(run.id, run.entries - 1)
    return found[-1] if found else None


async def _inbox_since(store: Store, run: Run) -> int | None:
    if run.model != DECIDER or not run.mailbox:
        return None
    oldest: list[Event] = await store.rows(QueuedEvents(INPUT_EVENT, run.id, 1))
    return oldest[0].at if oldest else None
