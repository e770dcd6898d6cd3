"""Makes a process die, fail or stand still at a named failpoint, as its environment asks.

For the crash programme: it starts a worker with `HOLDFAST_FAILPOINT=flush.before_commit:3`, which is killed at the
third commit, and checks what the next worker makes of it. Nothing is armed unless the variable is set.

    HOLDFAST_FAILPOINT=NAME:K           SIGKILL to this very process at the K-th hit of NAME, counted from 1
    HOLDFAST_FAILPOINT=NAME:K:raise     raise Crash there, for crashes inside one process
    HOLDFAST_FAILPOINT=NAME:K:pause     stand still there until the file HOLDFAST_FAILPOINT_FILE exists;
                                        the same name with `.reached` appears, holding its pid, when it stands
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from holdfast.core import failpoints
from holdfast.core.errors import UsageError

VARIABLE: Final = "HOLDFAST_FAILPOINT"
FILE_VARIABLE: Final = "HOLDFAST_FAILPOINT_FILE"
REACHED_SUFFIX: Final = ".reached"

Deed = Literal["kill", "raise", "pause"]
_DEEDS: Final[Mapping[str, Deed]] = {"kill": "kill", "raise": "raise", "pause": "pause"}
_LOOK_AGAIN_SECONDS: Final = 0.005


class Crash(BaseException):
    """A crash played inside one process. Not an Exception, so that no handler for errors can survive it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to do at which hit of which failpoint."""

    name: str
    hit: int
    deed: Deed = "kill"


def parse_order(text: str) -> Order:
    """The order that "name:k" or "name:k:deed" stands for; UsageError with the choices otherwise."""
    name, _, rest = text.partition(":")
    number, _, deed = rest.partition(":")
    if name not in failpoints.NAMES:
        raise UsageError(
            f"{VARIABLE}={text!r} names the failpoint {name!r}, which does not exist",
            hint=f"choose one of {', '.join(sorted(failpoints.NAMES))}",
        )
    if not (number.isascii() and number.isdigit()) or int(number) < 1:
        raise UsageError(
            f"{VARIABLE}={text!r} asks for the hit {number!r} of {name}", hint=f"count from 1, as in {name}:1"
        )
    if (deed or "kill") not in _DEEDS:
        raise UsageError(f"{VARIABLE}={text!r} asks to {deed!r}", hint=f"choose one of {', '.join(_DEEDS)}")
    return Order(name, int(number), _DEEDS[deed or "kill"])


def install_from_environment(environ: Mapping[str, str]) -> Order | None:
    """Arm the failpoint that the environment names and return the order; None, and nothing armed, if it names none."""
    text = environ.get(VARIABLE, "")
    if not text:
        return None
    order = parse_order(text)
    file = environ.get(FILE_VARIABLE, "")
    if order.deed == "pause" and not file:
        raise UsageError(
            f"{VARIABLE}={text!r} asks to pause, but {FILE_VARIABLE} names no file to wait for",
            hint=f"set {FILE_VARIABLE} to a path; creating that file lets the process go on",
        )
    failpoints.arm(_hook(order, file))
    return order


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the hits of every failpoint inside the block, by name: which crashes there are to try."""
    if failpoints.armed:
        raise UsageError(
            "failpoints are armed already, and counting would replace their hook",
            hint=f"unset {VARIABLE}, or end the other block first",
        )
    hits: Counter[str] = Counter()
    lock = threading.Lock()  # stores reach failpoints from their own threads

    def count(name: str) -> None:
        with lock:
            hits[name] += 1

    failpoints.arm(count)
    try:
        yield hits
    finally:
        failpoints.disarm()


def _hook(order: Order, file: str) -> Callable[[str], None]:
    hits = 0
    lock = threading.Lock()

    def hook(name: str) -> None:
        nonlocal hits
        if name != order.name:
            return
        with lock:
            hits += 1
            reached = hits == order.hit
        if reached:
            _do(order, file)

    return hook


def _do(order: Order, file: str) -> None:
    match order.deed:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise Crash(f"crash at hit {order.hit} of {order.name}, as {VARIABLE} asks")
        case "pause":
            # Blocks the whole loop on purpose: a worker that stands still is what this plays.
            Path(file + REACHED_SUFFIX).write_text(f"{os.getpid()}\n")
            while not Path(file).exists():
                time.sleep(_LOOK_AGAIN_SECONDS)
