"""Names and values that would be statements if somebody pasted them into one: stored, found and shown as they are."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.core.rows import TABLES
from tests.reliability.hostile.damage import rows_of

WORDS = (
    "'; DROP TABLE runs; --",
    '"; DELETE FROM work WHERE ""=""',
    "x' OR '1'='1",
    "$1 ? :name %s %(name)s {0} {name}",
    "\\'; COPY runs TO PROGRAM 'id'; --",
    "%_[]^-*?\\",
    "E'\\x27' || chr(39) || U&'\\0027'",
    "Robert'); /* */ 💣 ﷽ ÄẞıİK",
)
DEADLINE_SECONDS = 20.0


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory://"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


def world_of(word: str) -> tuple[hf.Registry, Any, Any, Any]:
    """Definitions that bear the word as their name."""
    registry = hf.Registry()

    @hf.action(registry=registry, name=f"action {word}", queue=f"queue {word}")
    async def echo(text: str) -> str:
        return text

    @hf.workflow(registry=registry, name=f"function {word}")
    async def listen(text: str) -> list[Any]:
        heard = await hf.wait_for(f"event {word}")
        assert isinstance(heard, hf.Received)
        return [await echo(text), heard.value]

    builder = hf.DagBuilder(f"dag {word}", registry=registry)
    builder.node(f"one {word}", job=echo, args={"text": word})
    builder.node(f"two {word}", job=echo, args={"text": word})
    return registry, echo, listen, builder.build()


@pytest.mark.parametrize("word", WORDS)
async def test_words_that_are_sql_are_only_words(url: str, word: str) -> None:
    registry, echo, listen, dag = world_of(word)
    engine = hf.Engine(url, registry=registry, poll_seconds=0.05)
    async with engine, engine.worker(queues=["default", f"queue {word}"]):
        run = await engine.start(echo, word, key=word, tags={word: word})
        assert await run.result(DEADLINE_SECONDS) == word
        assert (await engine.start(echo, word, key=word)).id == run.id
        function = await engine.start(listen, word, key=word)
        await engine.send(f"event {word}", word, to=function, id=word)
        assert await function.result(DEADLINE_SECONDS) == [word, word]
        built = await engine.start(dag, key=word)
        await built.result(DEADLINE_SECONDS)
        assert [state.name for state in await built.nodes_with_state()] == [f"one {word}", f"two {word}"]
        assert [found.id for found in await engine.find(tags={word: word})] == [run.id]
        assert [found.id for found in await engine.find(workflow=f"action {word}")] == [run.id]
        paused = await engine.start(echo, word, paused=True)
        await paused.resume(by=word)
        await paused.pause(by=word, reason=word)
        await paused.cancel(by=word)
        await engine.maintenance(True, queue=word)
        await engine.maintenance(False, queue=word)
        assert await engine.find(workflow=word) == []
        for each in (run, function, built, paused):
            await each.explain()
            await each.history()
        with pytest.raises(hf.HoldfastError):
            await engine.get(word).status()
        await engine.broadcast(f"other {word}", word, id=word)
        await engine.dead()
        await engine.stats()
        assert not [each for each in await engine.doctor() if each.severity == "error" and each.subject in TABLE_NAMES]
    if not url.startswith("memory"):
        async with rows_of(url) as rows:
            for table in TABLES:  # all of them are still there
                await rows.fetch(f"SELECT count(*) AS n FROM {table.name}")


TABLE_NAMES = {table.name for table in TABLES}
