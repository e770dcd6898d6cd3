"""What a node of a state graph asks of the outside world: written down as it happens, and given back after a crash."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.authoring.context import current_context, entered
from holdfast.authoring.flow_control import WaitForPerson
from holdfast.core import failpoints, quoting
from holdfast.core.codec import UNTYPED, Codecs, encode_error
from holdfast.core.codec_call import returned_type
from holdfast.core.codec_hooks import encode_hook
from holdfast.core.codec_label import labelled, unlabelled
from holdfast.core.codec_unset import unnoted
from holdfast.core.errors import PayloadRefused, ReplayMismatch
from holdfast.core.operations import STALE, Operation, Settled
from holdfast.core.rows import Recorded, Work
from holdfast.core.seams import Clock
from holdfast.core.secret_names import is_secret
from holdfast.core.state_operations import INTERRUPT, AskPerson, RecordCall
from holdfast.runtime.exception_classes import as_it_was_raised
from holdfast.runtime.known_calls import KnownCalls

if TYPE_CHECKING:
    from holdfast.authoring.state_code import BoundGraph

HIDDEN = "***"
SHOWN_BYTES = 2_000

_canonical = msgspec.json.Encoder(enc_hook=encode_hook, order="sorted").encode

_ANNOTATE = (
    "give ctx.record a function that says what it returns, `async def ask() -> Answer: …`, which a lambda cannot; or "
    "return texts, numbers, lists and dicts of them"
)

Redaction = Callable[[str], bool]


def redaction(rules: Iterable[str | re.Pattern[str]] = ()) -> Redaction:
    """Whether the value under a key is a secret: by the usual names, and by the graph's own rules."""
    own = [re.compile(re.escape(rule), re.IGNORECASE) if isinstance(rule, str) else rule for rule in rules]

    def is_hidden(key: str) -> bool:
        return is_secret(key) or any(rule.search(key) for rule in own)

    return is_hidden


def redacted(value: Any, is_hidden: Redaction) -> Any:
    """The value without its secrets."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if isinstance(key, str) and is_hidden(key) else redacted(each, is_hidden)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(each, is_hidden) for each in value]
    return value


def hash_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class CallCoding:
    """Requests, responses and answers as they are stored, and back."""

    def __init__(self, codecs: Codecs, limit: int, is_hidden: Redaction) -> None:
        self._codecs = codecs
        self._limit = limit
        self._is_hidden = is_hidden

    def request(self, value: Any, where: str) -> tuple[bytes, str]:
        """A request without its secrets, as it is stored, and its hash: what replay compares."""
        try:
            plain = msgspec.json.decode(unnoted(_canonical(value)))
        except Exception as error:
            raise PayloadRefused(
                f"the request of {where} can't be stored: {quoting.text_of(error)}",
                hint="give plain values, dataclasses or models",
            ) from None
        shown = redacted(plain, self._is_hidden)
        return self.seal(shown, f"the request of {where}"), hash_of(_canonical(shown))

    def by_rules_of_now(self, rows: Mapping[int, Recorded]) -> dict[int, Recorded]:
        """Records with the hash that their requests have now: rules that came later hide more of them."""
        return {number: self._by_rules_of_now(row) for number, row in rows.items()}

    def _by_rules_of_now(self, row: Recorded) -> Recorded:
        plain = self.unseal(row.request)
        shown = redacted(plain, self._is_hidden)
        return row if shown == plain else replace(row, request_hash=hash_of(_canonical(shown)))

    def response(self, value: Any, where: str, annotation: object = UNTYPED) -> tuple[bytes, str]:
        """What a call gave, as it is stored, and its hash: as the call says, or else in JSON's own types.

        The call has been made, so that nothing is refused which can be stored in one of the two ways.
        """
        try:
            stored = self.seal(value, f"the response of {where}", annotation)
        except PayloadRefused as refused:
            try:
                stored = self.seal(value, f"the response of {where}")
            except PayloadRefused:
                fix = None if annotation is UNTYPED else refused.hint
                raise PayloadRefused(refused.message, hint=fix or _ANNOTATE) from refused.__cause__
        return stored, self.response_hash(stored)

    def response_hash(self, stored: bytes) -> str:
        """Over canonical JSON, whatever the codec."""
        return hash_of(_canonical(self.unseal(stored)))

    def decoded(self, stored: bytes, where: str, annotation: object = UNTYPED) -> Any:
        """What the node receives, the first time too (I14)."""
        found = unlabelled(stored)
        with suppress(PayloadRefused):  # it was not what the call says, or older code said something else
            return self._codecs.decode(found.data, annotation, where=where, codec=found.codec)
        return self._codecs.decode(found.data, where=f"the response of {where}", codec=found.codec)

    def seal(self, value: Any, where: str, annotation: object = UNTYPED) -> bytes:
        written = self._codecs.encode(value, annotation, where=where, limit=self._limit)
        return labelled(written.data, written.codec)

    def unseal(self, stored: bytes) -> Any:
        found = unlabelled(stored)
        return self._codecs.decode(found.data, where="a recorded call", codec=found.codec)


def coding_of(code: BoundGraph) -> CallCoding:
    """How the calls of a graph's nodes are stored."""
    return CallCoding(code.codecs, code.limit, redaction(code.graph.options.redact))


def answer_of(answer: Any, codecs: Codecs, limit: int) -> tuple[bytes, str]:
    """What a person says to a node, as it is stored, and its hash."""
    try:
        written = codecs.encode(answer, where="the answer", limit=limit)
    except PayloadRefused as refused:  # of an answer nothing can be annotated
        raise PayloadRefused(refused.message, hint="answer with texts, numbers, lists and dicts of them") from None
    return labelled(written.data, written.codec), hash_of(_canonical(answer))


class LiveCalls:
    """The calls of one attempt. Those that were recorded before a crash or an interrupt are not made again (I42)."""

    def __init__(
        self,
        *,
        work: Work,
        recording: int,
        known: Mapping[int, Recorded],
        coding: CallCoding,
        clock: Clock,
        submit: Callable[[Operation], Awaitable[Settled]],
        heartbeat: Callable[[], Awaitable[None]],
        note: Callable[[str], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._work = work
        self._recording = recording
        self._known = KnownCalls(coding.by_rules_of_now(known))
        self._coding = coding
        self._clock = clock
        self._submit = submit
        self._heartbeat = heartbeat
        self._note = note
        self._is_cancelled = is_cancelled
        self._loop = asyncio.get_running_loop()
        self._mismatch: ReplayMismatch | None = None
        self._beside_records: _Asked | None = None  # a new call, made where others were recorded
        self._calling: list[asyncio.Task[Any] | None] = []  # who makes a call that is not recorded yet
        self._quiet = asyncio.Event()  # nobody does
        self._quiet.set()
        self._question: WaitForPerson | None = None

    def note(self, text: str) -> None:
        self._note(text)

    async def heartbeat(self) -> None:
        await self._heartbeat()

    @property
    def replaying(self) -> bool:
        return False

    @property
    def cancelled(self) -> bool:
        return self._is_cancelled()

    def begins(self) -> None:
        """To be called by the task, or in the thread, that the node itself runs in."""
        self._known.begins()

    def end(self) -> None:
        """The node has returned: what it asked for otherwise than before is told, also if it swallowed the error."""
        if self._mismatch is not None:
            raise self._mismatch
        if (moved := self._known.moved) is not None:
            where = f"call {moved.number} ({moved.asked.name}) of {self._work.node}"
            raise _another_call(self._work, where, moved.recorded, moved.asked.name, moved.asked.request_hash)
        asked = self._beside_records
        if asked is not None and self._known.left:
            not_asked_for = next(iter(self._known.left.values()))
            raise _another_call(self._work, asked.where, not_asked_for, asked.name, asked.digest)

    async def record(self, name: str, request: object, call: Callable[[], Awaitable[Any]]) -> Any:
        asked = self._ask(name, request)
        if asked.before is not None:
            await asyncio.sleep(0)  # the node's other branches ask as well, much as when the call took its time
            return self._again(asked.before, asked.where, returned_type(call))
        if self._question is not None:  # the attempt is over as soon as the calls that were made before are recorded
            await self._ended_calls()
            raise self._question
        caller = asyncio.current_task()
        self._calling.append(caller)
        self._quiet.clear()
        try:
            return await self._called(asked, call)
        finally:
            self._calling.remove(caller)
            if not self._calling:
                self._quiet.set()

    async def _called(self, asked: _Asked, call: Callable[[], Awaitable[Any]]) -> Any:
        began = self._clock.monotonic()
        try:
            with _apart(asked):
                value = await call()
        except Exception as error:
            record = encode_error(error, at_home=True)
            await self._write(asked, began, error=record)
            if quoting.is_allowed():
                raise
            raise as_it_was_raised(record) from None  # I14: much of it may not be kept
        return await self._answered(asked, began, value, returned_type(call))

    def record_blocking(self, name: str, request: object, call: Callable[[], Any]) -> Any:
        """The call is made in the node's own thread; what came of it is written by the loop."""
        asked = self._ask(name, request)
        if asked.before is not None:
            return self._again(asked.before, asked.where, returned_type(call))
        began = self._clock.monotonic()
        try:
            with _apart(asked):
                value = call()
        except Exception as error:
            record = encode_error(error, at_home=True)
            self._on_loop(self._write(asked, began, error=record))
            if quoting.is_allowed():
                raise
            raise as_it_was_raised(record) from None
        return self._on_loop(self._answered(asked, began, value, returned_type(call)))

    async def interrupt(self, payload: object) -> Any:
        """A question ends the attempt. Calls that other branches of the node make are waited for: a call that is not
        recorded by then would be made again after the answer (I42)."""
        try:
            return self.interrupt_blocking(payload)
        except WaitForPerson as question:
            await asyncio.sleep(0)  # branches that begin together with this one make their first call
            self._question = self._question or question
            await self._ended_calls()
            raise

    async def _ended_calls(self) -> None:
        if asyncio.current_task() not in self._calling:  # a call that asks would wait for itself
            await self._quiet.wait()

    def interrupt_blocking(self, payload: object) -> Any:
        asked = self._ask(INTERRUPT, payload)
        if asked.before is not None and asked.before.response is not None:
            return self._again(asked.before, asked.where)
        lease = _lease(self._work)
        raise WaitForPerson(
            AskPerson(
                **lease, recording=self._recording, call=asked.number, request=asked.request, request_hash=asked.digest
            )
        )

    def _on_loop(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def _ask(self, name: str, request: object) -> _Asked:
        known, number = self._known, self._known.count()
        where = f"call {number} ({name}) of {self._work.node}"
        stored, digest = self._coding.request(request, where)
        before = known.find(number, name, digest)
        asked = _Asked(number if before is None else before.call, name, where, stored, digest, before)
        if before is not None:
            return asked
        # A call that nothing is recorded for is new; but not where the node's one task asked for something else before:
        # that is changed code, and the call may be one that was made already. Nor after a mismatch that was swallowed.
        moved = known.moved
        if self._mismatch or moved is not None or not (known.in_branches or known.is_free(number)):
            recorded = known.nearest(number, name) if moved is None else moved.recorded
            self._mismatch = self._mismatch or _another_call(self._work, where, recorded, name, digest)
            raise self._mismatch
        if not known.is_free(number):
            self._beside_records = asked
        return asked._replace(number=known.new_number(number))

    def _again(self, before: Recorded, where: str, annotation: object = UNTYPED) -> Any:
        if before.error is not None:
            raise as_it_was_raised(before.error)
        return self._coding.decoded(before.response or b"null", where, annotation)

    async def _answered(self, asked: _Asked, began: float, value: Any, annotation: object) -> Any:
        response, response_hash = self._coding.response(value, asked.where, annotation)
        await self._write(asked, began, response=response, response_hash=response_hash)
        return self._coding.decoded(response, asked.where, annotation)  # I14: what it will be in a replay

    async def _write(
        self,
        asked: _Asked,
        began: float,
        *,
        response: bytes | None = None,
        response_hash: str | None = None,
        error: bytes | None = None,
    ) -> None:
        if failpoints.armed:
            await failpoints.reach("record.before")
        settled = await self._submit(
            RecordCall(
                **_lease(self._work),
                recording=self._recording,
                call=asked.number,
                name=asked.name,
                request=asked.request,
                request_hash=asked.digest,
                response=response,
                response_hash=response_hash,
                error=error,
                duration=int((self._clock.monotonic() - began) * 1_000_000),
            )
        )
        if failpoints.armed:
            await failpoints.reach("record.after")
        if settled.verdict == STALE:
            from holdfast.runtime.attempt_context import LeaseLost

            raise LeaseLost(f"{self._work.node} of run {self._work.run} lost its lease: stop here")


class _Asked(NamedTuple):
    """A call that a node makes now, and how it was recorded before."""

    number: int
    name: str
    where: str
    request: bytes
    digest: str
    before: Recorded | None


def _apart(asked: _Asked) -> AbstractContextManager[object]:
    """I13: the actions that a recorded call awaits have the keys of this call, whatever was called before it."""
    context = current_context.get()
    return nullcontext() if context is None else entered(context.for_record(asked.name, asked.number))


def _another_call(work: Work, where: str, before: Recorded | None, name: str, request_hash: str) -> ReplayMismatch:
    recorded = "nothing" if before is None else f"{before.name} with {before.request_hash[:19]}"
    return ReplayMismatch(
        f"{where} in run {work.run} asks for something else than before it was cut off: it recorded {recorded}, "
        f"and asks now for {name} with {request_hash[:19]}",
        hint="a node must make the same calls again: keep clocks, random numbers and the order of sets out of its "
        "requests (ctx.rng and ctx.now repeat)",
    )


def _lease(work: Work) -> dict[str, Any]:
    return {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}
