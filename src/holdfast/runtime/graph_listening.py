"""Who listens to state graphs: nobody, and at no cost, in a process that has none."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.authoring.startable import is_state_graph
from holdfast.coordinator import Commit
from holdfast.core.operations import Handed
from holdfast.runtime import telemetry as t
from holdfast.runtime.definitions import RegistryDefinitions

if TYPE_CHECKING:
    from holdfast.emitters import Emitter
    from holdfast.runtime.graph_events import GraphEvents

log = logging.getLogger("holdfast.graphs")


class GraphListening:
    """Passes commits and claims on, from the first state graph on that is registered."""

    def __init__(
        self, definitions: RegistryDefinitions, metrics: t.Metrics, emitter: Emitter | Sequence[Emitter] | None
    ) -> None:
        self._definitions = definitions
        self._metrics = metrics
        self._for_all: tuple[Emitter, ...] = ()
        if emitter is not None:
            from holdfast.emitters import checked_emitters

            self._for_all = checked_emitters(emitter, "emitter= of Engine")
        self._events: GraphEvents | None = None
        self._version = -1  # of the registry, when this was looked at

    def on_commit(self, commit: Commit) -> None:
        if (events := self._listening()) is not None:
            events.on_commit(commit)

    def on_claim(self, handed: Sequence[Handed]) -> None:
        try:
            if (events := self._listening()) is not None:
                events.on_claim(handed)
        except Exception:  # the work is leased, and must be run
            log.exception("the start of %d items could not be told", len(handed))

    def _listening(self) -> GraphEvents | None:
        registry = self._definitions.registry
        if self._version != registry.version:
            self._version = registry.version
            graphs = {name: found for name, found in registry.workflows.items() if is_state_graph(found)}
            if graphs and self._events is None:
                from holdfast.runtime.graph_events import GraphEvents  # for those who have graphs

                self._events = GraphEvents(self._definitions, self._metrics, self._for_all)
            if self._events is not None:
                self._events.know(graphs)
        return self._events
