"""What the HTTP interface says to people: of values that do not fit, of keys, answers, dead letters and workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.rows import Event
from holdfast.explain.unfit import not_a, plain_refusal
from holdfast.explain.words import long_span
from holdfast.web import create_app
from tests.store.conformance.rows import put
from tests.web.client import API, Client
from tests.web.world import broken, populated
from tests.worker.support import until

registry = hf.Registry()
gates: dict[str, asyncio.Event] = {}  # by what is held: an Event belongs to one loop, and each test has its own


class Verdict(msgspec.Struct, frozen=True):
    """What a person decides."""

    by: str
    note: str = ""


approved = hf.event("approved", Verdict, registry=registry)
rejected = hf.event("rejected", Verdict, registry=registry)
untyped = hf.event("untyped", registry=registry)


@hf.action(registry=registry)
async def double(number: int) -> int:
    return number * 2


@hf.action(registry=registry)
async def hold(name: str) -> str:
    await gates[name].wait()
    return name


@hf.workflow(registry=registry)
async def judged(name: str) -> str:
    got = await hf.wait_for(approved | rejected)
    return f"{name} {got.value.by}"


@asynccontextmanager
async def court(url: str) -> AsyncIterator[tuple[hf.Engine, Client]]:
    """An engine with a worker, and somebody who asks."""
    async with hf.Engine(url, registry=registry) as engine, engine.worker():
        app = create_app(engine)
        yield engine, Client(app)
        await app.state.holdfast.close()


async def _json(client: Client, path: str, **query: Any) -> Any:
    answer = await client.get(API + path, **query)
    assert answer.status == 200, answer.body
    return answer.json()


async def test_a_payload_that_does_not_fit_is_refused_with_what_is_missing(store_url: str) -> None:
    """Whoever has just typed a value learns what is wrong with it; nothing is said of what was stored."""
    async with court(store_url) as (engine, client):
        run = (await engine.start(judged, "case", key="case-1013")).id
        await engine.settle(timeout=20)
        for path in (f"/runs/{run}/events/approved", "/events/approved"):
            refused = await client.post(API + path, {"value": {"note": "well"}})
            assert (refused.status, refused.error["type"]) == (422, "PayloadRefused")
            assert refused.error["message"] == "This is not a Verdict: field `by` is missing"
            assert refused.error["hint"] == "give an object with by: str, note: str = ''"
        wrong = await client.post(f"{API}/runs/{run}/events/approved", {"value": {"by": 7}})
        assert wrong.error["message"] == "This is not a Verdict: field `by` is a whole number, not text"
        started = await client.post(f"{API}/runs", {"workflow": "double", "args": ["abc"]})
        assert (started.status, started.error["type"]) == (422, "PayloadRefused")
        assert started.error["message"] == "Argument 'number' is not an int: it is text, not a whole number"
        assert started.error["hint"] == "give int, as JSON"
        assert (await _json(client, f"/runs/{run}"))["status"] == "suspended"


async def test_states_and_inputs_that_do_not_fit_are_refused_in_the_same_words(store_url: str) -> None:
    """Whichever model it is for; a value that is too large is still told as that."""
    async with populated(store_url) as here:
        state = await here.client.post(f"{API}/runs", {"workflow": "research", "kwargs": {"topic": 3}})
        assert (state.status, state.error["type"]) == (422, "PayloadRefused")
        assert state.error["message"].endswith("is not a str: it is a whole number, not text")
        given = {"input": {"type": "Take", "till": "north"}}
        input = await here.client.post(f"{API}/deciders/till/execute", given)
        assert (input.status, input.error["type"]) == (422, "PayloadRefused")
        assert input.error["message"] == "This is not a Take: field `cents` is missing"
        large = {"workflow": "fragile", "args": ["x" * 3_000_000]}
        refused = await here.client.post(f"{API}/runs", large)
        assert refused.status == 413


async def test_a_wait_says_what_its_events_take_and_that_any_of_them_will_do(store_url: str) -> None:
    """The fields of the event's type, as those of a definition are told."""
    async with court(store_url) as (engine, client):
        run = (await engine.start(judged, "case")).id
        await engine.settle(timeout=20)
        shown = await _json(client, f"/runs/{run}")
        assert "waits for event approved or event rejected" in shown["explain"]["headline"]
        assert [wait["takes"]["type"] for wait in shown["waits"]] == ["Verdict", "Verdict"]
        assert shown["waits"][0]["takes"]["fields"] == [
            {"name": "by", "type": "str", "default": None},
            {"name": "note", "type": "str", "default": "''"},
        ]


async def test_i2_a_key_is_found_by_any_part_of_it_and_runs_by_their_queue(store_url: str) -> None:
    """Three characters are enough, spaces are like dashes, and shorter texts have to begin it."""
    async with court(store_url) as (engine, client):
        runs = {key: (await engine.start(double, 1, key=key)).id for key in ("order-1013", "order 1014", "late_10%")}
        elsewhere = (await engine.start(double, 1, queue="gpu")).id

        async def found(**query: Any) -> set[str]:
            counted = (await _json(client, "/runs/counts", **query))["total"]
            listed = {run["id"] for run in (await _json(client, "/runs", **query))["runs"]}
            assert counted == len(listed)
            return listed

        assert await found(q="1013") == {runs["order-1013"]}
        assert await found(q="order 1013") == {runs["order-1013"]}
        assert await found(q="order-1014") == await found(q="r 1014") == {runs["order 1014"]}
        assert await found(q="101") == {runs["order-1013"], runs["order 1014"]}
        assert await found(q="or") == {runs["order-1013"], runs["order 1014"]}
        assert await found(q="10") == await found(q="%10") == await found(q="_1%") == set()
        assert await found(q="10%") == {runs["late_10%"]}
        assert await found(q="oub") == set()  # of a workflow's name only the beginning is looked at
        assert await found(queue="gpu") == await found(queue="gpu", q="doub") == {elsewhere}
        assert await found(queue="none") == set()
        paused = await client.post(f"{API}/runs/bulk", {"action": "pause", "filter": {"queue": "gpu"}})
        assert paused.json()["done"] == 1


async def test_i2_a_key_that_is_taken_is_told_without_words_of_python(store_url: str) -> None:
    async with court(store_url) as (engine, client):
        await engine.start(double, 1, key="mine")
        refused = await client.post(f"{API}/runs", {"workflow": "double", "args": [2], "key": "mine"})
        assert (refused.status, refused.error["type"]) == (409, "KeyConflict")
        assert refused.error["hint"] == "use another key, or the input that the run of this key was started with"


async def test_i2_a_worker_says_which_runs_it_works_at(store_url: str) -> None:
    """The number stays a number; the runs are beside it."""
    gates["gold"] = asyncio.Event()
    async with court(store_url) as (engine, client):
        handle = await engine.start(hold, "gold", key="vault")

        async def busy() -> list[Any]:
            return [worker for worker in (await _json(client, "/workers"))["workers"] if worker["runs"]]

        (worker,) = await until(busy, "the worker holds the run")
        assert worker["running"] == 1
        (held,) = worker["runs"]
        assert (held["run"], held["workflow"], held["key"]) == (handle.id, "hold", "vault")
        gates["gold"].set()
        assert await handle.result(timeout=20) == "gold"


async def test_i11_the_history_tells_answers_and_no_ids_of_wishes(store_url: str) -> None:
    """An answered question has its answer; a retry says that it was one."""
    async with populated(store_url) as here:
        client, run = here.client, here.runs["research"]
        listed = {each["id"]: each["waits_for"] for each in (await _json(client, "/runs", limit=500))["runs"]}
        assert (listed[run], listed[here.runs["done"]]) == ("asks a person", None)
        assert (
            await client.post(f"{API}/runs/{run}/answer", {"answer": {"go": True, "token": "canary"}})
        ).status == 200
        await here.engine.settle(timeout=20)
        entries = (await _json(client, f"/runs/{run}/history"))["entries"]
        (answered,) = [entry for entry in entries if entry["kind"] == "answered"]
        assert answered["text"].endswith(': {"go": true, "token": [redacted]}')
        assert "canary" not in str(entries)
        broken.clear()
        failed = here.runs["failed"]
        assert (await client.post(f"{API}/runs/{failed}/retry", {})).status == 200
        entries = (await _json(client, f"/runs/{failed}/history"))["entries"]
        (retried,) = [entry for entry in entries if entry["kind"] == "retried"]
        assert retried["text"] == ""
        assert not [entry for entry in entries if "wish" in entry["text"]]


async def test_a_run_that_was_completed_without_a_node_says_so(store_url: str) -> None:
    """A paused run says that skipping lets it go on, and afterwards which node was left out."""
    async with populated(store_url) as here:
        client, run = here.client, here.runs["errand"]
        before = await _json(client, f"/runs/{run}")
        assert "until it is resumed, or until what gave up is skipped" in before["explain"]["headline"]
        assert (await client.post(f"{API}/runs/{run}/skip", {"node": "pack"})).status == 200
        await here.engine.settle(timeout=20)
        after = await _json(client, f"/runs/{run}")
        assert after["explain"]["headline"].endswith("there is nothing left to do. 1 node was skipped: pack")


async def test_a_projection_says_how_many_events_it_went_on_without(store_url: str) -> None:
    """What was passed over is missing in what it has built, until that is built anew."""
    async with populated(store_url) as here:
        client = here.client

        async def stands() -> tuple[int, str]:
            (view,) = (await _json(client, "/projections"))["projections"]
            return view["passed_over"], (await _json(client, f"/runs/{here.runs['takings']}"))["explain"]["headline"]

        async def skipped() -> bool:
            return (await client.post(f"{API}/projections/takings/skip", {})).status == 200

        count, headline = await stands()
        assert (count, "passed over" in headline) == (0, False)
        broken.add("takings")
        assert (await client.post(f"{API}/projections/takings/rebuild", {})).status == 200
        await until(skipped, "it has failed at an event, which is passed over")
        count, headline = await stands()
        assert (count, headline.endswith(". 1 event was passed over")) == (1, True)
        broken.clear()
        assert (await client.post(f"{API}/projections/takings/rebuild", {})).status == 200
        assert (await stands())[0] == 0


async def test_i2_timers_and_dead_letters_say_whose_they_are(store_url: str) -> None:
    """The key of the run, and of a letter what it carries and how its run stands."""
    async with populated(store_url) as here:
        timers = (await _json(here.client, "/timers"))["timers"]
        assert {timer["key"] for timer in timers if timer["workflow"] == "till"} == {"north"}
        said = "the payload of event approved was stored as json that does not decode to int: Expected `int`, got `str`"
        payload = {"value": "no number", "password": "canary"}
        for name, run, data in (
            ("wrong", here.runs["failed"], msgspec.json.encode(payload)),
            ("long", here.runs["failed"], msgspec.json.encode("x" * 5_000)),
            ("stray", None, b"{{"),
        ):
            event = Event(
                id=name, name="approved", target=run, payload=data, status="dead", reason=f"{said}. Fix: none"
            )
            await put(here.engine.store, event)
        letters = {letter["id"]: letter for letter in (await _json(here.client, "/dead"))["letters"]}
        wrong = letters["wrong"]
        assert (wrong["key"], wrong["run_status"], wrong["workflow"]) == ("vase/1", "failed", "fragile")
        assert wrong["payload"] == {"value": "no number", "password": "[redacted]"}
        assert wrong["reason"] == "the payload of event approved is not an int: it is text, not a whole number"
        assert letters["long"]["payload"] == "<5,002 bytes of json>"
        assert (letters["stray"]["key"], letters["stray"]["run_status"]) == (None, None)
        assert letters["stray"]["payload"] == "<2 bytes of json>"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("Object missing required field `by`", "field `by` is missing"),
        ("Object missing required field `by` - at `$.inner`", "field `inner.by` is missing"),
        ("by: Field required", "field `by` is missing"),
        ("Expected `int`, got `str` - at `$[1]`", "field `[1]` is text, not a whole number"),
        ("Expected `int | null`, got `object`", "it is an object, not a whole number or null"),
        ("Invalid enum value 'x' - at `$.kind`", "field `kind` is 'x', which is none of the choices"),
        ("something of a codec's own", "something of a codec's own"),
    ],
)
def test_what_a_codec_says_is_told_in_plain_words(why: str, told: str) -> None:
    assert not_a("Decision", why) == f"This is not a Decision: {told}"
    stored = f"the payload of event x was stored as json that does not decode to Decision: {why}. Fix: let it be"
    assert plain_refusal(stored) == f"the payload of event x is not a Decision: {told}"
    assert plain_refusal("its time has passed") == "its time has passed"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "less than a second"),
        (87, "1 minute 27 seconds"),
        (7_200, "2 hours"),
        (7_260, "2 hours 1 minute"),
        (86_460, "1 day"),
        (90_061, "1 day 1 hour"),
    ],
)
def test_i2_how_long_a_run_took_has_two_units(seconds: int, told: str) -> None:
    assert long_span(seconds * 1_000_000) == told
