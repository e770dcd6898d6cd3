"""A thread that names the line when a run's code keeps the event loop to itself.

While a run's code runs, nothing else in the process does: no other run, no heartbeat. The watchdog can't interrupt
it; it can say where it is. Each turn of a run notes when it began; the thread looks every so often, and when a turn
has taken too long it reads the stack of that turn's thread. A turn is reported once.

The thread sleeps as long as no run has had a turn for a while, so an idle process stays idle.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from threading import get_ident
from types import CodeType
from typing import Final

import msgspec

from holdfast.runtime.run_lines import UNKNOWN_LINE, line_of_stack

LIMIT_SECONDS: Final = 0.2
LOOK_EVERY_SECONDS: Final = 0.05
LOOKS_BEFORE_SLEEP: Final = 20

log = logging.getLogger("holdfast.functions")


class SlowTurn(msgspec.Struct, frozen=True):
    """A turn that takes too long, and the user's line it was seen at."""

    run_id: str
    seconds: float
    line: str


class _Turn(msgspec.Struct, eq=False, gc=False):
    run_id: str
    began: float
    boundary: frozenset[CodeType]
    reported: bool = False


class RunWatchdog:
    """Watches the turns of any number of run loops on any number of threads. Start it once a process."""

    def __init__(
        self,
        *,
        limit_seconds: float = LIMIT_SECONDS,
        look_every_seconds: float = LOOK_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[SlowTurn], None] | None = None,
    ) -> None:
        self._limit_seconds = limit_seconds
        self._look_every_seconds = look_every_seconds
        self._clock = clock
        self._report = report or _log
        self._turns: dict[int, _Turn] = {}
        self._count = 0
        self._asleep = False
        self._awake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def turn_begins(self, run_id: str, boundary: frozenset[CodeType]) -> None:
        self._count += 1
        self._turns[get_ident()] = _Turn(run_id, self._clock(), boundary)
        if self._asleep:
            self._awake.set()

    def turn_ends(self) -> None:
        self._turns.pop(get_ident(), None)

    def look(self) -> list[SlowTurn]:
        """Return, and report, the turns that have just been found to take too long."""
        now = self._clock()
        late = [
            (thread, turn)
            for thread, turn in list(self._turns.items())
            if not turn.reported and now - turn.began > self._limit_seconds
        ]
        if not late:
            return []
        frames = sys._current_frames()
        found = []
        for thread, turn in late:
            line = line_of_stack(frames.get(thread), turn.boundary)
            if self._turns.get(thread) is not turn:
                continue  # it ended while we looked, so the frame may be another's
            turn.reported = True
            found.append(SlowTurn(turn.run_id, now - turn.began, line or UNKNOWN_LINE))
        del frames  # they hold every local variable of every thread
        for slow in found:
            self._report(slow)
        return found

    def start(self) -> None:
        if self._thread is None:
            # A daemon: it holds nothing that an exit could break.
            self._thread = threading.Thread(target=self._watch, name="holdfast-watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread. Returns when it has ended; the watchdog can't be started again."""
        self._stop.set()
        self._awake.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        seen, idle = -1, 0
        while not self._stop.wait(self._look_every_seconds):
            self.look()
            idle = 0 if self._count != seen or self._turns else idle + 1
            seen = self._count
            if idle >= LOOKS_BEFORE_SLEEP:
                self._sleep_until_a_turn_begins(seen)
                idle = 0

    def _sleep_until_a_turn_begins(self, seen: int) -> None:
        self._awake.clear()
        self._asleep = True
        # After the flag is up: a turn that began just before it saw no flag and woke nobody.
        if self._count == seen and not self._stop.is_set():
            self._awake.wait()
        self._asleep = False


def _log(slow: SlowTurn) -> None:
    log.warning(
        "run %s has held the event loop for %.2f s at %s; nothing else runs meanwhile. Fix: move the work into an "
        "action",
        slow.run_id,
        slow.seconds,
        slow.line,
    )
