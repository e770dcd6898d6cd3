"""The walk from a completed node to the frontier: computes inline nodes, follows edges, notes what was assigned.

It is the scope of the expressions on its way. Everything it finds out is in the plan that it ends with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.core.errors import FlowNotSupported, MissingJob, NoProgress, RunError
from holdfast.core.flow_addresses import FlowAddress, address_text
from holdfast.core.flow_expressions import Environment, FlowRaised, PartlyChanged, evaluate
from holdfast.core.flow_graph import CHUNK, FRONTIER_KINDS, FlowGraph, FlowNode, OrderEdge, expression_of
from holdfast.core.flow_patterns import bind_pattern
from holdfast.core.flow_values import UNBOUND, Raised, raised, raised_group, with_record
from holdfast.models import flow_tree
from holdfast.models.flow_steps import (
    LENGTH,
    CompletionPlan,
    FlowCall,
    InboxReader,
    InboxWrite,
    InstanceCompletion,
    LogLine,
    ReadinessIncrement,
    Release,
)

__all__ = ["NO_INBOX", "Walk"]


class _NoInbox:
    """Of a run that begins: nothing was stored yet."""

    def read(self, target: str, variable: str, index: int | None) -> Any:
        raise KeyError(variable)

    def gathered(self, target: str, variable: str) -> list[Any]:
        raise KeyError(variable)


NO_INBOX: Final = _NoInbox()


class _Fresh(msgspec.Struct, frozen=True, gc=False):
    """A value assigned in this walk: by which node, in which pass."""

    value: Any
    source: FlowNode
    passes: tuple[int, ...]


class _Outside(BaseException):
    """An error of the inbox on its way out, past everything that catches exceptions of the workflow."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Walk(msgspec.Struct):
    """One walk from a completed node to the frontier. Is the scope of the expressions on its way."""

    _graph: FlowGraph
    _completed: str
    _start: FlowAddress  # the parts of that
    _origin: FlowNode  # and its node
    _inbox: InboxReader
    environment: Environment
    _max_passes: int
    _at: FlowNode  # at first the origin
    _passes: tuple[int, ...]
    _refused: Mapping[str, Exception] = {}  # what is raised instead of the arrival at an address
    _inline_passes: int = 0
    _fresh: dict[str, _Fresh] = {}
    _stored: dict[tuple[str, int | None], Any] = {}
    _arrivals: list[ReadinessIncrement] = []
    _stopped_at: FlowNode | None = None
    _end: InstanceCompletion | None = None
    _log: list[LogLine] = []

    # --- the scope of expressions

    def get(self, name: str) -> Any:
        fresh = self._fresh.get(name)  # this completion's own values come before stored ones (I19)
        value = self._read(name, None) if fresh is None else fresh.value
        if value is UNBOUND:
            shown = name.rpartition("/")[2]  # a variable of an inlined flow has the flow's name in front
            raise UnboundLocalError(f"cannot access local variable {shown!r} where it is not associated with a value")
        return value

    def element(self, name: str) -> Any:
        index = self._passes[-1]
        fresh = self._fresh.get(name)
        return fresh.value[index] if fresh is not None else self._read(name, index // CHUNK)[index % CHUNK]

    def has_element(self, name: str) -> bool:
        fresh = self._fresh.get(name)
        length: int = len(fresh.value) if fresh is not None else self._read(name, LENGTH)
        return self._passes[-1] < length

    def log(self, logger: str, level: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._log.append(LogLine(logger, level, tuple(args), kwargs, self._at.line))

    def _read(self, name: str, index: int | None) -> Any:
        key = (name, index)
        if key not in self._stored:
            self._stored[key] = self._look_up(name, index)
        return self._stored[key]

    def _look_up(self, name: str, index: int | None) -> Any:
        depth = self._graph.inbox_of(self._start.node).get(name)
        if depth is not None:
            target = address_text(self._start.node, self._start.passes[:depth])
            try:
                return self._inbox.read(target, name, index)
            except KeyError:
                pass
            except Exception as trouble:
                raise _Outside(trouble) from None
        if name in self._graph.maybe_unbound:
            return UNBOUND
        raise RunError(
            f"flow {self._graph.name} needs {name!r} at line {self._at.line}, and the inbox of {self._start} has none",
            hint="a row is missing: compare the run's rows with `holdfast explain RUN`",
        )

    # --- moving

    def assign(self, source: FlowNode, name: str, value: Any) -> None:
        """Note a value under the node that made it."""
        self._fresh[name] = _Fresh(value, source, self._passes)

    def bind(self, node: FlowNode, value: Any) -> None:
        """Assign a node's value to its target; a pattern that does not fit raises at that node."""
        if node.target is None:
            return
        if isinstance(node.target, str):
            self.assign(node, node.target, value)
            return
        names: dict[str, Any] = {}
        try:
            bind_pattern(node.target, value, names)
        except Exception:
            self._keep(node, names)
            raise
        for name, item in names.items():
            self.assign(node, name, item)

    def _keep(self, node: FlowNode, names: dict[str, Any]) -> None:
        """Assign what a failing node has assigned, if it has edges for that: graphs of before have none."""
        for name, item in names.items():
            if name in node.keeps:
                self.assign(node, name, item)

    def go_on(self, node: FlowNode, failure: Raised | None = None) -> None:
        """Go on after this node, or after its failure at the nearest handler, until the walk stops."""
        try:
            if failure is None:
                self._go(self._edge(node, ""))
            else:
                self._to_handler(node, failure)
            while self._stopped_at is None and self._end is None:
                self._step()
        except _Outside as trouble:
            raise trouble.error from None

    def _edge(self, node: FlowNode, when: str) -> OrderEdge:
        for edge in self._graph.leaving(node.id):
            if edge.when == when:
                return edge
        raise NoProgress(
            f"flow {self._graph.name} can't leave node {node.id} of line {node.line}: no edge {when or 'onward'!r}",
            hint="the stored graph is incomplete: compile the flow again and start a new run",
        )

    def _go(self, edge: OrderEdge) -> None:
        target = self._graph.by_id[edge.target]
        if edge.back is not None:
            level = target.loops.index(edge.back)
            self._passes = (*self._passes[:level], self._passes[level] + 1)
            self._count_pass(target)
        self._enter(target)

    def _enter(self, target: FlowNode) -> None:
        """Keep the passes of loops that both nodes are in; a loop that is entered begins with pass 0."""
        if self._at.loops != target.loops or len(self._passes) != len(target.loops):
            shared = 0
            for one, other in zip(self._at.loops, target.loops, strict=False):
                if one != other:
                    break
                shared += 1
            kept = self._passes[:shared]
            self._passes = kept + (0,) * (len(target.loops) - len(kept))
        self._at = target

    def _count_pass(self, target: FlowNode) -> None:
        self._inline_passes += 1
        if self._inline_passes > self._max_passes:
            raise NoProgress(
                f"the loop at line {target.line} of flow {self._graph.name} ran {self._max_passes:,} passes without an "
                "action",
                hint="let an action do the computing, or await one in the loop",
            )

    def _step(self) -> None:
        node = self._at
        try:
            self._reach(node)
        except FlowRaised as error:
            self._to_handler(node, error.failure)
        except PartlyChanged as change:
            self._keep(node, {node.assigns[0]: change.value})
            self._to_handler(node, raised(change.error, self._place(node)))
        except MissingJob as error:  # of this process, whose code is not that of the run: another may go on
            raise _Outside(error) from None
        except (FlowNotSupported, RunError) as error:
            # Not an exception of the workflow: plain Python would not have raised it, so no handler may see it.
            failure = raised(error, self._place(node)).record
            self._end = InstanceCompletion("failed", address_text(node.id, self._passes), failure=failure)
        except Exception as error:
            self._to_handler(node, raised(error, self._place(node)))

    def _reach(self, node: FlowNode) -> None:
        if node.fork is not None:
            self._start_branches(node, node.fork)
            return
        if node.kind in FRONTIER_KINDS:
            self._arrive(node)
            return
        value = evaluate(expression_of(node), self)
        if node.kind == "conditional":
            self._go(self._edge(node, "then" if value else "else"))
            return
        self.bind(node, value)
        self._go(self._edge(node, ""))

    def _to_handler(self, node: FlowNode, failure: Raised) -> None:
        if not failure.record.traceback:
            failure = with_record(failure, traceback=self._place(node))
        if node.on_error is None:
            self._end = InstanceCompletion("failed", address_text(node.id, self._passes), failure=failure.record)
            return
        handler = self._graph.node(node.on_error)
        self._enter(handler)
        if handler.catches is not None:
            self.assign(handler, handler.catches, failure)

    def _place(self, node: FlowNode) -> str:
        return f"  flow {self._graph.name}, line {node.line}\n"

    # --- arriving

    def _arrive(self, node: FlowNode) -> None:
        address = address_text(node.id, self._passes)
        value = evaluate(expression_of(node), self)
        if address in self._refused:
            raise self._refused[address]
        if node.kind == "output":
            self._end = InstanceCompletion("completed", address, result=value)
            call = None
        else:
            args, kwargs = value
            call = FlowCall(node.call, args, kwargs, node.options)
        self._arrivals.append(ReadinessIncrement(address, node.category or "action", node.required, 1, call))
        self._stopped_at = node

    def _start_branches(self, fork: FlowNode, branches: tuple[str, ...]) -> None:
        """All arguments first, then all branches: an argument that raises starts none."""
        started: list[ReadinessIncrement] = []
        if fork.expression is not None:
            calls, shape = flow_tree.planted(self._tree(fork), len(branches))
            self.assign(fork, fork.target, shape)
            for position, index, arguments in calls:
                started.append(self._started(self._graph.node(branches[position]), index, arguments))
        else:
            for branch in map(self._graph.node, branches):
                value = evaluate(expression_of(branch), self)
                if branch.spread:
                    started += [self._started(branch, index, each) for index, each in enumerate(value)]
                else:
                    started.append(self._started(branch, None, value))
        barrier = self._graph.node(self._edge(fork, "gather").target)
        gathering = address_text(barrier.id, self._passes)
        # The count is written with the elements; with none of them the barrier is full at once (I20).
        self._arrivals = [*started, ReadinessIncrement(gathering, "barrier", len(started), 0)]
        self._stopped_at = barrier

    def _started(self, branch: FlowNode, index: int | None, arguments: Any) -> ReadinessIncrement:
        args, kwargs = arguments
        address = address_text(branch.id, self._passes, index)
        if address in self._refused:
            raise self._refused[address]
        call = FlowCall(branch.call, args, kwargs, branch.options)
        return ReadinessIncrement(address, branch.category or "action", 1, 1, call)

    def _tree(self, fork: FlowNode) -> Any:
        """The calls of nested branches. What their arguments raise inside of a task group is raised as a group."""
        if not flow_tree.is_task_group(fork.expression):
            return evaluate(expression_of(fork), self)
        try:
            return evaluate(expression_of(fork), self)
        except (FlowNotSupported, RunError):
            raise
        except FlowRaised as error:
            failure = error.failure
        except Exception as error:
            failure = raised(error, self._place(fork))
        raise FlowRaised(raised_group(flow_tree.TASK_GROUP_MESSAGE, [failure]))

    def gathered(self, barrier: FlowNode) -> Any:
        """The list that a barrier stands for, or the failure with the lowest index."""
        values: list[Any] = []
        outcomes = [self._inbox.gathered(self._completed, branch) for branch in barrier.branches]
        if barrier.shape is not None:
            try:
                return flow_tree.harvested(self._read(barrier.shape, None), outcomes)
            except _Outside as trouble:
                raise trouble.error from None
        for each in outcomes:
            values += each
        if not barrier.return_exceptions:
            for value in values:
                if isinstance(value, Raised):
                    return value
        return values

    # --- the plan

    def plan(self, token: Any, success: bool, result: Any) -> CompletionPlan:
        """What the walk came to."""
        ended = self._end is not None
        return CompletionPlan(
            completed_node_id=self._completed,
            delivery_token=token,
            success=success,
            result=result,
            inbox_writes=() if ended else tuple(self._writes()),
            readiness_increments=tuple(self._arrivals),
            instance_completion=self._end,
            released=() if ended or not self._start.passes else self._released(),
            log_lines=tuple(self._log),
        )

    def _writes(self) -> list[InboxWrite]:
        stopped = self._stopped_at
        writes: list[InboxWrite] = []
        if stopped is None:
            return writes
        for name, fresh in self._fresh.items():
            for edge in self._graph.written_by(fresh.source.id, name):
                prefix = fresh.passes[: edge.depth]
                # A pass that the walk has left behind needs nothing any more.
                if (
                    fresh.source.loops[: edge.depth] != stopped.loops[: edge.depth]
                    or prefix != self._passes[: edge.depth]
                ):
                    continue
                target = address_text(edge.target, prefix)
                if name not in self._graph.sequences:
                    writes.append(InboxWrite(target, name, fresh.value, self._completed))
                    continue
                writes.append(InboxWrite(target, name, len(fresh.value), self._completed, LENGTH))
                for first in range(0, len(fresh.value), CHUNK):
                    chunk = fresh.value[first : first + CHUNK]
                    writes.append(InboxWrite(target, name, chunk, self._completed, first // CHUNK))
        return writes

    def _released(self) -> tuple[Release, ...]:
        """Rows of the outermost loop that was left, or of its pass that is over."""
        stopped = self._stopped_at
        if stopped is None:
            return ()
        for level, loop in enumerate(self._origin.loops):
            same_loop = level < len(stopped.loops) and stopped.loops[level] == loop
            if not same_loop:
                return (Release(self._graph.loop_nodes(loop), self._start.passes[:level]),)
            if self._passes[level] != self._start.passes[level]:
                return (Release(self._graph.loop_nodes(loop), self._start.passes[: level + 1]),)
        return ()
