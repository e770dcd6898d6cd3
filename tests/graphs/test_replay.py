"""I45, G8: a recorded run is run again without touching the world, and is the same to the byte, or says where not."""

from __future__ import annotations

import socket
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

import holdfast as hf
from tests.graphs.worlds import beginning, made, trail
from tests.support.stores import every_row
from tests.worker.support import engine_on, until

SECONDS = 60.0


class Notes(TypedDict):
    topic: str
    notes: Annotated[list[str], hf.reducers.append]


class Desk:
    """A graph whose nodes ask the world, and what of its code may have changed since it was recorded."""

    def __init__(self, **changed: Any) -> None:
        self.asked: Counter[str] = Counter()  # calls that really went out
        self.ran: Counter[str] = Counter()
        self.answers: dict[str, Any] = {"search": {"page": "seven"}, "rank": [3, 1], "mail": "sent"}
        self.registry = hf.Registry()
        self.graph = self._made(**changed)

    def _ask(self, name: str) -> Callable[[], Any]:
        def call() -> Any:
            self.asked[name] += 1
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def _made(
        self,
        *,
        request: Any = "topic",
        note: str = "found",
        calls: tuple[str, ...] = ("search", "rank"),
        find: str = "find",
        reducer: Any = hf.reducers.append,
        detour: bool = False,
    ) -> hf.StateGraph[Any]:
        class Notes(TypedDict):
            topic: str
            notes: Annotated[list[str], reducer]

        graph: hf.StateGraph[Any] = hf.StateGraph(Notes, name="desk", registry=self.registry)

        @graph.node(name=find, recordable=True)
        async def ask(state: Any, ctx: hf.NodeContext) -> Any:
            self.ran["find"] += 1
            got = [await ctx.record(name, {"q": state[request]}, self._ask(name)) for name in calls]
            return {"notes": [f"{note} {got}"]}

        @graph.node
        def plain(state: Any) -> Any:
            self.ran["plain"] += 1
            return {"notes": [f"{len(state['notes'])} before"]}

        @graph.node(recordable=True)
        def mail(state: Any, ctx: hf.NodeContext) -> Any:
            self.ran["mail"] += 1
            return {"notes": [ctx.record_blocking("mail", {"to": "you", "password": "hush"}, self._ask("mail"))]}

        @graph.node(requires_idempotency=True, idempotency_key=lambda state: str(state["topic"]))
        async def pay(state: Any) -> Any:
            self.ran["pay"] += 1
            return {"notes": [f"paid {self.ran['pay']}"]}

        graph.start_at(find, "plain")
        graph.edge(find, "mail")
        graph.edge("plain", "mail")
        if detour:
            graph.edge("mail", "plain", when=lambda state: len(state["notes"]) < 4)
        graph.edge("mail", "pay")
        graph.finish("pay", *(("plain",) if detour else ()))
        return graph


async def recorded_run(url: str, desk: Desk, topic: str = "boats") -> tuple[str, Any]:
    async with engine_on(url, desk.registry) as engine, engine.worker():
        handle = await engine.start(desk.graph, {"topic": topic, "notes": []})
        return handle.id, await handle.result(timeout=SECONDS)


async def replayed(url: str, desk: Desk, run: str, mode: Any = "strict") -> Any:
    async with engine_on(url, desk.registry) as engine:
        before = await every_row(engine.store)
        try:
            return await engine.replay(run, mode=mode)
        finally:
            assert await every_row(engine.store) == before, "a replay wrote something"


def tamper(url: str, statement: str, *values: Any) -> None:
    """Change what is stored, behind everybody's back."""
    with sqlite3.connect(Path(url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute(statement, values).rowcount == 1, "nothing was tampered with"
    connection.close()


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and from then on nobody reaches anybody."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a replay opened a connection")

    def cut() -> None:
        for name in ("connect", "connect_ex", "sendto", "bind"):
            monkeypatch.setattr(socket.socket, name, refuse)
        monkeypatch.setattr(socket, "create_connection", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)

    return cut


async def test_i45_g8_a_hundred_recorded_runs_replay_identically_with_sockets_refused(
    sqlite_url: str, no_sockets: Callable[[], None]
) -> None:
    """I45, G8: with retries, joins, loops, sent items and subgraphs; not one call goes out, not one row changes."""
    asked: Counter[str] = Counter()
    world = made(recorded=lambda call: asked.update([call]))
    async with engine_on(sqlite_url, world.registry) as engine, engine.worker(concurrency=50):
        graphs = [world.graphs[name] for name in ("fan out", "cycle", "map reduce", "routed", "nested")]
        handles = [await engine.start(graphs[number % 5], beginning(number)) for number in range(100)]
        for handle in handles:
            await handle.result(timeout=SECONDS)
    went_out = asked.total()
    assert went_out > 100
    no_sockets()
    async with engine_on(sqlite_url, world.registry) as engine:
        before = await every_row(engine.store)
        calls = 0
        for handle in handles:
            report = await engine.replay(handle.id)
            _, result, steps = await trail(engine.store, handle.id)
            assert report.ok, report.differences
            assert report.state_digest == steps[-1][3]
            assert report.state == await engine.get(handle.id).result()
            assert report.steps == steps[-1][0]
            assert report.nodes >= report.steps
            assert result is not None
            calls += report.calls
        assert calls > 100
        assert await every_row(engine.store) == before
    assert asked.total() == went_out, "a replay called the world"


async def test_i45_a_replay_answers_from_the_record_and_leaves_alone_what_demands_idempotency(sqlite_url: str) -> None:
    """I45: nodes run again, calls do not; one that demands idempotency and has no record is not run, and is named."""
    desk = Desk()
    run, result = await recorded_run(sqlite_url, desk)
    again = Desk()
    again.answers.clear()
    report = await replayed(sqlite_url, again, run)
    assert report.state == result
    assert report.ok
    assert (report.steps, report.nodes, report.calls) == (3, 3, 3)
    assert report.reused == ("pay@3",)
    assert again.ran == {"find": 1, "plain": 1, "mail": 1}
    assert not again.asked


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        pytest.param({"request": "notes"}, ["call 1 (search) asks for something else", "boats", "[]"], id="request"),
        pytest.param({"calls": ("rank", "search")}, ["call 1 (rank)", "'search'", "'rank'"], id="order of calls"),
        pytest.param({"calls": ("search", "rank", "mail")}, ["call 3 (mail) was not recorded"], id="extra call"),
        pytest.param({"calls": ("search",)}, ["it made fewer calls", "recorded: 2", "now:      1"], id="fewer calls"),
        pytest.param({"note": "lost"}, ["returned something else", "found [", "lost ["], id="result"),
        pytest.param({"find": "look"}, ["no such node now", "recorded: find", "look, plain"], id="renamed node"),
        pytest.param(
            {"reducer": lambda old, new: [*new, *old]}, ["the state differs in notes", "found ["], id="reducer"
        ),
        pytest.param({"detour": True}, ["another frontier follows", "pay", "plain"], id="edges"),
    ],
)
async def test_i45_code_that_changed_is_a_mismatch_that_shows_both_sides(
    sqlite_url: str, changed: dict[str, Any], shown: list[str]
) -> None:
    """I45, G8: whatever of the graph is not what was recorded, strict says where, what was and what is."""
    run, result = await recorded_run(sqlite_url, Desk())
    desk = Desk(**changed)
    with pytest.raises(hf.ReplayMismatch) as raised:
        await replayed(sqlite_url, desk, run)
    for part in (run, "desk", "step", "recorded:", "now:", *shown):
        assert part in str(raised.value)
    assert not desk.asked, "a mismatch is no reason to call the world"
    report = await replayed(sqlite_url, desk, run, "lenient")
    assert not report.ok
    assert report.state == result, "lenient goes on with what was recorded"
    assert not desk.asked


FORGED = """UPDATE checkpoints SET whole = 1, state = CAST('{{"notes":["forged"],"topic":"boats"}}' AS BLOB)
    WHERE step = {}"""


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        pytest.param(
            """UPDATE recorded SET response = CAST('{"page":"eight"}' AS BLOB) WHERE name = 'search'""",
            ["stored response of call 1 (search) was changed", "sha256:", "eight"],
            id="response",
        ),
        pytest.param(
            "UPDATE recorded SET response = NULL WHERE name = 'search'", ["call 1 (search)"], id="response gone"
        ),
        pytest.param(
            "UPDATE recorded SET request_hash = 'sha256:00' WHERE name = 'rank'",
            ["call 2 (rank) asks for something else"],
            id="request hash",
        ),
        pytest.param("DELETE FROM recorded WHERE name = 'search'", ["call 1 (search) was not recorded"], id="first"),
        pytest.param("DELETE FROM recorded WHERE name = 'rank'", ["call 2 (rank) was not recorded"], id="last"),
        pytest.param("DELETE FROM recorded WHERE name = 'mail'", ["call 1 (mail) was not recorded"], id="only"),
        pytest.param(
            """UPDATE work SET result = CAST('{"delta":{"notes":["1 before"]}}' AS BLOB) WHERE node = 'plain@1'""",
            ["plain@1", "returned something else", "1 before", "0 before"],
            id="result",
        ),
        pytest.param("DELETE FROM work WHERE node = 'plain@1'", ["plain@1", "its result is missing"], id="work"),
        pytest.param(
            "UPDATE checkpoints SET digest = 'none' WHERE step = 2", ["step 2", "its digest was changed"], id="digest"
        ),
        pytest.param(FORGED.format(0), ["step 0", "its state was changed"], id="first state"),
        pytest.param(FORGED.format(1), ["step 1", "forged"], id="state"),
        pytest.param(FORGED.format(3), ["step 3", "forged"], id="last state"),
    ],
)
async def test_i45_what_was_tampered_with_is_a_mismatch_that_shows_both_sides(
    sqlite_url: str, statement: str, shown: list[str]
) -> None:
    """I45, G8: records, results, digests and states are all checked against what the code makes of them."""
    run, _ = await recorded_run(sqlite_url, Desk())
    tamper(sqlite_url, statement)
    desk = Desk()
    with pytest.raises(hf.ReplayMismatch) as raised:
        await replayed(sqlite_url, desk, run)
    for part in (run, "recorded:", "now:", *shown):
        assert part in str(raised.value)
    report = await replayed(sqlite_url, desk, run, "lenient")
    assert not report.ok
    assert not desk.asked


async def test_i45_lenient_reports_everything_that_differs(sqlite_url: str) -> None:
    """I45: one report with all differences, each with its step, its node and both sides."""
    run, result = await recorded_run(sqlite_url, Desk())
    tamper(sqlite_url, """UPDATE recorded SET response = CAST('"gone"' AS BLOB) WHERE name = 'mail'""")
    report = await replayed(sqlite_url, Desk(request="notes", note="lost"), run, "lenient")
    found = [(each.step, each.node) for each in report.differences]
    assert found.count((1, "find@1")) == 3, report.differences  # two requests and what it returned
    assert (2, "mail@2") in found
    assert all(each.recorded != each.found for each in report.differences)
    assert report.state == result


async def test_i45_live_calls_again_and_reports_where_the_world_answers_differently(sqlite_url: str) -> None:
    """I45: only the differing answers are told, and the state stays what was recorded."""
    run, result = await recorded_run(sqlite_url, Desk())
    same = Desk()
    report = await replayed(sqlite_url, same, run, "live")
    assert same.asked == {"search": 1, "rank": 1, "mail": 1}
    assert report.ok, report.differences
    other = Desk()
    other.answers |= {"rank": [9], "mail": TimeoutError("nobody there")}
    report = await replayed(sqlite_url, other, run, "live")
    assert other.asked == {"search": 1, "rank": 1, "mail": 1}
    assert other.ran["pay"] == 0
    assert [(each.node, each.call, each.recorded) for each in report.differences] == [
        ("find@1", 2, [3, 1]),
        ("mail@2", 1, "sent"),
    ]
    assert [str(each.found) for each in report.differences] == ["[9]", "TimeoutError: nobody there"]
    assert report.state == result


async def test_i45_a_call_that_failed_fails_in_the_same_way_in_a_replay(sqlite_url: str) -> None:
    """I45: an error that a node caught is a recorded answer as well, with type and message."""

    error = ConnectionRefusedError("closed today")

    def careful(asked: list[int]) -> tuple[hf.Registry, hf.StateGraph[Notes]]:
        registry = hf.Registry()
        graph = hf.StateGraph(Notes, name="careful", registry=registry)

        @graph.node(recordable=True)
        async def ask(state: Notes, ctx: hf.NodeContext) -> Any:
            def fails() -> str:
                asked.append(1)
                raise error

            try:
                await ctx.record("shop", {}, fails)
            except ConnectionRefusedError as refused:
                return {"notes": [f"{type(refused).__name__} {refused}"]}

        graph.start_at("ask")
        graph.finish("ask")
        return registry, graph

    asked: list[int] = []
    registry, graph = careful(asked)
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"topic": "x", "notes": []})
        result = await handle.result(timeout=SECONDS)
        assert result["notes"] == ["ConnectionRefusedError closed today"]
        (record,) = await handle.recorded()
        assert record.error is not None
        assert "closed today" in record.error
    registry, _ = careful(asked)
    async with engine_on(sqlite_url, registry) as engine:
        report = await engine.replay(handle.id)
        assert report.ok
        assert report.state == result
        live = await engine.replay(handle.id, mode="live")
        assert live.ok, f"the world answers as it did: {live.differences}"
        error = ConnectionRefusedError("closed for good")
        (difference,) = (await engine.replay(handle.id, mode="live")).differences
        assert "closed today" in str(difference.recorded)
        assert difference.found == "ConnectionRefusedError: closed for good"
    assert len(asked) == 3  # once when it ran, and once in each live replay


async def test_i45_i42_answers_of_people_and_retries_are_part_of_the_record(sqlite_url: str) -> None:
    """I45: a replay asks nobody, and follows the attempt that counted."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="asks", registry=registry)
    calls: Counter[int] = Counter()

    @graph.node(recordable=True, retry=hf.Retry(attempts=3, base=0.001, cap=0.001))
    async def ask(state: Notes, ctx: hf.NodeContext) -> Any:
        def call() -> int:
            calls[ctx.attempt] += 1
            return ctx.attempt

        number = await ctx.record("number", {"n": 1}, call)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        answer = await ctx.interrupt({"number": number, "sure?": True})
        return {"notes": [f"{number} {answer} {ctx.rng.random()} {ctx.now.isoformat()}"]}

    graph.start_at("ask")
    graph.finish("ask")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"topic": "x", "notes": []})
        (question,) = await until(handle.interrupts, "it asks")
        assert question.payload == {"number": 3, "sure?": True}
        await handle.resume_with({"yes": [1]})
        result = await handle.result(timeout=SECONDS)
        assert calls == {1: 1, 2: 1, 3: 1}
        report = await engine.replay(handle.id)
        assert report.ok
        assert report.state == result
        assert report.calls == 2
        assert calls == {1: 1, 2: 1, 3: 1}
    tamper(sqlite_url, """UPDATE recorded SET response = CAST('"no"' AS BLOB) WHERE kind = 'interrupt'""")
    async with engine_on(sqlite_url, registry) as engine:
        with pytest.raises(hf.ReplayMismatch, match="interrupt"):
            await engine.replay(handle.id)


@pytest.mark.parametrize("mode", ["strict", "lenient", "live"])
@pytest.mark.parametrize("records", [False, True])
async def test_i45_an_answer_of_a_person_is_no_record_of_a_write(sqlite_url: str, mode: Any, records: bool) -> None:
    """I45: a node that demands idempotency, asked a person and wrote is run again only if it recorded calls."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="writes", registry=registry)
    writes: list[str] = []
    asked: list[str] = []

    @graph.node(requires_idempotency=True, idempotency_key=lambda state: str(state["topic"]))
    async def write(state: Notes, ctx: hf.NodeContext) -> Any:
        answer = await ctx.interrupt("write?")
        if records:
            await ctx.record("write", {"answer": answer}, lambda: asked.append(answer))
        else:
            writes.append(answer)
        return {"notes": [answer]}

    graph.start_at("write")
    graph.finish("write")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"topic": "x", "notes": []})
        await until(handle.interrupts, "it asks")
        await handle.resume_with("yes")
        result = await handle.result(timeout=SECONDS)
        report = await engine.replay(handle.id, mode=mode)
    assert report.ok
    assert report.state == result
    if records:
        assert (report.reused, report.calls) == ((), 2)
        assert len(asked) == (2 if mode == "live" else 1)
    else:
        assert (report.reused, report.calls) == (("write@1",), 0)
        assert writes == ["yes"]


async def test_i45_a_run_that_failed_is_replayed_as_far_as_it_got(sqlite_url: str) -> None:
    """I45: its finished steps are checked; the step that failed is none of them."""
    registry = hf.Registry()
    graph = hf.StateGraph(Notes, name="halfway", registry=registry)

    @graph.node
    async def good(state: Notes) -> Any:
        return {"notes": ["good"]}

    @graph.node
    async def bad(state: Notes) -> Any:
        raise ValueError("bad")

    graph.start_at("good")
    graph.edge("good", "bad")
    graph.finish("bad")
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(graph, {"topic": "x", "notes": []})
        with pytest.raises(hf.RunFailed):
            await handle.result(timeout=SECONDS)
        report = await engine.replay(handle.id)
        assert report.ok
        assert (report.steps, report.state["notes"]) == (1, ["good"])


async def test_i45_other_modes_and_other_models_are_refused(sqlite_url: str) -> None:
    """A mistake is told with what could be meant."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def act() -> int:
        return 1

    run, _ = await recorded_run(sqlite_url, desk := Desk())
    async with engine_on(sqlite_url, desk.registry) as engine:
        with pytest.raises(hf.UsageError, match="strict, lenient, live"):
            await engine.replay(run, mode="quick")  # type: ignore[arg-type]
    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        handle = await engine.start(act)
        await handle.result(timeout=SECONDS)
        with pytest.raises(hf.UsageError, match="no checkpoints"):
            await engine.replay(handle.id)
        with pytest.raises(hf.MissingJob, match="desk is not registered here"):
            await engine.replay(run)
