"""Replay of a state graph's run: every node runs again on what was recorded, and nothing outside is touched (I45).

Three modes. `strict` raises `ReplayMismatch` at the first thing that differs, with both sides. `lenient` goes on with
what was recorded and reports all of them. `live` makes the recorded calls again, goes on with what was recorded, and
reports where the world answers differently now. Nothing is written in any of them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from holdfast.authoring.context import Context, NodeInfo, entered
from holdfast.authoring.flow_control import FlowControl
from holdfast.authoring.node_context import NodeContext
from holdfast.core.codec import UNTYPED, decode_error
from holdfast.core.codec_call import returned_type
from holdfast.core.errors import HoldfastError, ReplayMismatch, UsageError
from holdfast.core.ids import idempotency_key
from holdfast.core.queries import AllWork, CheckpointsOf, RecordedOf
from holdfast.core.rows import COMPLETED, SKIPPED, Checkpoint, Recorded, Run, Work
from holdfast.core.state_items import Item, state_digest
from holdfast.core.state_operations import INTERRUPT
from holdfast.core.state_outcomes import Outcome, decode_outcome, encode_outcome
from holdfast.graph_reading import LATEST, PAGE, code_of_run
from holdfast.models.state_graph import recording_attempt
from holdfast.models.state_memory import Known, put_together
from holdfast.models.state_routing import next_items
from holdfast.runtime.exception_classes import as_it_was_raised
from holdfast.runtime.known_calls import KnownCalls
from holdfast.runtime.recorded_calls import CallCoding, coding_of

if TYPE_CHECKING:
    from holdfast.authoring.state_code import BoundGraph
    from holdfast.engine import Engine

S = TypeVar("S")
Mode = Literal["strict", "lenient", "live"]
MODES = ("strict", "lenient", "live")
SHOWN = 1_000  # characters of each side


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is not as it was recorded."""

    step: int
    node: str
    what: str
    recorded: Any
    found: Any
    call: int | None = None

    def __str__(self) -> str:
        sides = f"  recorded: {_shown(self.recorded)}\n  now:      {_shown(self.found)}"
        return f"step {self.step}, {self.node}: {self.what}\n{sides}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport(Generic[S]):
    """What a replay found. `reused` names items whose stored delta was taken, because they must not run again."""

    run_id: str
    mode: str
    state: S
    steps: int
    nodes: int
    calls: int
    reused: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    state_digest: str = ""

    @property
    def ok(self) -> bool:
        return not self.differences


async def replay(engine: Engine, run: Run, mode: str = "strict") -> ReplayReport[Any]:
    """Run a recorded run again, as far as it has got."""
    if mode not in MODES:
        raise UsageError(f"mode is {mode!r}", hint=f"use one of {', '.join(MODES)}")
    code = code_of_run(engine, run)
    chain: list[Checkpoint] = []
    before = LATEST
    while page := await engine.store.rows(CheckpointsOf(run.id, before, PAGE)):
        chain += page
        before = page[-1].step
    chain.reverse()
    latest: dict[str, Work] = {work.node: work for work in await engine.store.rows(AllWork(run.id))}
    recorded: dict[str, list[Recorded]] = {}
    for row in await engine.store.rows(RecordedOf(run.id)):
        recorded.setdefault(row.node, []).append(row)
    return await _Replay(run, code, mode, latest, recorded).follow(_unbroken(chain, run))


def _unbroken(chain: list[Checkpoint], run: Run) -> list[Checkpoint]:
    """The checkpoints from the earliest that all later ones follow: those before it were pruned."""
    first = max(0, len(chain) - 1)
    while first > 0 and chain[first - 1].step == chain[first].step - 1:
        first -= 1
    while first < len(chain) and not chain[first].whole:
        first += 1
    if first >= len(chain):
        raise UsageError(f"run {run.id} has no checkpoint to begin with", hint="it was pruned")
    return chain[first:]


@dataclass(slots=True)
class _Replay:
    run: Run
    code: BoundGraph
    mode: str
    latest: Mapping[str, Work]
    recorded: Mapping[str, list[Recorded]]
    differences: list[Difference] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    nodes: int = 0
    calls: int = 0

    async def follow(self, chain: list[Checkpoint]) -> ReplayReport[Any]:
        known = put_together(chain[:1], self.code)
        if (digest := state_digest(known.fields)) != chain[0].digest:
            self.differ(known.step, "the beginning", "its state was changed", chain[0].digest, digest)
        for row in chain[1:]:
            known = await self._step(known, row)
        return ReplayReport(
            run_id=self.run.id,
            mode=self.mode,
            state=self.code.state_for(known.fields),
            steps=len(chain) - 1,
            nodes=self.nodes,
            calls=self.calls,
            reused=tuple(self.reused),
            differences=tuple(self.differences),
            state_digest=state_digest(known.fields),
        )

    async def _step(self, known: Known, row: Checkpoint) -> Known:
        """The state after a step, computed anew and compared; what was recorded, where it differs."""
        settled = [(item, await self._outcome(known, item)) for item in known.frontier]
        before = msgspec.structs.replace(_whole(row, known, self.code), step=row.step)
        stored = put_together([before, row], self.code) if not row.whole else put_together([row], self.code)
        try:
            fields = self.code.merge(known.fields, [(item.node, outcome.fields) for item, outcome in settled])
            frontier = next_items(self.code, settled, fields)
        except HoldfastError as error:
            self.differ(row.step, "the merge", "it failed", "a merged state", str(error))
            return stored
        if state_digest(fields) != row.digest or fields != stored.fields:
            changed = sorted(name for name in {*fields, *stored.fields} if fields.get(name) != stored.fields.get(name))
            self.differ(
                row.step,
                "the merge",
                f"the state differs in {', '.join(changed)}" if changed else "its digest was changed",
                {name: _text(stored.fields.get(name)) for name in changed} or row.digest,
                {name: _text(fields.get(name)) for name in changed} or state_digest(fields),
            )
            return stored
        if frontier != stored.frontier:
            self.differ(
                row.step,
                "the edges",
                "another frontier follows",
                [f"{item.node} {item.order_key}" for item in stored.frontier],
                [f"{item.node} {item.order_key}" for item in frontier],
            )
        return stored

    async def _outcome(self, known: Known, item: Item) -> Outcome:
        address = item.address(known.step + 1)
        work = self.latest.get(address)
        if work is None or work.status not in (COMPLETED, SKIPPED):
            self.differ(known.step + 1, address, "its result is missing", None if work is None else work.status, None)
            return decode_outcome(None)
        if work.status == SKIPPED:
            return decode_outcome(None)
        stored = decode_outcome(None if work.result is None else self.code.unseal(work.result))
        found = self.code.graph.nodes.get(item.node)
        if found is None:
            known_nodes = ", ".join(self.code.graph.nodes)
            self.differ(known.step + 1, address, "the graph has no such node now", item.node, known_nodes)
            return stored
        records = [row for row in self.recorded.get(address, ()) if row.attempt == recording_attempt(work)]
        # An answer of a person is no record of what the node did with it.
        is_recorded = any(row.kind != INTERRUPT for row in records)
        if found.fn is None or (found.effects.requires_idempotency and not is_recorded):
            self.reused.append(address)
            return stored
        self.nodes += 1
        now = await self._run_again(known, item, work, records)
        if now is not None and encode_outcome(now) != encode_outcome(stored):
            self.differ(known.step + 1, address, "it returned something else", _told(stored), _told(now))
        return stored

    async def _run_again(self, known: Known, item: Item, work: Work, records: list[Recorded]) -> Outcome | None:
        node, code = self.code.graph.nodes[item.node], self.code
        state = code.state_for(known.fields, item.sent)
        calls = _ReplayedCalls(self, work, {row.call: row for row in records}, coding_of(code))
        key = code.own_key(item.node, state) or idempotency_key(self.run.workflow, self.run.id, work.node)
        context = NodeContext(
            run_id=self.run.id,
            workflow_name=self.run.workflow,
            node=item.node,
            step=known.step + 1,
            attempt=work.attempt,
            idempotency_key=key,
            path=item.path,
            now_us=known.at,
            services=calls,
        )
        outer = Context(
            run_id=self.run.id,
            workflow_name=self.run.workflow,
            node=NodeInfo(id=work.node, name=item.node, attempt=work.attempt),
            idempotency_key=key,
            worker="replay",
        )
        fn: Any = node.fn

        def call() -> Any:
            calls.known.begins()
            return fn(state, context) if node.takes_context else fn(state)

        try:
            with entered(outer):
                returned = await call() if node.is_async else await asyncio.to_thread(call)
                if inspect.isawaitable(returned):
                    returned = await returned
            outcome = code.outcome(item.node, returned, state)
        except ReplayMismatch:
            if self.mode == "strict":
                raise
            return None
        except (Exception, FlowControl) as error:
            if calls.mismatch is not None:
                raise calls.mismatch from error
            self.differ(known.step + 1, work.node, "it raised", "a result", f"{type(error).__name__}: {error}")
            return None
        calls.end()
        return outcome

    def differ(self, step: int, node: str, what: str, recorded: Any, found: Any, call: int | None = None) -> None:
        difference = Difference(step=step, node=node, what=what, recorded=recorded, found=found, call=call)
        if self.mode == "strict":
            mismatch = ReplayMismatch(f"replay of run {self.run.id} of {self.run.workflow}: {difference}")
            mismatch.difference = difference
            raise mismatch
        self.differences.append(difference)


class _ReplayedCalls:
    """The calls of a node that runs again: answered from what was recorded."""

    def __init__(self, replay: _Replay, work: Work, records: Mapping[int, Recorded], coding: CallCoding) -> None:
        self._replay = replay
        self._work = work
        self._coding = coding
        self.known = KnownCalls(coding.by_rules_of_now(records))
        self.mismatch: ReplayMismatch | None = None  # the first, which the node may have swallowed

    def note(self, text: str) -> None:
        """It was noted when it happened."""

    async def heartbeat(self) -> None:
        """There is no lease to keep."""

    @property
    def replaying(self) -> bool:
        return True

    @property
    def cancelled(self) -> bool:
        return False

    async def record(self, name: str, request: object, call: Callable[[], Awaitable[Any]]) -> Any:
        (row, where), annotation = self._row(name, request), returned_type(call)
        if self._replay.mode == "live":
            try:
                self._compare(row, where, await call(), None, annotation)
            except Exception as error:
                self._compare(row, where, None, error)
        else:
            await asyncio.sleep(0)  # the node's other branches ask as well
        return self._answer(row, where, annotation)

    def record_blocking(self, name: str, request: object, call: Callable[[], Any]) -> Any:
        (row, where), annotation = self._row(name, request), returned_type(call)
        if self._replay.mode == "live":
            try:
                self._compare(row, where, call(), None, annotation)
            except Exception as error:
                self._compare(row, where, None, error)
        return self._answer(row, where, annotation)

    async def interrupt(self, payload: object) -> Any:
        return self.interrupt_blocking(payload)

    def interrupt_blocking(self, payload: object) -> Any:
        row, where = self._row("interrupt", payload)
        return self._answer(row, where)

    def _answer(self, row: Recorded, where: str, annotation: object = UNTYPED) -> Any:
        self._replay.calls += 1
        now = None if row.response is None else self._coding.unseal(row.response)
        digest = None if row.response is None else self._coding.response_hash(row.response)
        if digest != row.response_hash:
            self._differ(row.call, f"the stored response of {where} was changed", row.response_hash, now)
        if row.error is not None:
            raise as_it_was_raised(row.error)
        return self._coding.decoded(row.response or b"null", where, annotation)

    def end(self) -> None:
        """The node has returned: is there anything that it asked for otherwise, or not at all?"""
        if self.mismatch is not None:
            raise self.mismatch
        if (moved := self.known.moved) is not None:
            what = f"call {moved.number} ({moved.asked.name}) asks for something else"
            before = None if moved.recorded is None else self._told(moved.recorded)
            self._differ(moved.number, what, before, self._told(moved.asked))
        elif left := self.known.left:
            not_asked_for = ", ".join(f"{number} ({row.name})" for number, row in left.items())
            what = f"it made fewer calls: not {not_asked_for}"
            recorded = self.known.made + len(left)
            self._differ(max(left), what, recorded, self.known.made)

    def _row(self, name: str, request: Any) -> tuple[Recorded, str]:
        number = self.known.count()
        where = f"call {number} ({name})"
        shown, digest = self._coding.request(request, where)
        row = self.known.find(number, name, digest)
        if row is not None:
            return row, where
        row = self.known.nearest(number, name)
        asked = {"name": name, "request": self._coding.unseal(shown)}
        if row is None:
            self._differ(number, f"{where} was not recorded", None, asked)
            raise ReplayMismatch(f"{where} of {self._work.node} was not recorded")
        self._differ(number, f"{where} asks for something else", self._told(row), asked)
        return row, where

    def _told(self, row: Recorded) -> dict[str, Any]:
        return {"name": row.name, "request": self._coding.unseal(row.request)}

    def _compare(
        self, row: Recorded, where: str, value: Any, error: Exception | None, annotation: object = UNTYPED
    ) -> None:
        """What the world answers now, with what it answered then."""
        digest, found = None, value
        if error is None:
            _, digest = self._coding.response(value, where, annotation)
        else:
            found = f"{type(error).__name__}: {error}"
        if row.error is None:
            recorded = self._coding.unseal(row.response or b"null")
        else:
            failure = decode_error(row.error)
            recorded = f"{failure.type}: {failure.message}"
        if digest != row.response_hash or (digest is None and found != recorded):
            self._differ(row.call, f"{where} is answered differently now", recorded, found)

    def _differ(self, call: int, what: str, recorded: Any, found: Any) -> None:
        step = int(self._work.node.rpartition("@")[2].partition(".")[0])
        try:
            self._replay.differ(step, self._work.node, what, recorded, found, call)
        except ReplayMismatch as mismatch:
            self.mismatch = self.mismatch or mismatch
            raise


def _whole(row: Checkpoint, known: Known, code: BoundGraph) -> Checkpoint:
    """The checkpoint before, as one that was stored whole: what a patch is applied to."""
    from holdfast.core.state_outcomes import joined

    return msgspec.structs.replace(row, whole=True, state=code.seal(joined(known.fields)))


def _told(outcome: Outcome) -> Any:
    return msgspec.json.decode(encode_outcome(outcome))


def _text(field: bytes | None) -> Any:
    return None if field is None else msgspec.json.decode(field)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters)"
