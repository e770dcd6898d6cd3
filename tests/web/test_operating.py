"""What can be done over HTTP: each operation once, who did it in the history, and nothing done twice."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.web.client import API
from tests.web.world import TOKENS, World, broken, populated, world


async def _post(here: World, path: str, body: Any = None, key: str | None = None) -> Any:
    answer = await here.client.post(API + path, body, headers={} if key is None else {"idempotency-key": key})
    assert answer.status in (200, 201, 202), answer.body
    return answer.json()


async def _history(here: World, run: str) -> list[tuple[str, str]]:
    entries = (await here.client.get(f"{API}/runs/{run}/history")).json()["entries"]
    return [(entry["kind"], entry["by"]) for entry in entries]


async def _status(here: World, run: str) -> str:
    return str((await here.client.get(f"{API}/runs/{run}")).json()["status"])


async def test_i12_a_start_with_the_same_key_is_the_same_run(store_url: str) -> None:
    """I12: the header Idempotency-Key is the run's key, and a repeated request starts nothing."""
    async with world(store_url) as here:
        body = {"workflow": "add", "args": [1], "kwargs": {"b": 4}, "tags": {"who": "me"}, "priority": 3}
        first = await here.client.post(f"{API}/runs", body, headers={"idempotency-key": "once"})
        again = await here.client.post(f"{API}/runs", body, headers={"idempotency-key": "once"})
        assert (first.status, again.status) == (201, 200)
        assert (first.json()["id"], first.json()["key"], first.json()["created"]) == (
            again.json()["id"],
            "once",
            True,
        )
        assert again.json()["created"] is False
        other = await here.client.post(f"{API}/runs", body | {"args": [2]}, headers={"idempotency-key": "once"})
        assert (other.status, other.error["type"]) == (409, "KeyConflict")
        assert await here.engine.get(first.json()["id"]).result(timeout=10) == 5
        assert (await here.client.get(f"{API}/runs/counts", workflow="add")).json()["total"] == 1


async def test_i12_arguments_get_the_types_that_the_definition_names(store_url: str) -> None:
    """A time is a text in JSON; the workflow gets a time."""
    async with world(store_url) as here:
        day = "2031-05-01T12:00:00Z"
        errand = await _post(here, "/runs", {"workflow": "Errand", "kwargs": {"name": "book", "day": day}})
        graph = await _post(here, "/runs", {"workflow": "research", "kwargs": {"topic": "gold", "since": day}})
        flow = await _post(here, "/runs", {"workflow": "rounds", "args": [[1, 2]]})
        year = await _post(here, "/runs", {"workflow": "year_of", "kwargs": {"day": day}})
        assert await here.engine.get(year["id"]).result(timeout=10) == 2031
        assert await here.engine.get(flow["id"]).result(timeout=10) > 0
        await here.engine.get(errand["id"]).result(timeout=10)
        shown = (await here.client.get(f"{API}/runs/{errand['id']}")).json()
        assert (shown["input"]["name"], shown["status"]) == ("book", "completed")
        assert (await here.engine.get(graph["id"]).checkpoint(step=0)).state["since"].year == 2031
        refused = {
            404: [{"workflow": "nothing"}],
            400: [{"workflow": "add", "args": [1, 2, 3]}, {"workflow": "till"}, {"workflow": "Errand", "args": [1]}],
            422: [
                {"workflow": "add", "args": ["x"]},
                {"workflow": "research", "kwargs": {"since": "x"}},
                {"workflow": "add", "unknown": 1},
                {"args": []},
            ],
        }
        for status, bodies in refused.items():
            for body in bodies:
                answer = await here.client.post(f"{API}/runs", body)
                assert answer.status == status, (body, answer.body)
                assert answer.error["hint"]


async def test_i11_operators_pause_resume_cancel_and_the_history_says_who(store_url: str) -> None:
    """Every operation is in the run's own record, with the name of the caller."""
    async with populated(store_url) as here:
        run = here.runs["approval"]
        assert (await _post(here, f"/runs/{run}/pause", {"reason": "lunch"}))["done"]
        assert not (await _post(here, f"/runs/{run}/pause"))["done"]
        assert await _status(here, run) == "paused"
        assert (await _post(here, f"/runs/{run}/resume"))["done"]
        assert (await _post(here, f"/runs/{run}/cancel"))["done"]
        await here.engine.settle(timeout=10)
        assert await _status(here, run) == "cancelled"
        assert not (await _post(here, f"/runs/{run}/cancel"))["done"]
        by = {
            who
            for kind, who in await _history(here, run)
            if kind in ("paused", "resumed", "cancel", "cancel requested")
        }
        assert by == {"http:local"}


async def test_i29_nodes_are_retried_skipped_and_forked(store_url: str) -> None:
    """What gave up gets a new attempt, or is passed over; a fork shares what was done."""
    async with populated(store_url) as here:
        run = here.runs["errand"]
        answer = await here.client.post(f"{API}/runs/{run}/reattempt", {"node": "none"})
        assert (answer.status, answer.error["type"]) == (404, "UnknownNode")
        broken.clear()
        assert (await _post(here, f"/runs/{run}/reattempt", {"node": "pack"}))["done"]
        await here.engine.settle(timeout=10)
        assert await _status(here, run) == "completed"
        assert ("reattempted", "http:local") in await _history(here, run)
        forked = await _post(here, f"/runs/{run}/fork", {"from_node": "send"})
        await here.engine.get(forked["id"]).result(timeout=10)
        failed = here.runs["failed"]
        assert "fragile" in (await _post(here, f"/runs/{failed}/retry"))["message"]
        assert await here.engine.get(failed).result(timeout=10) == "vase holds"
        assert (await here.client.post(f"{API}/runs/{failed}/retry")).status == 400
        broken.add("chair")
        other = (await _post(here, "/runs", {"workflow": "Errand", "kwargs": {"name": "chair"}}))["id"]
        await here.engine.settle(timeout=10)
        assert (await _post(here, f"/runs/{other}/skip", {"node": "pack"}))["done"]
        assert (await _post(here, f"/runs/{other}/resume"))["message"]
        await here.engine.settle(timeout=10)
        assert await _status(here, other) == "completed"


async def test_i12_an_event_with_the_same_id_is_delivered_once(store_url: str) -> None:
    """I12: the header Idempotency-Key is the message's id."""
    async with populated(store_url) as here:
        run = here.runs["approval"]
        second = (await _post(here, "/runs", {"workflow": "approval", "args": [100]}))["id"]
        await here.engine.settle(timeout=10)
        wrong = await here.client.post(f"{API}/runs/{run}/events/approved", {"value": "x"})
        assert wrong.status == 422
        sent = [await _post(here, f"/runs/{run}/events/approved", {"value": 7}, key="m1") for _ in range(2)]
        assert [each["outcome"] for each in sent] == ["delivered", "delivered"]  # the second is the first again
        assert await here.engine.get(run).result(timeout=10) == 12
        late = await _post(here, f"/runs/{run}/events/approved", {"value": 8})
        assert (late["done"], late["outcome"]) == (False, "target_ended")
        assert (await here.client.post(f"{API}/runs/none/events/approved", {"value": 1})).status == 404
        assert await _status(here, second) == "suspended"
        broadcast = await _post(here, "/events/approved", {"value": 1, "to_all": True})
        assert broadcast["outcome"] == "delivered"
        assert await here.engine.get(second).result(timeout=10) == 102
        assert (await _post(here, "/events/approved", {"value": 1}))["outcome"] == "queued"


async def test_i12_a_command_with_the_same_id_is_applied_once(store_url: str) -> None:
    """I12: the header Idempotency-Key is the command's id."""
    async with populated(store_url) as here:
        given = {"input": {"type": "Take", "till": "north", "cents": 50}}
        for _ in range(2):
            answer = await here.client.post(f"{API}/deciders/till/execute", given, headers={"idempotency-key": "c1"})
            assert (answer.status, answer.json()) == (202, {})
        state = (await here.client.get(f"{API}/runs/{here.runs['till']}/state")).json()
        assert (state["state"]["cents"], state["last"]) == (300, 3)
        wrong = await here.client.post(f"{API}/deciders/till/execute", {"input": {"type": "Nothing"}})
        assert wrong.status in (400, 422)
        assert (await here.client.post(f"{API}/deciders/none/execute", given)).status == 404


async def test_a_question_is_answered_and_the_graph_goes_on(store_url: str) -> None:
    """A person's answer is recorded with their name."""
    async with populated(store_url) as here:
        run = here.runs["research"]
        assert (await _post(here, f"/runs/{run}/answer", {"answer": {"yes": True}}))["done"]
        result = await here.engine.get(run).result(timeout=10)
        assert result["notes"][-1] == "told {'yes': True}"
        forked = await _post(
            here, f"/runs/{run}/fork", {"step": 1, "update": {"topic": "silver", "since": "2032-01-01T00:00:00Z"}}
        )
        await here.engine.settle(timeout=10)
        shown = (await here.client.get(f"{API}/runs/{forked['id']}")).json()
        assert shown["questions"]
        assert ("answered", "http:local") in await _history(here, run)


async def test_i9_dead_letters_are_shown_replayed_and_discarded(store_url: str) -> None:
    """I9: nothing is lost silently, and each letter has two ways out."""
    async with world(store_url) as here:
        store = here.engine.store
        run = (await here.engine.start("add", 1, paused=True)).id
        from tests.store.conformance.rows import an_event, put

        dead = [an_event(f"e{number}", name="approved", target=run) for number in range(3)]
        import msgspec

        await put(store, *(msgspec.structs.replace(each, status="dead", reason="nobody could") for each in dead))
        first = (await here.client.get(f"{API}/dead", limit=2)).json()
        assert [(letter["id"], letter["kind"], letter["reason"]) for letter in first["letters"]] == [
            ("e0", "event", "nobody could"),
            ("e1", "event", "nobody could"),
        ]
        rest = (await here.client.get(f"{API}/dead", cursor=first["cursor"])).json()
        assert [letter["id"] for letter in rest["letters"]] == ["e2"]
        assert (await here.client.get(f"{API}/stats")).json()["dead_events"] == 3
        assert "\nholdfast_dead_events 3\n" in (await here.client.get("/metrics")).body.decode()
        assert (await _post(here, "/dead/discard", {"id": "e0"}))["done"]
        assert not (await _post(here, "/dead/discard", {"id": "e0"}))["done"]
        assert (await _post(here, "/dead/replay", {"id": "e1"}))["done"]
        assert not (await _post(here, "/dead/replay", {"id": "none"}))["done"]


async def test_i36_a_projection_is_paused_retried_skipped_and_rebuilt(store_url: str) -> None:
    """What stands still can be moved, and its record says by whom."""
    async with populated(store_url) as here:
        assert (await _post(here, "/projections/takings/pause", {"reason": "a look"}))["done"]
        assert (await _post(here, "/projections/takings/resume"))["done"]
        assert not (await _post(here, "/projections/takings/retry"))["done"]
        assert (await here.client.post(f"{API}/projections/takings/skip")).status == 400
        assert (await _post(here, "/projections/takings/rebuild"))["done"]
        assert (await here.client.post(f"{API}/projections/none/pause")).status == 404
        assert {"http:local"} <= {by for _, by in await _history(here, here.runs["takings"])}


async def test_i11_many_runs_are_operated_at_once_and_one_that_refuses_stops_no_other(store_url: str) -> None:
    """By id or by filter; the answer says what became of each."""
    async with populated(store_url) as here:
        ids = [here.runs["approval"], here.runs["napping"], here.runs["done"], "none"]
        paused = await _post(here, "/runs/bulk", {"action": "pause", "ids": ids})
        assert (paused["done"], paused["skipped"]) == (2, 1)
        assert [each["id"] for each in paused["failed"]] == ["none"]
        broken.clear()
        retried = await _post(here, "/runs/bulk", {"action": "retry", "filter": {"status": ["failed"]}})
        assert (retried["done"], retried["more"]) == (1, False)
        limited = await _post(here, "/runs/bulk", {"action": "cancel", "filter": {"status": ["paused"]}, "limit": 1})
        assert (limited["done"], limited["more"]) == (1, True)
        for body in ({"action": "cancel"}, {"action": "cancel", "ids": [], "filter": {}}):
            assert (await here.client.post(f"{API}/runs/bulk", body)).status == 400


async def test_i11_maintenance_holds_work_back_and_shows_it(store_url: str) -> None:
    """Nothing is claimed while it is on, and everybody can see that."""
    async with world(store_url) as here:
        assert (await _post(here, "/maintenance", {"on": True, "queue": "default"}))["done"]
        holds = (await here.client.get(f"{API}/stats")).json()["holds"]
        assert [(hold["scope"], hold["name"], hold["by"]) for hold in holds] == [("queue", "default", "http:local")]
        assert (await _post(here, "/maintenance", {"on": False, "queue": "default"}))["done"]
        assert (await here.client.get(f"{API}/stats")).json()["holds"] == []


async def test_i11_a_forced_cancel_is_for_admins_and_a_name_is_what_the_history_has() -> None:
    """The one operation that does not wait for what is running asks for more than the route does."""
    from holdfast.web import Caller, Role

    tokens = {**TOKENS, "ada-of-operations": Caller("ada", Role.OPERATE)}
    async with populated("memory://", tokens=tokens) as here:
        run = here.runs["napping"]
        ada = here.client.with_token("ada-of-operations")
        refused = await ada.post(f"{API}/runs/{run}/cancel", {"force": True})
        assert (refused.status, refused.error["type"]) == (403, "Forbidden")
        assert (await ada.post(f"{API}/runs/{run}/pause")).json()["done"]
        assert ("paused", "http:ada") in await _history(here, run)
        assert (await here.client.post(f"{API}/runs/{run}/cancel", {"force": True})).json()["done"]


async def test_i11_each_operation_leaves_a_line_in_the_log_and_no_payload(caplog: pytest.LogCaptureFixture) -> None:
    """Who did what to which run; what they sent may be a secret."""
    with caplog.at_level(logging.INFO, logger="holdfast.web"):
        async with populated("memory://") as here:
            run = here.runs["approval"]
            await _post(here, f"/runs/{run}/events/approved", {"value": 4242})
            await here.client.get(f"{API}/runs")
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.web"]
    assert len(lines) == 1
    assert all(word in lines[0] for word in ("POST", run, "approved", "http:local"))
    assert "4242" not in lines[0]


async def test_i11_the_line_names_what_was_meant_and_what_came_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """A start its run, many runs each of them, a dead letter and maintenance their targets; a name adds no word."""
    with caplog.at_level(logging.INFO, logger="holdfast.web"):
        async with populated("memory://") as here:
            first, second = here.runs["approval"], here.runs["napping"]
            started = await _post(here, "/runs", {"workflow": "fragile", "args": ["4242"]})
            await _post(here, "/runs/bulk", {"action": "pause", "ids": [first, second]})
            await _post(here, "/deciders/till/execute", {"input": {"type": "Take", "till": "north", "cents": 4242}})
            await _post(here, "/dead/discard", {"id": "none"})
            await _post(here, "/maintenance", {"on": True, "queue": "gpu by http:ada"})
            await _post(here, "/maintenance", {"on": True})
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.web"]
    wanted = [
        f"workflow=fragile run={started['id']} by http:local",
        f"action=pause runs={first},{second} by http:local",
        "name=till instance=north input=Take by http:local",
        "id=none by http:local",
        "on=True queue='gpu by http:ada' by http:local",
        "on=True of=everything by http:local",
    ]
    assert len(lines) == len(wanted)
    for line, words in zip(lines, wanted, strict=True):
        assert words in line
    assert "4242" not in "".join(lines)


async def test_i11_a_readonly_server_changes_nothing() -> None:
    """Every route that could is refused, with the reason."""
    async with populated("memory://", readonly="a copy of yesterday") as here:
        answer = await here.client.post(f"{API}/runs/{here.runs['approval']}/cancel")
        assert answer.status == 403
        assert "a copy of yesterday" in answer.error["message"]
        assert (await here.client.get(f"{API}/me")).json()["readonly_reason"] == "a copy of yesterday"
        assert await _status(here, here.runs["approval"]) == "suspended"
