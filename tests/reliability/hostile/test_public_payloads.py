"""Values that no payload may hold, through every door: refused with our own error before a row is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from tests.badinput.checks import row_counts
from tests.reliability.hostile.victims import Put, Till, ask, engine_on, graph_state, greet, listen

DEADLINE_SECONDS = 20.0


class Harmless: ...


def _circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _deep(levels: int) -> Any:
    value: Any = 7
    for _ in range(levels):
        value = [value]
    return value


HARMFUL: dict[str, Callable[[], Any]] = {
    "nan": lambda: math.nan,
    "infinity": lambda: math.inf,
    "too many bits": lambda: 2**70,
    "half a character": lambda: "\ud800",
    "a key that is half a character": lambda: {"\udfff": 1},
    "a key that is no text": lambda: {1: 1},
    "a tuple": lambda: (1, 2),
    "a set": lambda: {1},
    "nested too deeply": lambda: _deep(500),
    "itself": _circular,
    "a class": lambda: Harmless,
    "a function": lambda: _deep,
    "a generator": lambda: (each for each in "x"),
    "an object": object,
    "a lock": lambda: __import__("threading").Lock(),
    "a module": lambda: math,
    "too large": lambda: "x" * (3 << 20),
    "bytes": lambda: b"\x00\xff",
    "an exception": lambda: ValueError("x"),
}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory://"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


async def test_i14_no_door_lets_a_harmful_value_in(url: str) -> None:
    """Starts, keys, tags, events, commands, answers, forks: all of them refuse, alike on all stores."""
    async with engine_on(url) as engine, engine.worker():
        waiting = await engine.start(listen, "Ada")
        asking = await engine.start(ask, graph_state(asks=True))
        await engine.settle(timeout=DEADLINE_SECONDS)
        doors: dict[str, Callable[[Any], Any]] = {
            "start": lambda value: engine.start(greet, value),
            "start by name": lambda value: engine.start("greet", value),
            "start a graph": lambda value: engine.start(ask, {**graph_state(asks=False), "name": value}),
            "start a graph with a value": lambda value: engine.start(ask, value),
            "start what": lambda value: engine.start(value, "x"),
            "key": lambda value: engine.start(greet, "x", key=value),
            "queue": lambda value: engine.start(greet, "x", queue=value),
            "tags": lambda value: engine.start(greet, "x", tags={"a": value}),
            "all tags": lambda value: engine.start(greet, "x", tags=value),
            "priority": lambda value: engine.start(greet, "x", priority=value),
            "at": lambda value: engine.start(greet, "x", at=value),
            "send": lambda value: engine.send("other", value, to=waiting),
            "send what": lambda value: engine.send(value, 1, to=waiting),
            "send under": lambda value: engine.send("other", 1, to=waiting, id=value),
            "send whom": lambda value: engine.send("other", 1, to=value),
            "broadcast": lambda value: engine.broadcast("other", value),
            "execute": lambda value: engine.execute(Till, value),
            "execute for": lambda value: engine.execute(Till, Put(value)),
            "execute under": lambda value: engine.execute(Till, Put("x"), command_id=value),
            "execute_dynamic": lambda value: engine.execute_dynamic("till", {"type": "Put", "till": value}),
            "enqueue_input": lambda value: engine.enqueue_input(Till, {"type": value}),
            "resume_with": lambda value: asking.resume_with(value),
            "fork": lambda value: engine.fork(asking.id, step=0, update={"name": value}),
            "fork with": lambda value: engine.fork(asking.id, step=0, update=value),
            "import_dag": lambda value: asking.import_dag(value),
            "get": lambda value: engine.get(value).status(),
            "find": lambda value: engine.find(workflow=value, tags={"a": value}),
        }
        before = await row_counts(engine)
        let_in = []
        for door, enter in doors.items():
            for name, make in HARMFUL.items():
                try:
                    await enter(make())
                except hf.HoldfastError:
                    continue
                except Exception as error:
                    let_in.append(f"{door} of {name} raised {error!r:.200}")
                else:
                    let_in.append(f"{door} of {name} was accepted")
        assert not let_in, "\n".join(let_in)
        assert await row_counts(engine) == before
        assert await engine.run(greet, "Bob", timeout=DEADLINE_SECONDS) == "Hello, Bob!"
