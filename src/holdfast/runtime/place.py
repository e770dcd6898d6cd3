"""Where an engine was opened: the event loop, thread and process that it may be used in, and no others."""

from __future__ import annotations

import asyncio
import os
from asyncio import _get_running_loop
from threading import get_ident

from holdfast.core.errors import UsageError

_forks: list[None] = []  # one for each fork that this process comes from, since it loaded this
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forks.append(None))


class Place:
    """The place of this call; `check` refuses to be called in another one.

    It is asked with every call of an engine, and asking the system for the process, as Python 3.11 also does for the
    running loop, takes as long as the rest of what a call does before it has something to do.
    """

    __slots__ = ("_forks", "_thread", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._forks = len(_forks)

    def check(self) -> None:
        if self._forks != len(_forks):
            raise UsageError(
                "the engine was opened before this process was forked: two would share its connections and its answers",
                hint="open an engine in each process, after the fork",
            )
        if self._thread == get_ident() and self.loop.is_running():
            return  # in this thread, which can run one loop at a time
        if (here := _get_running_loop()) is not self.loop and here is not None:
            raise UsageError(
                "the engine was opened on another event loop, whose tasks would answer here",
                hint="use it on the loop that opened it; for other threads, and where each call has a loop of its own, "
                "share one `hf.Engine(url).blocking()`",
            )
