"""The event loop of one durable function: a queue of callbacks, and nothing else.

Theory of operation. Ordinary asyncio decides by what happens first: which task wakes, which timer fires, in which
order a set is walked. A durable function must decide the same way each time its history is run again. So it gets a
loop of its own, inside the program's real one, without selector, thread or clock. Nothing can wake it but an *entry*
of its history, delivered one at a time, and each time it runs until its queue is empty (I49). Then the same entries in
the same order give the same run, whatever its code decides by: order, time, shared variables, locks.

Around it, a driver:

    loop = RunLoop(run_id, now_us=started)
    loop.begin(function)                          # runs up to the first thing it must wait for
    for entry in history: loop.deliver(entry)     # the past, one at a time
    for request in loop.new_requests(): ...       # only now: what is still missing is started
    loop.deliver(Entry(...))                      # the future, once committed, one at a time
    loop.outcome(); loop.evict()

What can go wrong, and where it is told:

- The code asks for other things than its history holds: `NonDeterminism` from `deliver`, with both and the line.
- It uses what is not durable: `NotDurable` at the line that does (run_refusals.py), as the run's own exception.
- It spins, or is woken from outside: `fault`, raised by the turn it happens in. `on_fault` tells the driver of a
  wake-up at the moment it happens; it may be called on any thread.
- It waits for what nothing durable can complete: `stuck()` names the lines.
- It blocks: run_watchdog.py. It is to leave memory: `evict()`, and never just `del` (run_eviction.py).

A turn (`begin`, `deliver`, `evict`) may run inside a task of the outer loop, which is not the current one meanwhile:
asyncio has one current task a thread, and a step of ours inside a step of theirs fails silently on some versions.
"""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio import _enter_task, _get_running_loop, _leave_task, _set_running_loop, current_task
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from threading import get_ident
from types import CodeType
from typing import Any, Final, TypeVarTuple
from uuid import UUID

from holdfast.runtime.rare_lists import extended
from holdfast.runtime.run_calls import (
    CANCEL,
    ERROR,
    RESULT,
    TIMER,
    Complaint,
    DurableCall,
    Entry,
    Outcome,
    Pending,
    raisable,
)
from holdfast.runtime.run_eviction import LiveGenerators, close_everything
from holdfast.runtime.run_lines import UNKNOWN_LINE, line_of_await, line_of_stack
from holdfast.runtime.run_mismatch import asked_for_something_else, never_asked_for, timer_differs
from holdfast.runtime.run_refusals import (
    DurableOnly,
    NotDurable,
    made_by_as_completed,
    spins,
    translated,
    waited_without_mark,
    warn_of_abandoned_generator,
)
from holdfast.runtime.run_seeds import first_mark, generator_of, next_uuid
from holdfast.runtime.run_task import (
    CALL_MARK,
    CALLBACKS,
    COLLECTED,
    TIMER_MARK,
    Branch,
    RequestFuture,
    RunFuture,
    RunTask,
    line_of_parents,
)
from holdfast.runtime.run_timers import MICROSECONDS, NO_TIMERS, RunTimer, RunTimers, microseconds
from holdfast.runtime.run_watchdog import RunWatchdog

__all__ = ["Complaint", "DurableCall", "Entry", "NotDurable", "Outcome", "Pending", "RunLoop"]

Ts = TypeVarTuple("Ts")
Outside = tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None, Any]  # what a turn sets aside

# What a run has to do between its turns. An empty deque takes most of a kilobyte, and very many runs are at rest.
_NOTHING_READY: Final[deque[asyncio.Handle]] = deque()
_CALLBACKS_FOR_A_REQUEST: Final = 4
_TASKS_BEFORE_A_SWEEP: Final = 64
_COMPLAINTS_KEPT: Final = 100


class RunLoop(DurableOnly):
    """Runs one durable function, moved by entries of its history only. Not for more than one thread at a time."""

    def __init__(self, run_id: str, *, now_us: int, quota: int = 100_000, watchdog: RunWatchdog | None = None) -> None:
        self.run_id = self.seed = run_id  # a later call of the run draws from another seed
        self.now_us = now_us
        self.quota = quota
        self.main: RunTask | None = None
        self.fault: NotDurable | None = None
        self.on_fault: Callable[[], None] | None = None
        self.complaints: Sequence[Complaint] = ()
        self._watchdog = watchdog
        self._closed = False
        self.outer: asyncio.AbstractEventLoop | None = None  # that it was begun on
        self._thread = 0  # that it has a turn on. To ask asyncio which loop runs is a call of the kernel, on 3.11
        self._outcome: Outcome | None = None  # once it was asked for
        self._ready = _NOTHING_READY
        self.timers = NO_TIMERS
        self._pending: dict[str, Pending] = {}
        self.pending: Mapping[str, Pending] = self._pending  # without an answer, by address, in order of creation
        self.fresh: dict[str, Pending] = {}  # requests that were not handed over yet
        self.withdrawn: Sequence[Pending] = ()
        self._asked = 0
        # A branch stays known after its task has ended: an entry for a call that it withdrew may come any time.
        self._branches: dict[str, Branch] = {}
        self._collected: Branch | None = None
        # Held here until they end, or the garbage collector would close them (run_eviction.py).
        self._tasks: dict[str, RunTask] = {}
        self._sweep_at = _TASKS_BEFORE_A_SWEEP
        self._mark = first_mark(run_id, "")
        self._collected_mark = 0
        self._generators: LiveGenerators | None = None
        self._abandoned: Sequence[AsyncGenerator[Any, Any]] = ()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "ended" if self.done else f"{len(self._pending)} pending"
        return f"<RunLoop of run {self.run_id}: {state}>"

    # --- for the driver ----------------------------------------------------------------------------------------------

    def begin(self, main: Callable[[], Coroutine[Any, Any, Any]], *, context: Context | None = None) -> None:
        """Start the function, or what follows its end, and run it up to the first thing it has to wait for."""
        if (self.main is not None and not self.main.done()) or self._closed:
            raise RuntimeError(f"run {self.run_id} was begun already; make a new RunLoop to run it again")
        self.outer, self._outcome = _get_running_loop(), None
        before = self._enter(self.outer)
        try:
            branch = self._branches.setdefault("", Branch(""))
            self.main = self._new_task(main(), branch, context=context)
            self._run_dry()
        finally:
            self._leave(before)

    def deliver(self, entry: Entry) -> None:
        """Let one entry of the history in, and run the function until it waits again.

        Raises `NonDeterminism` if the code did not ask for this, and `fault` if this turn broke a rule: either way the
        run is to be evicted. An entry for a request that the code has withdrawn meanwhile changes nothing.
        """
        if self.main is None or self._closed:
            raise RuntimeError(f"run {self.run_id} is not in memory; begin a new RunLoop and deliver its history")
        before = self._enter(_get_running_loop())
        try:
            self.now_us = max(self.now_us, entry.at_us)  # I56: a run's time never goes back
            if self._apply(entry):
                self._run_dry()
        finally:
            self._leave(before)

    def answer(self, pending: Pending, value: Any, at_us: int) -> None:
        """`deliver`, on the loop where it began, for what most entries are: the result of a request that waits."""
        before = self._enter(self.outer)
        try:
            if at_us > self.now_us:  # I56
                self.now_us = at_us
            if self.main is not None and not self.main.done():
                del self._pending[pending.address]
                self.fresh.pop(pending.address, None)
                pending.future.set_result(value)
                self._run_dry()
        finally:
            self._leave(before)

    def new_requests(self) -> list[Pending]:
        """Hand over the requests made since the last call and not withdrawn, in order. Never call it in a replay."""
        fresh = list(self.fresh.values())
        self.fresh.clear()
        return fresh

    def withdrawn_requests(self) -> list[Pending]:
        """Hand over the requests that the driver took and the code has given up since: in-flight work may stop."""
        withdrawn, self.withdrawn = self.withdrawn, ()
        return list(withdrawn)

    def asked_for(self, address: str, *, timer: bool = False) -> bool:
        """Return whether the code has come to this address, whatever became of its request."""
        name, _, number = address.rpartition(TIMER_MARK if timer else CALL_MARK)
        branch = self._branches.get(name)
        asked = 0 if branch is None else branch.timers if timer else branch.calls
        return number.isdigit() and int(number) <= asked

    def next_timer(self) -> tuple[str, int] | None:
        """Return address and due time of the timer to fire first, if there is one."""
        if not self.timers.heap:
            return None
        timer = self.timers.earliest()
        return None if timer is None else (timer.address, timer.due_us)

    @property
    def done(self) -> bool:
        """Whether the function has ended. Tasks it left running count for nothing: they are evicted."""
        return self._outcome is not None or (self.main is not None and self.main.done())

    def outcome(self) -> Outcome:
        """Return how the function ended; `error` is asyncio.CancelledError if it let a cancel through."""
        if self._outcome is not None:
            return self._outcome
        if self.main is None or not self.main.done():
            raise RuntimeError(f"run {self.run_id} has not ended; look at `done` first")
        try:
            error = self.main.exception()
        except asyncio.CancelledError as cancelled:
            error = cancelled
        value, told = (self.main.result(), None) if error is None else (None, translated(self.run_id, error))
        self._outcome = Outcome(value, told)
        return self._outcome

    def stuck(self) -> str | None:
        """Say where the function waits if nothing durable can ever wake it; None if it has ended or may be woken."""
        if self.main is None or self._closed or self.main.done() or self._ready or self._pending or len(self.timers):
            return None
        lines = [
            f"{'the function' if not task.branch.name else 'task ' + task.get_name()} at "
            f"{self.line_of_task(task) or UNKNOWN_LINE}"
            for task in self._tasks.values()
            if not task.done()
        ]
        return f"run {self.run_id} waits for something that no action, timer or event can complete: {'; '.join(lines)}"

    @property
    def over(self) -> bool:
        """Whether all of its code has come to its end: then there is nothing to close, and evicting it is no turn."""
        return self.main is not None and self._generators is None and all(map(RunTask.done, self._tasks.values()))

    def evict(self) -> None:
        """Take the run out of memory: its code is closed, and nothing that it does on the way out has an effect."""
        if self._closed:
            return
        before = None if self.over else self._enter(_get_running_loop())
        self._closed = True
        try:
            for held in (self._ready, self._pending, self.fresh):
                held.clear()
            self._abandoned, self.withdrawn, self.timers = (), (), NO_TIMERS
            if before is not None:
                close_everything(self, self._tasks, self._generators)
        finally:
            self._tasks.clear()
            if before is not None:
                self._leave(before)
            # The loop holds its tasks, and they hold the loop: without this only a collection would free them.
            if self.done:
                self.outcome()
            self.main = self.on_fault = None

    # --- for code inside the run -------------------------------------------------------------------------------------

    def request(self, kind: str, name: str, digest: str, payload: Any) -> RunFuture:
        """Ask for something durable at the next address of the current branch; the answer comes as an entry."""
        if self._closed:
            return self._new_future(0)  # never answered: whoever awaits it is being closed
        task: Any = current_task(self)
        branch = task.branch if task.__class__ is RunTask else self._current_branch()
        if branch.collected and not branch.calls:
            warn_of_abandoned_generator(self.run_id, name)
        future = RequestFuture(loop=self)
        branch.calls += 1
        future.address = address = f"{branch.name}{CALL_MARK}{branch.calls}"
        future.mark = self.next_mark()
        self._pending[address] = self.fresh[address] = Pending(address, kind, name, digest, payload, future)
        self._asked += 1
        return future

    def _new_future(self, mark: int) -> RunFuture:
        future = RunFuture(loop=self)
        future.mark = mark
        return future

    def withdraw(self, address: str) -> None:
        """Forget a request whose future was cancelled."""
        pending = self._pending.pop(address, None)
        if pending is not None and self.fresh.pop(address, None) is None:
            self.withdrawn = extended(self.withdrawn, pending)

    def branch(self) -> str:
        """Return the name of the current branch: "" in the main task, "~" in a done-callback."""
        return self._current_branch().name

    def rng(self) -> random.Random:
        """Return the current branch's random.Random, seeded by run and branch (I56)."""
        return generator_of(self.seed, self._current_branch())

    def next_uuid(self) -> UUID:
        """Return the current branch's next UUID, the same in every replay (I56)."""
        return next_uuid(self.seed, self._current_branch())

    def next_mark(self) -> int:
        """Return the hash of the next object that the run makes."""
        if self._collected is not None and self._current_branch().collected:
            return self._next_collected_mark()
        self._mark += 1
        return self._mark

    def _next_collected_mark(self) -> int:
        self._collected_mark = (self._collected_mark or first_mark(self.run_id, COLLECTED)) + 1
        return self._collected_mark

    def _current_branch(self) -> Branch:
        task: Any = current_task(self)
        if task is None:
            if not self.is_running():
                raise self._woken_from_outside("used")
            return self._branches.setdefault(CALLBACKS, Branch(CALLBACKS))
        if task.__class__ is not RunTask:
            raise self._task_made_by_hand()
        branch: Branch = task.branch
        return branch

    # --- asyncio's loop ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now_us / MICROSECONDS

    def is_running(self) -> bool:
        return self._thread == get_ident()

    def is_closed(self) -> bool:
        return self._closed

    def create_future(self) -> RunFuture:
        odd = waited_without_mark(sys._getframe(1))
        if odd is not None and not self._closed:
            raise self.not_durable(
                f"asyncio.wait() for {type(odd).__name__.lstrip('_')}, whose place in a set differs in a replay,",
                "wait for tasks that this function made with asyncio.create_task() or a TaskGroup",
            )
        return self._new_future(self.next_mark())

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None, **options: Any) -> RunTask:
        if self._closed:
            coro.close()
            task = RunTask(coro, loop=self, branch=Branch(CALLBACKS), mark=0, name=name, context=context)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            return task
        if made_by_as_completed(coro, sys._getframe(1)):
            coro.close()
            raise self.not_durable(
                "asyncio.as_completed() over coroutines, whose order in a set differs in a replay,",
                "pass calls of actions, or wrap each coroutine in asyncio.create_task()",
            )
        branch = self._current_branch().next_child()
        self._branches[branch.name] = branch
        return self._new_task(coro, branch, name=name, context=context, **options)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self._closed:
            return handle
        if self._thread != get_ident():
            raise self._woken_from_outside("woken")
        owner: Any = getattr(callback, "__self__", None)
        if owner.__class__ is not RunTask and isinstance(owner, asyncio.Task):  # made by hand: it has no branch
            owner._log_destroy_pending = False  # type: ignore[attr-defined]
            owner.get_coro().close()  # it will never run, and Python need not complain of that as well
            raise self._task_made_by_hand()
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            return asyncio.Handle(callback, args, self, context)
        if self.is_running():
            raise self.not_durable("loop.call_soon_threadsafe()", "threads belong into an @action")
        raise self._woken_from_outside("woken")

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> RunTimer:
        return self._add_timer(self.now_us + microseconds(delay), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> RunTimer:
        return self._add_timer(microseconds(when), callback, args, context)

    def _add_timer(
        self, due_us: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> RunTimer:
        if self._closed:
            return RunTimer("", due_us, callback, args, self, context)
        timer = RunTimer(self._current_branch().next_timer(), due_us, callback, args, self, context)
        if self.timers is NO_TIMERS:
            self.timers = RunTimers()
        self.timers.add(timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, RunTimer):
            self.timers.take(handle.address)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if len(self.complaints) < _COMPLAINTS_KEPT and not self._closed:
            self.complaints = extended(self.complaints, Complaint(str(context.get("message", "")), error))
        # A callback has nobody who awaits it, so what it did wrong fails the run itself.
        if isinstance(error, NotDurable) and "handle" in context and self.fault is None:
            self.fault = error

    # --- turns -------------------------------------------------------------------------------------------------------

    def _enter(self, outer: asyncio.AbstractEventLoop | None) -> Outside:
        task = None
        if outer is not None:
            if isinstance(outer, RunLoop):
                inside = "its own turn" if outer is self else f"a turn of run {outer.run_id}"
                raise RuntimeError(f"a turn of run {self.run_id} was started inside {inside}; start it outside of them")
            if (task := current_task(outer)) is not None:
                _leave_task(outer, task)
        hooks = sys.get_asyncgen_hooks()
        if self._ready is _NOTHING_READY:
            self._ready = deque()
        self._thread = get_ident()
        _set_running_loop(self)
        sys.set_asyncgen_hooks(self._generator_begins, self._generator_abandoned)
        if (watchdog := self._watchdog) is not None:
            watchdog.turn_begins(self.run_id, _BOUNDARY)
        if self._abandoned:
            abandoned, self._abandoned = self._abandoned, ()
            for generator in abandoned:
                self._generator_abandoned(generator)
        return outer, task, hooks

    def _leave(self, before: Outside) -> None:
        outer, task, hooks = before
        if not self._ready:
            self._ready = _NOTHING_READY
        if self._watchdog is not None:
            self._watchdog.turn_ends()
        sys.set_asyncgen_hooks(*hooks)
        self._thread = 0
        _set_running_loop(outer)
        if outer is not None and task is not None:
            _enter_task(outer, task)

    def _run_dry(self) -> None:
        """Run what is ready until nothing is: the quiet that must lie between two entries (I49)."""
        ready = self._ready
        allowed, asked = self.quota, self._asked
        while ready:
            if not allowed:
                # A wide fan-out is work, not a spin: every request made since pays for some callbacks.
                allowed = (self._asked - asked) * _CALLBACKS_FOR_A_REQUEST
                asked = self._asked
                if not allowed:
                    self.fault = self._spins(ready[0])
                    break
            allowed -= 1
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._run()
                except SystemExit:
                    # The task holds it as its exception and fails the run with it; the worker goes on.
                    continue
        if self.fault is not None:
            raise self.fault

    def _apply(self, entry: Entry) -> bool:
        """Do what the entry says. Returns False if it says nothing any more."""
        main, kind = self.main, entry.kind
        if kind == CANCEL:
            return main is not None and main.cancel(entry.value if isinstance(entry.value, str) else None)
        if kind == TIMER:
            timer = self.timers.take(entry.address)
            if timer is None:
                return self._skip(entry)
            if entry.digest and entry.digest != str(timer.due_us):
                line = self.line_of_branch(entry.address.rpartition(TIMER_MARK)[0])
                raise timer_differs(self.run_id, entry, timer.due_us, line or UNKNOWN_LINE)
            # Clocks differ a little; to the code no timer is early.
            self.now_us = max(self.now_us, timer.due_us)
            self._ready.append(timer)
            return not self.done
        if kind not in (RESULT, ERROR):
            known = "known are result, error, timer and cancel"
            raise ValueError(f"run {self.run_id}: an entry of kind {kind!r} at {entry.address}; {known}")
        pending = self._pending.get(entry.address)
        if pending is None:
            return self._skip(entry)
        if entry.name != pending.name or entry.digest != pending.digest:
            raise asked_for_something_else(self.run_id, entry, pending)
        if main is None or main.done():
            return False
        del self._pending[entry.address]
        self.fresh.pop(entry.address, None)
        if kind == RESULT:
            pending.future.set_result(entry.value)
        else:
            pending.future.set_exception(raisable(entry.value))
        return True

    def _skip(self, entry: Entry) -> bool:
        """I48: nobody waits at the address. That is right if the code asked there once and gave up, else never."""
        if not self.asked_for(entry.address, timer=entry.kind == TIMER):
            raise never_asked_for(self.run_id, entry, self._pending.values(), self.done)
        return False

    def _new_task(self, coro: Coroutine[Any, Any, Any], branch: Branch, **options: Any) -> RunTask:
        # The collector may interrupt a branch of the user's: its task must not take that branch's mark either.
        mark = self._next_collected_mark() if branch.collected else self.next_mark()
        task = RunTask(coro, loop=self, branch=branch, mark=mark, **options)
        if len(self._tasks) >= self._sweep_at:
            self._tasks = {name: task for name, task in self._tasks.items() if not task.done()}
            self._sweep_at = 2 * len(self._tasks) + _TASKS_BEFORE_A_SWEEP
        self._tasks[branch.name] = task
        return task

    # --- async generators --------------------------------------------------------------------------------------------

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._generators is None:
            self._generators = LiveGenerators()
        self._generators.add(generator)

    def _generator_abandoned(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that the code dropped halfway; Python calls this when it is about to be freed."""
        if self._closed or self.done:
            return  # Python frees it without running its code
        self._generator_begins(generator)  # Python has just cleared all weak references to it
        if not self.is_running():
            # Found by a collection in somebody else's time: at our next turn.
            self._abandoned = extended(self._abandoned, generator)
            return
        if self._collected is None:
            self._collected = Branch(COLLECTED, collected=True)
        branch = self._collected.next_child()
        self._branches[branch.name] = branch
        closing: Any = generator.aclose()
        self._new_task(closing, branch)

    # --- errors and lines --------------------------------------------------------------------------------------------

    def not_durable(self, what: str, hint: str) -> NotDurable:
        told = f"run {self.run_id} used {what} at {self._current_line()}, which can't be repeated"
        return NotDurable(told, hint=hint)

    def _task_made_by_hand(self) -> NotDurable:
        return self.not_durable("a task that was not made by its own loop", "make tasks with asyncio.create_task()")

    def _woken_from_outside(self, how: str) -> NotDurable:
        line = line_of_stack(sys._getframe(1), _BOUNDARY) or "a callback of another loop"
        waiting = "; ".join(filter(None, (self.line_of_task(task) for task in self._tasks.values() if not task.done())))
        fault = NotDurable(
            f"run {self.run_id} was {how} from outside by {line}, while it waits at {waiting or UNKNOWN_LINE}",
            hint="let an event, an action or another run complete what the function waits for",
        )
        if self.fault is None and not self.done:
            self.fault = fault
            if self.on_fault is not None:
                self.on_fault()
        return fault

    def _spins(self, handle: asyncio.Handle) -> NotDurable:
        owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        line = self.line_of_task(owner) if isinstance(owner, RunTask) else ""
        return spins(self.run_id, self.quota, line or UNKNOWN_LINE)

    def line_of_task(self, task: RunTask) -> str:
        """Return the user's line at which a task waits, or else at which the task that made it does."""
        line = "" if task.done() else line_of_await(task.get_coro())
        return line or line_of_parents(task.branch, self._branches, self._tasks)

    def line_of_branch(self, name: str) -> str:
        """Return the user's line at which a branch waits, or "" if it has ended."""
        task = self._tasks.get(name)
        return "" if task is None else self.line_of_task(task)

    def _current_line(self) -> str:
        line = line_of_stack(sys._getframe(1), _BOUNDARY)
        if not line:
            task: Any = current_task(self)
            if task.__class__ is RunTask:
                line = line_of_parents(task.branch, self._branches, self._tasks)
        return line or UNKNOWN_LINE


# Below these frames of a stack lies the program that drives the run.
_BOUNDARY: Final[frozenset[CodeType]] = frozenset(
    function.__code__ for function in (RunLoop.begin, RunLoop.deliver, RunLoop.evict)
)
