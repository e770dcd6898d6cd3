"""Functions that wait for events on a real engine, and the model of them, driven by the same hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import holdfast as hf
from holdfast.core.rows import EVENTS
from tests.reliability.models.event_model import LATE, Post
from tests.reliability.models.virtual import engine_on
from tests.support.stores import Site, every_row

T = TypeVar("T")
registry = hf.Registry()
NAMES = ("a", "b", "c")
MOST_LISTENERS = 5


@hf.workflow(registry=registry)
async def listen(stages: list[list[str]], patience: float | None) -> list[Any]:
    heard: list[Any] = []
    for names in stages:
        wanted: Any = hf.any_of(*names) if patience is None else hf.any_of(*names, hf.after(patience))
        came = await hf.wait_for(wanted)
        heard.append(came.value if isinstance(came, hf.Received) else LATE)
        hf.expose("heard", lambda: list(heard))
    return heard


class Events(RuleBasedStateMachine):
    """Sends, broadcasts, deadlines and cancels, in any order; no two things happen at the same instant."""

    site: Callable[[], Site]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.post = Post()
        self.handles: list[hf.Handle[Any]] = []
        self.values = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def open(self) -> None:
        opened = engine_on(type(self).site(), registry)
        self.engine, self.clock = self.run(self.stack.enter_async_context(opened))

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()

    def _pass(self, seconds: float = 1.0) -> None:
        self.run(self.clock.advance(seconds))
        self.post.wait(seconds)

    # -- what is done

    @rule(
        stages=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True), min_size=1, max_size=3),
        patience=st.sampled_from([None, None, 10.5, 100.5]),
    )
    @precondition(lambda self: len(self.handles) < MOST_LISTENERS)
    def listen(self, stages: list[list[str]], patience: float | None) -> None:
        self.handles.append(self.run(self.engine.start(listen, stages, patience)))
        self.run(self.engine.settle(timeout=10))
        self.post.listen(stages, patience)
        self._pass()

    def _next(self) -> tuple[int, str]:
        self.values += 1
        return self.values, f"e{self.values:05}"

    @rule(place=st.integers(0, 9), name=st.sampled_from(NAMES), again=st.booleans())
    @precondition(lambda self: self.handles)
    def send(self, place: int, name: str, again: bool) -> None:
        to = place % len(self.handles)
        value, id = self._next()
        for _ in range(2 if again else 1):
            sent = self.run(self.engine.send(name, value, to=self.handles[to], id=id))
            self.run(self.engine.settle(timeout=10))
            expected = self.post.send(to, name, value, id)
            assert not expected or type(sent).__name__ == expected, f"{sent}, and should be {expected}"
        self._pass()

    @rule(name=st.sampled_from(NAMES), to_all=st.booleans(), again=st.booleans())
    def broadcast(self, name: str, to_all: bool, again: bool) -> None:
        value, id = self._next()
        for _ in range(2 if again else 1):
            sent = self.run(self.engine.broadcast(name, value, to_all=to_all, id=id))
            self.run(self.engine.settle(timeout=10))
            expected = self.post.broadcast(name, value, id, to_all=to_all)
            assert not expected or type(sent).__name__ == expected, f"{sent}, and should be {expected}"
        self._pass()

    @rule(place=st.integers(0, 9))
    @precondition(lambda self: self.handles)
    def cancel(self, place: int) -> None:
        to = place % len(self.handles)
        changed = self.run(self.handles[to].cancel(force=True))
        self.run(self.engine.settle(timeout=10))
        assert changed == self.post.cancel(to)
        self._pass()

    @rule(seconds=st.sampled_from([5.0, 50.0, 500.0]))
    def wait(self, seconds: float) -> None:
        self._pass(seconds)

    # -- and all the time

    @invariant()
    def all_heard_what_the_model_says(self) -> None:
        for handle, listener in zip(self.handles, self.post.listeners, strict=True):
            status = self.run(handle.status())
            shown = "open" if status in ("pending", "running", "suspended") else status
            assert shown == listener.status, f"{handle.id} is {status}: {listener}"
            if status == "completed":
                assert self.run(handle.result(1)) == listener.heard
            elif shown == "open" and listener.heard:
                assert self.run(handle.query("heard")) == listener.heard, listener

    @invariant()
    def what_nobody_took_is_still_there(self) -> None:
        """G5: an event is consumed once or is still stored, never neither."""
        if not self.handles:
            return
        rows = self.run(every_row(self.engine.store))[EVENTS.name]
        kept = sorted((event.name, event.payload) for event in rows if event.status == "queued")
        wanted = [*self.post.broadcasts, *(each for listener in self.post.listeners for each in listener.mailbox)]
        assert kept == sorted((name, str(value).encode()) for name, value in wanted)
