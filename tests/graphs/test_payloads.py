"""I14: states, records and questions of graphs: encrypted where the engine's codec does that, and refused when huge."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import holdfast as hf
from holdfast.runtime.recorded_calls import hash_of
from tests.support.stores import every_row, execute
from tests.worker import codec_jobs
from tests.worker.support import assert_sound, engine_on, until, work_of

SECONDS = 30.0
SECRET = "midnight-blue"


class Notes(TypedDict, total=False):
    word: str
    notes: Annotated[list[str], hf.reducers.append]
    table: Annotated[dict[str, str], hf.reducers.merge_dicts]


def secretive(registry: hf.Registry, called: Counter[str]) -> hf.StateGraph[Notes]:
    """Everything that is stored of it holds the word: input, deltas, sent items, records, questions, answers."""
    graph = hf.StateGraph(Notes, name="secretive", registry=registry)

    @graph.node(goes_to=("leaf",))
    async def fan(state: Notes) -> Any:
        return hf.Many([hf.Send("leaf", {"word": f"{state['word']} {number}"}) for number in range(3)])

    @graph.node(recordable=True, label="told")
    async def leaf(state: Notes, ctx: hf.NodeContext) -> Any:
        def call() -> dict[str, str]:
            called["call"] += 1
            return {"heard": state["word"]}

        heard = await ctx.record("ask", {"word": state["word"]}, call)
        said = await ctx.interrupt({"about": state["word"]})
        return {"notes": [f"{heard['heard']} {said}"], "table": {f"{n} {state['word']}": "x" * 40 for n in range(20)}}

    @graph.node
    async def last(state: Notes) -> Any:
        return {"table": {f"last {state['word']}": state["word"]}}

    graph.start_at("fan")
    graph.edge("leaf", "last")
    graph.finish("last")
    return graph


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_i14_a_codec_of_ones_own_leaves_nothing_in_the_clear(request: pytest.FixtureRequest, store: str) -> None:
    """I14: neither in checkpoints and frontiers nor in work, records, history or the run itself; all of it can be
    read, replayed, forked and merged again by an engine with the codec."""
    url = "memory://" if store == "memory" else str(request.getfixturevalue(f"{store}_url"))
    registry, called = hf.Registry(), Counter[str]()
    graph = secretive(registry, called)
    async with engine_on(url, registry, codec=codec_jobs.sealed) as engine, engine.worker():
        handle = await engine.start(graph, {"word": SECRET, "notes": [], "table": {}})
        for _ in range(3):
            await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
            question = (await handle.interrupts())[0]
            assert SECRET in question.payload["about"]
            await handle.resume_with(f"answered {SECRET}", node=question.node)
        result = await handle.result(timeout=SECONDS)
        assert len(result["notes"]) == 3
        fork = await engine.fork(handle.id, label="told", update={"word": f"{SECRET} forked"})
        assert f"last {SECRET} forked" in (await fork.result(timeout=SECONDS))["table"]
        stored = await every_row(engine.store)
        for table, rows in stored.items():
            assert SECRET not in repr(rows), f"{table} holds it in the clear"
        assert stored["recorded"]
        assert stored["checkpoints"]
        report = await engine.replay(handle.id)
        assert report.ok, report.differences
        assert report.state == result
        assert SECRET in (await handle.checkpoint(step=1)).frontier[0].state["word"]
        assert SECRET in (await handle.recorded())[0].request["word"]
    assert called["call"] == 3


@pytest.mark.parametrize("codecs", [("json", "msgpack"), ("msgpack", "json")])
async def test_i14_codecs_may_change_in_the_middle_of_a_run(sqlite_url: str, codecs: tuple[str, str]) -> None:
    """I14: each row says how it was written; digests do not depend on it."""
    registry, called = hf.Registry(), Counter[str]()
    graph = secretive(registry, called)
    digests = []
    for other in (codecs[1], codecs[0]):
        async with engine_on(sqlite_url, registry, codec=codecs[0]) as engine, engine.worker():
            handle = await engine.start(graph, {"word": "w", "notes": [], "table": {}})
            await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        async with engine_on(sqlite_url, registry, codec=other) as engine, engine.worker():
            mine = engine.get(handle.id)
            while (questions := await until(partial(_asked_or_ended, engine, mine), "it goes on")) is not True:
                await mine.resume_with("yes", node=questions[0].node)
            await mine.result(timeout=SECONDS)
            assert (await engine.replay(handle.id)).ok
            digests.append([each.state_digest for each in await mine.checkpoints()])
    assert digests[0] == digests[1]


async def _asked_or_ended(engine: hf.Engine, handle: hf.Handle[Any]) -> Any:
    (row,) = await engine.store.runs([handle.id])
    return True if row.ended else await handle.interrupts()


LIMIT = 10_000


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_i14_what_is_too_large_is_refused_before_anything_is_written(
    request: pytest.FixtureRequest, store: str
) -> None:
    """I14: an input, a delta, a sent item, a request, a response, a question and an answer; each names itself."""
    url = "memory://" if store == "memory" else str(request.getfixturevalue(f"{store}_url"))
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="huge", registry=registry)
    huge = "x" * (LIMIT + 1)

    @graph.node(recordable=True, goes_to=("large",))
    async def large(state: Notes, ctx: hf.NodeContext) -> Any:
        match state["word"]:
            case "delta":
                return {"notes": [huge]}
            case "sent":
                return hf.Send("large", {"word": huge})
            case "request":
                return {"word": await ctx.record("r", {"q": huge}, lambda: "fine")}
            case "response":
                return {"word": await ctx.record("r", {}, lambda: huge)}
            case "question":
                return {"word": await ctx.interrupt(huge)}
            case _:
                return hf.Stop({"word": await ctx.interrupt("short")})

    graph.start_at("large")
    graph.finish("large")
    async with engine_on(url, registry, payload_limit_bytes=LIMIT) as engine, engine.worker():
        before = await every_row(engine.store)
        with pytest.raises(hf.HoldfastError, match=r"word.*10"):
            await engine.start(graph, {"word": huge, "notes": [], "table": {}})
        assert await every_row(engine.store) == before
        for what in ("delta", "sent", "request", "response", "question"):
            handle = await engine.start(graph, {"word": what, "notes": [], "table": {}})
            with pytest.raises(hf.RunFailed, match=r"10"):
                await handle.result(timeout=SECONDS)
            assert await handle.recorded() == [], what
            assert (await handle.checkpoint()).step_id == 0
            (row,) = await work_of(engine, handle.id)
            assert (row.status, row.result) == ("failed", None), what
        handle = await engine.start(graph, {"word": "answer", "notes": [], "table": {}})
        await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        with pytest.raises(hf.HoldfastError, match=r"answer.*10"):
            await handle.resume_with(huge)
        assert len(await handle.interrupts()) == 1
        await handle.resume_with("short as well")
        assert (await handle.result(timeout=SECONDS))["word"] == "short as well"
        with pytest.raises(hf.HoldfastError, match=r"word.*10"):
            await engine.fork(handle.id, step=0, update={"word": huge})
        await assert_sound(engine)


async def test_i45_secrets_in_requests_are_redacted_by_rule_and_replay_does_not_miss_them(sqlite_url: str) -> None:
    """I45: the usual names and the graph's own rules, at any depth; another secret is no other request."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="redacted", registry=registry, redact=["passphrase"])
    token = "first-token"

    @graph.node(recordable=True)
    async def ask(state: Notes, ctx: hf.NodeContext) -> Any:
        request = {
            "q": "open",
            "headers": [{"Authorization": token}, {"X-Api-Key": token}],
            "Passphrase": token,
            "deep": {"password": {"any": token}},
        }
        return {"word": await ctx.record("ask", request, lambda: "fine")}

    graph.start_at("ask")
    graph.finish("ask")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"word": "", "notes": [], "table": {}})
        await handle.result(timeout=SECONDS)
        (record,) = await handle.recorded()
        assert record.request == {
            "q": "open",
            "headers": [{"Authorization": "***"}, {"X-Api-Key": "***"}],
            "Passphrase": "***",
            "deep": {"password": "***"},
        }
        assert "first-token" not in repr(await every_row(engine.store))
        token = "second-token"
        assert (await engine.replay(handle.id)).ok


async def test_i45_tokens_and_cookies_are_secrets_and_counts_of_tokens_are_not(sqlite_url: str) -> None:
    """I45: also in runs that recorded them before the rule existed: the same request is still the same."""
    secrets = [
        "token",
        "refreshToken",
        "id_token",
        "x-auth-token",
        "Cookie",
        "Set-Cookie",
        "pwd",
        "aws_secret_access_key",
    ]
    others = ["max_tokens", "token_count", "tokenizer", "cookies_allowed"]
    registry, calls = hf.Registry(), Counter[str]()
    graph = hf.StateGraph(Notes, name="redacted", registry=registry)

    @graph.node(recordable=True, retry=hf.Retry(attempts=2, base=0.001))
    async def ask(state: Notes, ctx: hf.NodeContext) -> Any:
        def call() -> str:
            calls["made"] += 1
            return "fine"

        word = await ctx.record("ask", dict.fromkeys([*secrets, *others], "mine"), call)
        await ctx.interrupt("go on?")
        return {"word": word}

    graph.start_at("ask")
    graph.finish("ask")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"word": "", "notes": [], "table": {}})
        await engine.watch.wait(handle.id, lambda row: row.status == "suspended", SECONDS)
        (record, _) = await handle.recorded()
        assert record.request == dict.fromkeys(secrets, "***") | dict.fromkeys(others, "mine")
        request = msgspec.json.encode({key: "mine" for key in sorted([*secrets, *others])})
        await execute(
            engine.store,
            f"UPDATE recorded SET request = X'{request.hex()}', request_hash = '{hash_of(request)}' WHERE call = 1",
        )
        await handle.resume_with("yes")
        assert (await handle.result(timeout=SECONDS))["word"] == "fine"
        assert (await engine.replay(handle.id)).ok
    assert calls["made"] == 1
