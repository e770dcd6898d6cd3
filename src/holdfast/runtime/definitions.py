"""The code of this process, as the kernel and the worker look it up by name."""

from __future__ import annotations

import os
import socket
from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from holdfast.authoring.actions import Action
from holdfast.authoring.dags import Dag
from holdfast.authoring.flows import Flow
from holdfast.authoring.functions import Workflow
from holdfast.authoring.projections import Projection
from holdfast.authoring.registry import Registry
from holdfast.authoring.startable import graph_of_action, is_decider, is_state_graph
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, Codecs
from holdfast.core.dag_document import frozen, graph_of_nodes, stored_nodes
from holdfast.core.errors import HoldfastError, MissingJob
from holdfast.core.graph import Graph
from holdfast.core.queries import DefinitionById
from holdfast.core.rows import DEFINITIONS, Definition, Run, Work
from holdfast.core.view import View
from holdfast.models.dag_items import method_name, node_name, version_name
from holdfast.models.dag_shape import followed
from holdfast.models.flow_code import FlowCode, FlowNotLoaded
from holdfast.models.folding import Folding
from holdfast.store.contract import CodeSeen, CodeVersion, Store, WorkerRow

if TYPE_CHECKING:
    from holdfast.authoring.decider_code import BoundDecider
    from holdfast.authoring.deciders import Decider
    from holdfast.authoring.flow_code import BoundFlow
    from holdfast.authoring.state_code import BoundGraph
    from holdfast.core.flow_graph import FlowGraph
    from holdfast.models.state_memory import StateMemory


CACHED_NODES = 400_000  # of stored graphs, all together


class RegistryDefinitions:
    """The graphs that runs follow: stored ones, and those of the code that is registered here.

    A class DAG is read from code at each decision (I31). A stored graph never changes under its id, so that one
    which was read once is remembered until others need the room.
    """

    def __init__(
        self, registry: Registry, codecs: Codecs = DEFAULT_CODECS, payload_limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        self.registry = registry
        self._codecs = codecs
        self._payload_limit_bytes = payload_limit_bytes
        self._flows: dict[tuple[str, str], Any] = {}  # of BoundFlow or UnreadableFlow
        self._state_graphs: dict[str, BoundGraph] = {}
        self._states: StateMemory | None = None
        self._deciders: dict[type[Decider[Any, Any, Any, Any]], BoundDecider] = {}
        self.folding = Folding()
        self._projections: tuple[int, dict[str, Projection[Any]]] = (-1, {})
        self._seen: CodeSeen = {}
        self._of_code: dict[str, Graph] = {}
        self._of_code_version = -1  # of the registry, when these were read
        self._versions_seen = -1  # of the registry, when everything in it was seen
        self._stored: OrderedDict[str, Graph] = OrderedDict()
        self._stored_nodes = 0
        self._known: tuple[int, tuple[str, ...], tuple[str, ...]] = (-1, (), ())

    @property
    def codecs(self) -> Codecs:
        """How payloads are read here."""
        return self._codecs

    def graph(self, view: View, run: Run) -> Graph | None:
        if run.definition is None:
            return self.of_code(run.workflow)
        graph = self.remembered(run.definition)
        if graph is None:
            stored = view.get(DEFINITIONS, (run.definition,))
            graph = None if stored is None else self.parsed(stored)
        return graph

    def of_code(self, workflow: str) -> Graph | None:
        """The graph that the code of this process has for a workflow. Asked for several times with every step."""
        if self._of_code_version != self.registry.version:
            self._of_code.clear()
            self._of_code_version = self.registry.version
        graph = self._of_code.get(workflow)
        if graph is None:
            found = self.thing(workflow)
            if isinstance(found, Action):
                graph = self._of_code[workflow] = graph_of_action(found, workflow)
            elif isinstance(found, type) and issubclass(found, Dag):
                graph = self._of_code[workflow] = found.compiled_dag()
        return graph

    def parsed(self, definition: Definition) -> Graph:
        graph = self.remembered(definition.id)
        if graph is None:
            graph = graph_of_nodes(definition.nodes)
            self.remember(definition.id, graph)
        return graph

    def remembered(self, definition: str) -> Graph | None:
        graph = self._stored.get(definition)
        if graph is not None:
            self._stored.move_to_end(definition)
        return graph

    def remember(self, definition: str, graph: Graph) -> None:
        """Keep a graph that was built or read here; the least used ones make room."""
        if definition not in self._stored:
            self._stored_nodes += len(graph.nodes)
        self._stored[definition] = graph
        while self._stored_nodes > CACHED_NODES and len(self._stored) > 1:
            _, oldest = self._stored.popitem(last=False)
            self._stored_nodes -= len(oldest.nodes)

    def at_hand(self, run: Run) -> Graph | None:
        """The graph of a run, if it need not be read from the store."""
        return self.of_code(run.workflow) if run.definition is None else self.remembered(run.definition)

    async def load(self, store: Store, run: Run) -> Graph | None:
        """The graph of a run, read from the store if need be; not inside a decision.

        Of a run whose code is not here: the graph that it followed last, as its code had it then (I31); if somebody
        without the code has settled something of it since, the one that it will follow, which is the latest. Of a run
        that has ended: the graph that it followed, whatever its class has become since.
        """
        if run.definition is None:
            graph = self.of_code(run.workflow)
            signature = followed(run) if run.ended else run.signature
            if graph is None or (run.ended and signature not in (None, graph.signature)):
                graph = await self._as_it_was(store, run, signature) or graph
            return graph
        graph = self.remembered(run.definition)
        if graph is None:
            for stored in await store.rows(DefinitionById(run.definition)):
                graph = self.parsed(stored)
        return graph

    async def _as_it_was(self, store: Store, run: Run, signature: str | None) -> Graph | None:
        if run.model != "dag":
            return None
        version = None if signature is None else f"{run.workflow}@{signature}"
        graph = None if version is None else self.remembered(version)
        if graph is None:
            nodes = await store.code_nodes(run.workflow, signature)
            if nodes is not None:
                graph = graph_of_nodes(nodes)
                if version is not None:
                    self.remember(version, graph)
        return graph

    def versions(self) -> list[CodeVersion]:
        """Every class DAG that is known here, with the signature of its graph."""
        return [
            (workflow, found.compiled_dag().signature)
            for workflow, found in self.registry.workflows.items()
            if isinstance(found, type) and issubclass(found, Dag)
        ]

    def has_news(self) -> bool:
        """Whether something was defined here that the store has not been told of."""
        return self._versions_seen != self.registry.version

    async def see_code(self, store: Store, *, serve: bool = False) -> None:
        """Tell the store which code is deployed here, whether to serve it, and learn since when it is."""
        registered = self.registry.version
        if not self.has_news() and not serve:
            return  # every start comes by here
        versions = [*self.versions(), *self._flow_versions()]
        if any(version not in self._seen or (serve and not self._seen[version].served) for version in versions):
            self._seen |= await store.see_code(self._graphs(versions), serve=serve)
        self._versions_seen = registered

    async def see_code_again(self, store: Store) -> None:
        """A deploy was rolled back: what is served here is the latest again, where nobody alive serves the latest."""
        now, versions = store.now(), self.versions()
        # First the code, then the workers: one enrolls before it serves, so whoever serves the latest is seen here.
        self._seen |= await store.see_code(self._graphs(versions))
        alive = {name for worker in await store.workers() if worker.lease_until >= now for name in worker.actions}
        again = []
        for workflow, signature in versions:
            seen = {other: when for (name, other), when in self._seen.items() if name == workflow}
            latest = max(seen, key=lambda other: seen[other].at)
            # One that nobody has served yet is on its way: those who start runs were deployed first.
            if latest != signature and seen[latest].served and version_name(workflow, latest) not in alive:
                again.append((workflow, signature))
        if again:
            self._seen |= await store.see_code(self._graphs(again), serve=True, again=True)

    def _flow_versions(self) -> list[CodeVersion]:
        """Every flow that is known here, with the signature of its graph: it is stored before a run follows it."""
        return [
            (workflow, found.graph.signature)
            for workflow, found in self.registry.workflows.items()
            if isinstance(found, Flow)
        ]

    def _graphs(self, versions: list[CodeVersion]) -> dict[CodeVersion, bytes]:
        """The versions with their graphs, as they are stored."""
        graphs = {}
        for workflow, signature in versions:
            found: object = self.registry.workflows.get(workflow)
            if isinstance(found, Flow):
                graphs[(workflow, signature)] = found.graph.to_json()
                continue
            graph = self.of_code(workflow)
            if graph is not None:
                graphs[(workflow, signature)] = stored_nodes(frozen(graph))
        return graphs

    def versions_seen(self) -> tuple[tuple[str, str, int], ...]:
        return tuple((*version, self._seen[version].at) for version in self.versions() if version in self._seen)

    def seen(self, run: Run, graph: Graph) -> int:
        seen = self._seen.get((run.workflow, graph.signature))
        return 0 if seen is None else seen.at

    def decider(self, workflow: str) -> BoundDecider | None:
        """The decider of this name, if its code is here."""
        found: object = self.registry.workflows.get(workflow)
        if not is_decider(found):
            return None
        code = self._deciders.get(found)
        if code is None:
            from holdfast.authoring.decider_code import bound_decider  # for those who have deciders

            code = self._deciders[found] = bound_decider(found, self._codecs, self._payload_limit_bytes)
        return code

    def projections(self) -> dict[str, Projection[Any]]:
        """The projections of this process, by each workflow name that their runs may be stored under."""
        if self._projections[0] != self.registry.version:
            found = {name: made for name, made in self.registry.workflows.items() if isinstance(made, Projection)}
            self._projections = (self.registry.version, found)
        return self._projections[1]

    def flow(self, workflow: str, signature: str) -> FlowCode | None:
        """This version of a flow, if its code is here; FlowNotLoaded if the graph has to be read first (I24)."""
        found: object = self.registry.workflows.get(workflow)
        if not isinstance(found, Flow):
            return None
        bound = self._flows.get((workflow, signature))
        if bound is None or bound.flow is not found:
            if found.graph.signature != signature:
                raise FlowNotLoaded(workflow, signature)
            bound = self._bind(found, workflow, found.graph)
        code: FlowCode = bound
        return code

    @property
    def states(self) -> StateMemory:
        """What state graphs have become, remembered: for those who merge their steps and those who run their nodes."""
        if self._states is None:
            from holdfast.models.state_memory import StateMemory

            self._states = StateMemory()
        return self._states

    def state_graph(self, workflow: str) -> BoundGraph | None:
        """The state graph of this name, if its code is here; GraphError if something is wrong with it."""
        found: object = self.registry.workflows.get(workflow)
        bound = self._state_graphs.get(workflow)
        if bound is not None and bound.graph is found:
            return bound
        if not is_state_graph(found):
            return None
        from holdfast.authoring.state_code import BoundGraph  # for those who have graphs

        bound = BoundGraph(
            found, codecs=self._codecs, limit=self._payload_limit_bytes, registry=self.registry, name=workflow
        )
        self._state_graphs[workflow] = bound
        return bound

    def _bind(self, flow: Flow[..., Any], workflow: str, graph: FlowGraph) -> BoundFlow:
        from holdfast.authoring.flow_code import BoundFlow  # with an interpreter, for those who have flows

        bound = BoundFlow(flow, graph, registry=self.registry, codecs=self._codecs, limit=self._payload_limit_bytes)
        self._flows[(workflow, graph.signature)] = bound
        return bound

    async def load_flow(self, store: Store, workflow: str, signature: str) -> None:
        """Read an older version of a flow that a run follows."""
        found: object = self.registry.workflows.get(workflow)
        nodes = await store.code_nodes(workflow, signature)
        if not isinstance(found, Flow):
            raise MissingJob(
                f"flow {workflow} is not registered here",
                hint="start a worker with the code that the run was started with, or cancel the run",
            )
        from holdfast.authoring.flow_code import UnreadableFlow
        from holdfast.core.flow_graph import FlowGraph

        try:
            if nodes is None:
                raise MissingJob(f"its version {signature[:12]} is not stored")
            self._bind(found, workflow, FlowGraph.from_json(nodes))
        except HoldfastError as error:  # of a later version of holdfast, say: others may have it (I8)
            self._flows[(workflow, signature)] = UnreadableFlow(found, error.message)

    async def flow_graph(self, store: Store, run: Run) -> FlowGraph | None:
        """The graph that a run of a flow follows, for people: it is stored, so the code need not be here."""
        found: object = self.registry.workflows.get(run.workflow)
        if isinstance(found, Flow) and found.graph.signature == run.signature:
            return found.graph
        nodes = None if run.signature is None else await store.code_nodes(run.workflow, run.signature)
        from holdfast.core.flow_graph import FlowGraph

        return None if nodes is None else FlowGraph.from_json(nodes)

    def command_retentions(self) -> list[tuple[str, int, int | None]]:
        """For how many microseconds the command ids of which decider are kept, and how many inputs its window needs."""
        found: list[tuple[str, int, int | None]] = []
        for workflow, thing in self.registry.workflows.items():
            if is_decider(thing):
                options = thing.__decider__.options
                kept_us, window = options.command_retention_us, None if options.dedup is None else options.dedup.window
                if window is None or window.seconds is None:
                    found.append((workflow, kept_us, None if window is None else window.last))
                else:  # what is older than the window is not needed, however few inputs came after it
                    found.append((workflow, max(kept_us, int(window.seconds * 1_000_000)), None))
        return found

    def can_run(self, work: Work) -> bool:
        runnable = self._names()[2]  # in order; a set of them would take half a megabyte for a class of 5,000 steps
        place = bisect_left(runnable, work.name)
        return place < len(runnable) and runnable[place] == work.name

    def thing(self, workflow: str) -> object | None:
        found: object | None = self.registry.workflows.get(workflow)
        return found if found is not None else self.registry.actions.get(workflow)

    def queues(self) -> set[str]:
        """Every queue that a definition of this process names."""
        named = [action.policy.queue for action in self.registry.actions.values()]
        for found in self.registry.workflows.values():
            if isinstance(found, Workflow | Flow | Projection):
                named.append(found.queue)
            elif is_state_graph(found):
                named += [found.queue, *(node.queue for node in found.nodes.values())]
            elif is_decider(found):
                named.append(found.__decider__.options.queue)
            elif isinstance(found, type) and issubclass(found, Dag):
                named += [node.policy.queue for node in found.compiled_dag().nodes]
        return {queue for queue in named if queue is not None}

    def known_workflows(self) -> tuple[str, ...]:
        return self._names()[1]

    def known_actions(self) -> tuple[str, ...]:
        """Actions, and the nodes and methods of class DAGs under the names that their work carries."""
        return self._names()[2]

    def worker_row(self, worker: str, queues: tuple[str, ...], concurrency: int) -> WorkerRow:
        """What a worker with these definitions tells others of itself."""
        return WorkerRow(
            id=worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=queues,
            workflows=self.known_workflows(),
            actions=(*self.known_actions(), *self.projections()),
            concurrency=concurrency,
        )

    def _names(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        if self._known[0] != self.registry.version:
            workflows = tuple(sorted(self.registry.known_workflows()))
            self._known = (self.registry.version, workflows, self._runnable())
        return self._known

    def _runnable(self) -> tuple[str, ...]:
        names = set(self.registry.known_actions())
        for workflow, found in self.registry.workflows.items():
            if isinstance(found, Workflow | Flow):
                names.add(workflow)
            if isinstance(found, Flow):
                names.add(version_name(workflow, found.graph.signature))
            if is_state_graph(found):
                names.add(workflow)
                names.update(f"{workflow}.{node}" for node in found.nodes)
            if is_decider(found):
                types = found.__decider__.types
                names.add(workflow)  # its inbox
                names.update(f"{workflow}.{effect}" for effect in types.effects.by_name)
                names.update(f"{workflow}:{given}" for given in types.inputs.by_name)  # its timers
            if isinstance(found, type) and issubclass(found, Dag):
                nodes = found.compiled_dag().nodes
                names.update(node_name(workflow, node.id) for node in nodes)
                names.add(version_name(workflow, found.compiled_dag().signature))
                names.update(method_name(workflow, method) for method in found.__dag__.methods)
        return tuple(sorted(names))
