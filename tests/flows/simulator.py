"""An engine of dictionaries: runs a flow by its plans alone, from rows that are bytes.

Nothing survives between two completions but rows: the graph is read from its JSON each time, values from their bytes.
Work completes in random order; completions are repeated and come late. Whatever the plan's contract asks of a store is
done here in a few lines, and checked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.authoring.flows import Flow
from holdfast.core.codec_failure import ErrorRecord, decode_error, encode_error
from holdfast.core.flow_addresses import parse_address
from holdfast.core.flow_graph import FlowGraph
from holdfast.core.flow_values import decode_value, encode_value
from holdfast.models.flow_plan import (
    Completion,
    CompletionPlan,
    FlowCall,
    InstanceCompletion,
    analyse_subgraph,
    plan_completion,
    plan_start,
)

STEPS_LIMIT = 20_000


@dataclass(frozen=True)
class Row:
    """A node that was counted: its readiness, its call and its token."""

    category: str
    required: int
    completed: int
    call: FlowCall | None
    token: int
    status: str


@dataclass
class Rows:
    """All that is stored."""

    graph: bytes
    work: dict[str, Row] = field(default_factory=dict)
    inbox: dict[tuple[str, str, int | None], bytes] = field(default_factory=dict)
    end: InstanceCompletion | None = None
    logged: list[tuple[str, str, tuple[Any, ...]]] = field(default_factory=list)


class Stale(Exception):
    """The completed row is gone or has another token."""


class Overflow(Exception):
    """More predecessors than required."""


class Inbox:
    """Reads rows; checks that every read was announced by the analysis."""

    def __init__(self, flow: Flow[..., Any], rows: Rows, announced: set[tuple[str, str]]) -> None:
        self._flow = flow
        self._rows = rows
        self._announced = announced

    def read(self, target: str, variable: str, index: int | None) -> Any:
        assert (target, variable) in self._announced, f"{target} {variable} was not announced"
        return decode_value(self._rows.inbox[target, variable, index], self._flow.environment.known_types)

    def gathered(self, target: str, variable: str) -> list[Any]:
        found = sorted(
            (index or 0, value)
            for (node, name, index), value in self._rows.inbox.items()
            if node == target and name == variable
        )
        return [decode_value(value, self._flow.environment.known_types) for _, value in found]


class Simulation:
    """One run of a flow."""

    def __init__(self, flow: Flow[..., Any], seed: int = 0, *, max_passes: int = 100_000) -> None:
        self.flow = flow
        self.rows = Rows(flow.graph.to_json())
        self.most_rows = 0
        self.completions = 0
        self.addresses: list[str] = []
        self.plans: list[CompletionPlan] = []
        self._random = random.Random(seed)
        self._max_passes = max_passes
        self._tokens = 0
        self._old: list[Completion] = []

    @property
    def graph(self) -> FlowGraph:
        return FlowGraph.from_json(self.rows.graph)

    def start(self, *args: Any, **kwargs: Any) -> None:
        data = self.flow.call.encode_call(args, kwargs)
        given, named = self.flow.call.decode_call(data)
        names = [parameter.name for parameter in self.flow.graph.parameters]
        arguments = dict(zip(names, given, strict=False)) | named
        plan = plan_start(self.graph, arguments, self.flow.environment, max_passes=self._max_passes)
        self._apply(plan)

    def complete(self, completion: Completion) -> CompletionPlan:
        """Plan and apply one completion in one transaction: all or nothing."""
        row = self.rows.work.get(completion.node_id)
        if row is None or row.token != completion.delivery_token or row.status != "ready":
            raise Stale(completion.node_id)
        if self.rows.end is not None:
            raise Stale(completion.node_id)
        graph = self.graph
        analysis = analyse_subgraph(graph, completion.node_id)
        announced = {(read.target, read.variable) for read in analysis.inbox_reads}
        inbox = Inbox(self.flow, self.rows, announced)
        plan = plan_completion(graph, completion, inbox, self.flow.environment, max_passes=self._max_passes)
        reached = {parse_address(each.node_id).node for each in plan.readiness_increments}
        allowed = analysis.all_node_ids | {
            branch for node in analysis.inline_nodes for branch in graph.node(node).fork or ()
        }
        assert reached <= allowed, (reached, analysis)
        before = (dict(self.rows.work), dict(self.rows.inbox), self.rows.end)
        try:
            self._apply(plan)
        except Overflow:
            self.rows.work, self.rows.inbox, self.rows.end = before
            raise
        return plan

    def _apply(self, plan: CompletionPlan) -> None:
        rows = self.rows
        self.plans.append(plan)
        done = rows.work.get(plan.completed_node_id)
        if done is not None:
            rows.work[plan.completed_node_id] = replace(done, status="completed")
        for release in plan.released:
            rows.work = {a: row for a, row in rows.work.items() if not release.covers(parse_address(a))}
            rows.inbox = {k: value for k, value in rows.inbox.items() if not release.covers(parse_address(k[0]))}
        known = self.flow.environment.known_types
        for write in plan.inbox_writes:
            rows.inbox[write.target, write.variable, write.index] = encode_value(write.value, known, write.variable)
        for each in plan.readiness_increments:
            old = rows.work.get(each.node_id)
            if old is None:
                assert each.required_count is not None, each
                self._tokens += 1
                old = Row(each.category, each.required_count, 0, self._sent(each.call), self._tokens, "blocked")
            completed = old.completed + each.increment
            if completed > old.required:
                raise Overflow(each.node_id)
            status = "ready" if completed == old.required else old.status
            rows.work[each.node_id] = replace(old, completed=completed, status=status)
            if status == "ready":
                self.addresses.append(each.node_id)
        if plan.instance_completion is not None and rows.end is None:
            rows.end = plan.instance_completion
        rows.logged += [(line.logger, line.level, line.args) for line in plan.log_lines]
        self.most_rows = max(self.most_rows, len(rows.work) + len(rows.inbox))

    def _sent(self, call: FlowCall | None) -> FlowCall | None:
        """The call as bytes would bring it: nothing of the flow's objects reaches an action."""
        return call

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        """Start and complete until the end; the result, or the failure as an exception."""
        self.start(*args, **kwargs)
        while self.rows.end is None:
            ready = [address for address, row in self.rows.work.items() if row.status == "ready"]
            assert ready, f"stalled with {self.rows.work}"
            assert self.completions < STEPS_LIMIT
            address = self._random.choice(ready)
            completion = await self._perform(address, self.rows.work[address])
            self.completions += 1
            self.complete(completion)
            self._disturb(completion)
        end = self.rows.end
        if end.status == "failed":
            assert end.failure is not None
            raise Failed(end.failure)
        known = self.flow.environment.known_types
        return decode_value(encode_value(end.result, known), known)

    def _disturb(self, completion: Completion) -> None:
        """The same completion again, and an old one: both must be refused and change nothing."""
        self._old.append(completion)
        for stale in (completion, self._random.choice(self._old)):
            before = (dict(self.rows.work), dict(self.rows.inbox), self.rows.end)
            try:
                self.complete(stale)
            except Stale:
                pass
            else:
                raise AssertionError(f"{stale} was accepted twice")
            assert before == (self.rows.work, self.rows.inbox, self.rows.end)

    async def _perform(self, address: str, row: Row) -> Completion:
        if row.category == "barrier":
            return Completion(node_id=address, delivery_token=row.token)
        assert row.call is not None
        if row.category == "timer":
            await asyncio.sleep(0)
            return Completion(node_id=address, delivery_token=row.token)
        assert row.category in ("action", "child"), row
        target = self._callee(row.call.name or "")
        data = target.call.encode_call(row.call.args, dict(row.call.kwargs))
        args, kwargs = target.call.decode_call(data)
        try:
            result = await _plain(target.fn, args, kwargs)
            value = target.call.decode_result(target.call.encode_result(result))
        except Exception as error:
            return Completion(node_id=address, delivery_token=row.token, failure=decode_error(encode_error(error)))
        return Completion(node_id=address, delivery_token=row.token, value=value)

    def _callee(self, name: str) -> Any:
        from holdfast.authoring.registry import default_registry
        from tests.flows.actions import registry

        for home in (registry, default_registry):
            found = home.actions.get(name) or home.workflows.get(name)
            if found is not None:
                return found
        raise AssertionError(f"no action {name}")


class Failed(Exception):
    """The run failed with this record."""

    def __init__(self, record: ErrorRecord) -> None:
        super().__init__(f"{record.type}: {record.message}")
        self.record = record


async def _plain(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    made = function(*args, **kwargs)
    return await made if asyncio.iscoroutine(made) else made
