"""Branches of a run, and the futures and tasks that repeat: same addresses, same hashes, in every replay.

Theory of operation. A task's place in the tree of tasks is its *branch*: "" for the main task, "2" for the second task
that it creates, "2.1" for that one's first. A branch numbers its own calls, timers and children, so an address says
who asked, and as which of its requests, whatever the other branches did meanwhile.

asyncio keeps tasks and futures in sets (`wait`, `as_completed`, `TaskGroup`), and code iterates over them. By default
they hash by memory address, which differs from process to process. Here they hash by the order in which the run
created them: its *mark*. Marks start at a number derived from the run's id, because asyncio also keeps all tasks of
the process in one set, and there the first tasks of all runs would collide.

Whatever the garbage collector starts (the end of an abandoned async generator) happens at no fixed moment, so it has
branches and marks of its own and takes no number of anyone else's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.runtime.run_lines import line_of_await

if TYPE_CHECKING:
    from holdfast.runtime.run_loop import RunLoop

CALL_MARK: Final = "#"
TIMER_MARK: Final = "@"
CALLBACKS: Final = "~"  # what a done-callback asks for: no task is current there
COLLECTED: Final = "gc-"


class Branch(msgspec.Struct, eq=False):
    """One task's place in the run, and how much it has asked for so far."""

    name: str
    collected: bool = False
    calls: int = 0
    timers: int = 0
    children: int = 0
    uuids: int = 0
    generator: random.Random | None = None

    def next_timer(self) -> str:
        self.timers += 1
        return f"{self.name}{TIMER_MARK}{self.timers}"

    def next_child(self) -> Branch:
        self.children += 1
        # "~" and "gc-" are heads, not parents: their first child is ~1, not ~.1.
        joint = "" if self.name in ("", CALLBACKS, COLLECTED) else "."
        return Branch(f"{self.name}{joint}{self.children}", collected=self.collected)

    def parent_name(self) -> str | None:
        """Return the branch that created this one; None for the main branch and those that no task created."""
        head, joint, _ = self.name.rpartition(".")
        if joint:
            return head
        return "" if self.name.isdigit() else None


class RunFuture(asyncio.Future[Any]):
    """A future of the run, which hashes by the order of creation.

    Its loop sets what is in the slots: with an `__init__` in Python it would cost three times as much to make.
    """

    __slots__ = ("mark",)

    mark: int

    def __hash__(self) -> int:
        return self.mark


class RequestFuture(RunFuture):
    """The answer to one durable request. Cancelling it withdraws the request at once."""

    __slots__ = ("address",)

    address: str

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        # Here and not in a done-callback: a request that the code has given up must not be started in between.
        loop: Any = self.get_loop()
        loop.withdraw(self.address)
        return True


class RunTask(asyncio.Task[Any]):
    """A task of the run: knows its branch, and is named after it unless the user names it."""

    __slots__ = ("branch", "mark")

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: RunLoop,
        branch: Branch,
        mark: int,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> None:
        # Before asyncio's own part: that registers the task in a set, and runs an eager task's first step.
        self.branch = branch
        self.mark = mark
        shown = str(name) if name is not None else branch.name or "main"
        super().__init__(coro, loop=loop, name=shown, context=context, **options)

    def __hash__(self) -> int:
        return self.mark


def line_of_parents(branch: Branch, branches: Mapping[str, Branch], tasks: Mapping[str, RunTask]) -> str:
    """Return the user's line at which the nearest task waits that led to this branch, or "" if none of them does."""
    name = branch.parent_name()
    while name is not None:
        parent = tasks.get(name)
        if parent is not None and not parent.done():
            line = line_of_await(parent.get_coro())
            if line:
                return line
        name = branches[name].parent_name()
    return ""
