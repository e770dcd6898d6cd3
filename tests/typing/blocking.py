"""The blocking front under the type checker: what must pass, and lines that must fail. Never run, only checked."""

from __future__ import annotations

import threading
from typing import Any, assert_type

import holdfast as hf
from holdfast.blocking import BlockingEngine, BlockingHandle
from holdfast.runtime.worker import Worker


@hf.action
async def greet(name: str) -> str:
    return name


@hf.action
def count(upto: int = 3) -> int:
    return upto


class Order(hf.Dag):
    order_id: int

    @hf.step
    async def validate(self) -> None: ...


def results_keep_their_types() -> None:
    with hf.Engine("memory://").blocking() as engine:
        assert_type(engine, BlockingEngine)
        assert_type(engine.start(greet, "Ada"), BlockingHandle[str])
        assert_type(engine.start(greet, "Ada", key="ada").result(timeout=1), str)
        assert_type(engine.start(count.bind()).result(), int)
        assert_type(engine.run(greet, "Ada"), str)
        assert_type(engine.run("greet", "Ada"), Any)
        assert_type(engine.start(Order(order_id=1)), BlockingHandle[None])
        assert_type(engine.get("id"), BlockingHandle[Any])
        assert_type(engine.start(greet, "Ada").status(), str)
        assert_type(engine.start(greet, "Ada").cancel(), bool)
        with engine.worker(concurrency=3) as worker:
            assert_type(worker, Worker)
        engine.run_worker(stop=threading.Event())


def wrong_calls_are_found(engine: BlockingEngine) -> None:
    engine.start(greet, 7)  # type: ignore[arg-type]
    engine.start(greet, "Ada", prioriti=1)  # type: ignore[call-overload]
    engine.start(greet, "Ada", tx=object())  # type: ignore[call-overload]
    engine.start(greet, "Ada").result(wait="long")  # type: ignore[call-arg]
    engine.worker(concurrency="3")  # type: ignore[arg-type]


async def nothing_is_awaited(engine: BlockingEngine) -> None:
    await engine.stats()  # type: ignore[misc]
