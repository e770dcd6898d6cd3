"""The code of this process, as the kernel and the worker look it up by name."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.authoring.actions import Action
from holdfast.authoring.dags import Dag
from holdfast.authoring.registry import Registry
from holdfast.authoring.startable import graph_of_action
from holdfast.core.graph import Graph
from holdfast.models.dag import method_name


def known_exception(qualified: str) -> type[BaseException] | None:
    """An exception class by its qualified name, if its module is loaded: nothing is imported from stored data."""
    module, _, name = qualified.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


class RegistryDefinitions:
    """Graphs of registered workflows. A class DAG is read from code at each decision (I31)."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._of_actions: dict[tuple[str, Action[..., Any]], Graph] = {}
        self._known: tuple[int, tuple[str, ...], tuple[str, ...]] = (-1, (), ())

    def graph(self, workflow: str) -> Graph | None:
        found = self.thing(workflow)
        if isinstance(found, Action):
            graph = self._of_actions.get((workflow, found))
            if graph is None:
                graph = self._of_actions[(workflow, found)] = graph_of_action(found, workflow)
            return graph
        if isinstance(found, type) and issubclass(found, Dag):
            return found.compiled_dag()
        return None

    def thing(self, workflow: str) -> object | None:
        found: object | None = self.registry.workflows.get(workflow)
        return found if found is not None else self.registry.actions.get(workflow)

    def queues(self) -> set[str]:
        """Every queue that a definition of this process names."""
        policies = [action.policy for action in self.registry.actions.values()]
        for found in self.registry.workflows.values():
            if isinstance(found, type) and issubclass(found, Dag):
                policies += [node.policy for node in found.compiled_dag().nodes]
        return {policy.queue for policy in policies if policy.queue is not None}

    def known_workflows(self) -> tuple[str, ...]:
        return self._names()[1]

    def known_actions(self) -> tuple[str, ...]:
        """Actions, and the methods of class DAGs under the name that their work carries."""
        return self._names()[2]

    def _names(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        if self._known[0] != self.registry.version:
            workflows = tuple(sorted(self.registry.known_workflows()))
            self._known = (self.registry.version, workflows, self._runnable())
        return self._known

    def _runnable(self) -> tuple[str, ...]:
        names = set(self.registry.known_actions())
        for workflow, found in self.registry.workflows.items():
            if isinstance(found, type) and issubclass(found, Dag):
                names.update(method_name(workflow, node.id) for node in found.compiled_dag().nodes if node.job is None)
        return tuple(sorted(names))
