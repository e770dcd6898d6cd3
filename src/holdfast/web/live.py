"""Changes as they happen, to everybody who listens: one poller for all of them, and none while nobody does.

Theory of operation. A commit of this process, or a hint of another one, wakes the poller; without any it looks twice a
second. It asks the store for the marks of runs that go on, of runs that ended since it looked last, and of the runs
that somebody follows, and compares them with the marks of before. That is cheap where an index on the time of the last
change would be written at every step of every run. If more runs go on than it compares, it says that numbers may have
changed, which is always true.

Every event has a number and is kept for a while, so that a client that lost its connection gets what it missed
(`Last-Event-ID`), or is told to look at everything again (`reset`) if that is too long ago. A client that does not
take its events is dropped: it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.store.contract import NOT_COUNTED, RunMark
from holdfast.web.refusals import Refused

if TYPE_CHECKING:
    from holdfast.engine import Engine

log = logging.getLogger("holdfast.web")

COMPARED: Final = 2_000
LOOK_SECONDS: Final = 0.5
LEAST_PAUSE_SECONDS: Final = 0.1
PAUSE_PER_SECOND: Final = 20  # of looking: the store and the workers have other things to do
PAUSE_PER_CLIENT_SECONDS: Final = 0.003  # telling many of them takes longer than looking
LONGEST_PAUSE_SECONDS: Final = 0.7  # so that nobody hears of a change later than in a second
OVERLAP_US: Final = 2_000_000  # a run may be committed this long after the time that it carries
TOLD_AGAIN_SECONDS: Final = 1.0
KEPT: Final = 1_000
UNREAD: Final = 100
TICK_SECONDS: Final = 15.0
MOST_CLIENTS: Final = 500
MOST_NAMED: Final = 50  # of changed runs in one event: each client gets all of it


class Told(msgspec.Struct, frozen=True):
    """An event that was told. `run` if it is for those who follow that run."""

    number: int
    event: str
    data: bytes
    run: str | None


class Listener:
    """One client: what it follows, and what it has not taken yet."""

    def __init__(self, run: str | None) -> None:
        self.run = run
        self.unread: asyncio.Queue[Told | None] = asyncio.Queue(UNREAD + 1)
        self.dropped = False

    def wants(self, told: Told) -> bool:
        return told.run == self.run

    def tell(self, told: Told) -> None:
        if self.dropped or not self.wants(told):
            return
        if self.unread.qsize() >= UNREAD:
            self.drop()
        else:
            self.unread.put_nowait(told)

    def drop(self) -> None:
        self.dropped = True
        while not self.unread.empty():
            self.unread.get_nowait()
        self.unread.put_nowait(None)


class Live:
    """Tells every listener of changes. `epoch` names this process, so that numbers of another one are not mistaken."""

    def __init__(self, engine: Callable[[], Engine], *, epoch: str, most_clients: int = MOST_CLIENTS) -> None:
        self._engine = engine
        self._epoch = epoch
        self._most = most_clients
        self._listeners: set[Listener] = set()
        self._told: deque[Told] = deque(maxlen=KEPT)
        self._number = 0
        self._known: dict[str, RunMark] = {}
        self._followed: dict[str, RunMark] = {}
        self._looked_at = 0
        self._wake = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._expected = 0  # clients, with those whose stream is about to begin
        self._counted_at = 0.0
        self._closed = False
        self.looks = 0

    @property
    def clients(self) -> int:
        return len(self._listeners)

    def hint(self, *_: Any) -> None:
        """Something may have changed: look soon."""
        self._wake.set()

    # -- clients

    async def stream(self, run: str | None, last_id: str | None) -> AsyncIterator[bytes]:
        """Everything that a client is told, as server-sent events, until it goes or this closes."""
        if self._closed or self._expected >= self._most:
            raise Refused(429, "TooManyStreams", f"{self.clients} live streams are open", "close some, or ask again")
        self._expected += 1
        listener = Listener(run)
        try:
            async with self._beginning:
                await self._begin()
            # No await from here to the first event: nothing is missed, and nothing told twice.
            self._listeners.add(listener)
            missed = self._missed(listener, last_id)
            self.hint()
            yield b": holdfast\nretry: 2000\n\n" + b"".join(self._written(told) for told in missed)
            while (told := await self._next(listener)) is not None:
                yield told
        finally:
            self._expected -= 1
            self._listeners.discard(listener)
            if not self._expected and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def _next(self, listener: Listener) -> bytes | None:
        try:
            async with asyncio.timeout(TICK_SECONDS):
                told = await listener.unread.get()
        except TimeoutError:
            return f": tick {self._engine().store.now() // 1_000_000}\n\n".encode()
        return None if told is None else self._written(told)

    def _written(self, told: Told) -> bytes:
        lines = f"id: {self._epoch}-{told.number}\nevent: {told.event}\ndata: ".encode()
        return lines + told.data + b"\n\n"

    async def _begin(self) -> None:
        """Start to look, if nobody did."""
        if self._poller is not None and not self._poller.done():
            return
        # What happened while nobody listened was not seen: numbers from before lead to nothing.
        self._told.clear()
        self._number += 1
        self._known, self._followed, self._looked_at = {}, {}, 0
        self._wake.clear()
        await self._look(first=True)
        self._poller = asyncio.get_running_loop().create_task(self._poll(), name="holdfast-live")

    def _missed(self, listener: Listener, last_id: str | None) -> list[Told]:
        """What a client has to be told at once. A new one looks again: it may have looked before it listened."""
        if last_id is None:
            if listener.run is None:
                return [Told(self._number, "runs", b'{"changed":[],"counts":true}', None)]
            return []  # the first mark of a run that is followed is told
        epoch, _, number = last_id.rpartition("-")
        if epoch == self._epoch and number.isascii() and number.isdecimal():
            last = int(number[:18])
            oldest = self._told[0].number if self._told else self._number + 1
            if oldest - 1 <= last <= self._number:
                return [told for told in self._told if told.number > last and listener.wants(told)]
        return [Told(self._number, "reset", b"{}", listener.run)]

    # -- looking

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        rested = 0.0
        while self._expected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, LOOK_SECONDS - rested)):  # a hint may be lost, and a second is all
                    await self._wake.wait()
            self._wake.clear()
            began = loop.time()
            try:
                await self._look()
            except HoldfastError as error:  # the store went away: those who listen are told when it is back
                log.debug("looking for changes failed: %s", error)
            spent = loop.time() - began
            rest = max(spent * PAUSE_PER_SECOND, self.clients * PAUSE_PER_CLIENT_SECONDS)
            rested = max(LEAST_PAUSE_SECONDS, min(rest, LONGEST_PAUSE_SECONDS))
            await asyncio.sleep(rested)

    async def _look(self, *, first: bool = False) -> None:
        self.looks += 1
        store = self._engine().store
        now = store.now()
        followed = sorted({listener.run for listener in self._listeners if listener.run is not None})
        since = (self._looked_at or now) - OVERLAP_US
        marks = await store.marks(COMPARED, ended_since=since, most_ended=MOST_NAMED, of=followed)
        self._looked_at = now
        self._follow({mark.id: mark for mark in marks if mark.leases != NOT_COUNTED})
        known = {mark.id: mark for mark in marks if mark.leases == NOT_COUNTED}
        changed = [mark for run, mark in known.items() if self._known.get(run) != mark]
        partial = sum(mark.status not in ("completed", "failed", "cancelled") for mark in known.values()) >= COMPARED
        self._known = known
        if not first and (changed or (partial and self._tells_again())):
            self._tell_of(changed, counts=True)

    def _tells_again(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._counted_at < TOLD_AGAIN_SECONDS:
            return False
        self._counted_at = now
        return True

    def _tell_of(self, changed: list[RunMark], *, counts: bool) -> None:
        named = [
            {"id": mark.id, "status": mark.status, "workflow": mark.workflow, "model": mark.model}
            for mark in changed[-MOST_NAMED:]
        ]
        self._tell("runs", {"changed": named, "counts": counts}, None)

    def _follow(self, marks: dict[str, RunMark]) -> None:
        for run, mark in marks.items():
            if self._followed.get(run) != mark:
                self._tell("run", {"id": run, "version": mark.version}, run)
        self._followed = marks

    def _tell(self, event: str, data: dict[str, Any], run: str | None) -> None:
        self._number += 1
        told = Told(self._number, event, msgspec.json.encode(data), run)
        self._told.append(told)
        for listener in list(self._listeners):
            listener.tell(told)

    async def close(self) -> None:
        """End every stream at once."""
        self._closed = True
        for listener in list(self._listeners):
            listener.drop()
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await poller
