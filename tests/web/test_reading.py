"""What the HTTP interface shows of runs of every model, on every store."""

from __future__ import annotations

from typing import Any

import holdfast as hf
from tests.web.client import API, Client
from tests.web.world import populated, world


async def _json(client: Client, path: str, **query: Any) -> Any:
    answer = await client.get(API + path, **query)
    assert answer.status == 200, answer.body
    return answer.json()


async def test_i2_a_page_lists_runs_newest_first_by_every_filter(store_url: str) -> None:
    """Filters combine, and a cursor leads through all runs without gap or overlap."""
    async with populated(store_url) as here:
        every = await _json(here.client, "/runs", limit=500)
        times = [run["created_at"] for run in every["runs"]]
        assert times == sorted(times, reverse=True)
        assert every["cursor"] is None
        seen: list[str] = []
        cursor = None
        while True:
            page = await _json(here.client, "/runs", limit=3, **({} if cursor is None else {"cursor": cursor}))
            seen += [run["id"] for run in page["runs"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert seen == [run["id"] for run in every["runs"]]

        async def ids(**query: Any) -> set[str]:
            return {run["id"] for run in (await _json(here.client, "/runs", **query))["runs"]}

        runs = here.runs
        assert await ids(status="failed") == {runs["failed"]}
        assert await ids(status=["failed", "paused"]) == {runs["failed"], runs["errand"], runs["paused"]}
        assert await ids(tag="colour:red") == {runs["done"], runs["approval"]}
        assert await ids(tag=["colour:red", "size:1"]) == {runs["done"]}
        assert await ids(q="vase/") == {runs["failed"]}
        assert await ids(q="appro") == {runs["approval"]}
        assert await ids(q=runs["done"][:30]) >= {runs["done"]}
        assert await ids(model="graph") == {runs["research"]}
        assert await ids(workflow="rounds", since="2020-01-01T00:00:00Z") == {runs["rounds"]}
        assert await ids(until="2020-01-01T00:00:00Z") == set()
        counts = await _json(here.client, "/runs/counts", status="failed")
        assert counts["total"] == len(every["runs"])
        assert (counts["counts"]["failed"], counts["counts"]["paused"]) == (1, 2)
        assert counts["more"] is False
        tagged = await _json(here.client, "/runs/counts", tag="colour:red")
        assert tagged["total"] == 2


async def test_i2_a_run_says_why_it_is_where_it_is_and_what_can_be_done(store_url: str) -> None:
    """The same explanation as on the command line, and the actions that make sense now."""
    async with populated(store_url) as here:

        async def detail(name: str) -> Any:
            return await _json(here.client, f"/runs/{here.runs[name]}")

        failed = await detail("failed")
        assert (failed["status"], failed["key"]) == ("failed", "vase/1")
        assert failed["error"]["type"].endswith("ValueError")
        assert "retry" in failed["actions"]
        failed = await detail("errand")
        assert failed["status"] == "paused"
        assert failed["explain"]["headline"]
        assert any(cause["command"] for cause in failed["explain"]["causes"])
        assert {"retry", "reattempt", "skip", "fork"} <= set(failed["actions"])
        assert failed["counts"] == {"completed": 2, "failed": 1, "blocked": 1}
        waiting = await detail("approval")
        assert waiting["status"] == "suspended"
        assert [wait["event"] for wait in waiting["waits"]] == ["approved"]
        assert {"send", "cancel", "pause"} <= set(waiting["actions"])
        asleep = await detail("napping")
        assert asleep["wakes_at"] is not None
        assert [timer["kind"] for timer in asleep["timers"]] == ["sleep"]
        asking = await detail("research")
        assert asking["questions"][0]["payload"]["go on?"] == ["plan for gold"]
        assert "answer" in asking["actions"]
        assert asking["graph"]["step"] == 1
        till = await detail("till")
        assert till["instance"]["state"]["state"] == {"cents": 250, "is_open": True}
        assert [timer["kind"] for timer in till["timers"]] == ["timer"]
        done = await detail("done")
        assert (done["result"], done["tags"]) == (3, {"colour": "red", "size": "1"})
        assert "cancel" not in done["actions"]
        assert (await here.client.get(f"{API}/runs/none")).status == 404


async def test_i2_every_model_has_a_graph_with_its_states_and_the_way_it_took(store_url: str) -> None:
    """Whoever looks at a run sees its shape, whatever it was written as."""
    async with populated(store_url) as here:

        async def graph(name: str) -> tuple[dict[str, Any], dict[tuple[str, str], Any], Any]:
            view = await _json(here.client, f"/runs/{here.runs[name]}/graph")
            nodes = {node["id"]: node for node in view["nodes"]}
            assert all(edge["from"] in nodes and edge["to"] in nodes for edge in view["edges"])
            return nodes, {(edge["from"], edge["to"]): edge for edge in view["edges"]}, view

        nodes, edges, view = await graph("errand")
        assert view["kind"] == "dag"
        assert {node["label"]: node["state"] for node in nodes.values()} == {
            "fetch": "completed",
            "pack": "failed",
            "wrap": "completed",
            "send": "blocked",
        }
        assert edges["fetch", "pack"]["taken"]
        assert not edges["pack", "send"]["taken"]
        nodes, edges, view = await graph("rounds")
        assert view["kind"] == "flow"
        assert any(edge["loop"] for edge in view["edges"])
        assert any(node["count"] == 3 and node["states"] == {"completed": 3} for node in nodes.values())
        assert nodes["output"]["state"] == "completed"
        nodes, edges, view = await graph("research")
        assert (nodes["plan"]["state"], nodes["ask"]["state"]) == ("completed", "blocked")
        assert edges["plan", "ask"]["taken"]
        assert not edges["ask", "(finish)"]["taken"]
        nodes, edges, view = await graph("approval")
        assert view["kind"] == "function"
        assert {"add", "event approved"} <= {node["label"] for node in nodes.values()}
        nodes, edges, view = await graph("takings")
        assert edges["stream:till", "takings"]["taken"]
        assert (await graph("till"))[2]["kind"] == "decider"


async def test_i2_a_wide_graph_is_grouped_and_a_group_can_be_opened() -> None:
    """Five thousand boxes tell nobody anything."""
    async with world("memory://") as here:
        dag = hf.DagBuilder("wide", registry=here.engine.registry)
        first = dag.node("first", job="add", args={"a": 1}, depends_on=None)
        middle = [dag.node(f"part {n}", job="add", args={"a": n}, depends_on=[first]) for n in range(1_000)]
        dag.node("last", job="add", args={"a": 2}, depends_on=middle)
        run = (await here.engine.start(dag.build(), paused=True)).id
        view = await _json(here.client, f"/runs/{run}/graph")
        assert len(view["nodes"]) == 3
        (group,) = [node for node in view["nodes"] if node["count"]]
        assert (group["count"], sum(group["states"].values())) == (1_000, 1_000)
        opened = await _json(here.client, f"/runs/{run}/graph", group=group["id"])
        assert (len(opened["nodes"]), opened["truncated"]) == (1_000, False)
        assert len((await _json(here.client, f"/runs/{run}/graph", all=1))["nodes"]) == 1_002
        assert (await here.client.get(f"{API}/runs/{run}/graph", group="none")).status == 404


async def test_i2_nodes_timeline_and_history_come_in_pages(store_url: str) -> None:
    """However long a run is, a page of it is short."""
    async with populated(store_url) as here:
        run = here.runs["errand"]
        first = await _json(here.client, f"/runs/{run}/nodes", limit=3)
        rest = await _json(here.client, f"/runs/{run}/nodes", after=first["cursor"])
        assert [node["name"] for node in first["nodes"] + rest["nodes"]] == ["fetch", "pack", "wrap", "send"]
        failed = (await _json(here.client, f"/runs/{run}/nodes", state="failed"))["nodes"]
        assert [attempt["error"]["message"] for node in failed for attempt in node["attempts"]] == ["parcel is broken"]
        assert failed[0]["attempts"][0]["queued_at"] <= failed[0]["attempts"][0]["started_at"]
        timeline = await _json(here.client, f"/runs/{run}/timeline")
        assert {lane["label"] for lane in timeline["lanes"]} == {"fetch", "pack", "wrap", "send"}
        assert all(bar["end"] is None or bar["begin"] <= bar["end"] for bar in timeline["bars"])
        assert {bar["kind"] for bar in timeline["bars"]} >= {"attempt", "wait"}
        short = await _json(here.client, f"/runs/{run}/timeline", limit=1)
        assert (len(short["lanes"]), short["more"]) == (1, True)
        approval = here.runs["approval"]
        history = await _json(here.client, f"/runs/{approval}/history")
        assert [entry["kind"] for entry in history["entries"]] == ["result"]
        assert "add" in history["entries"][0]["text"]
        bars = (await _json(here.client, f"/runs/{approval}/timeline"))["bars"]
        assert [bar["kind"] for bar in bars if bar["end"] is None] == ["wait"]


async def test_i2_states_can_be_looked_at_as_they_were(store_url: str) -> None:
    """A decider after any event, a state graph after any step, with what changed."""
    async with populated(store_url) as here:
        till = here.runs["till"]
        now = await _json(here.client, f"/runs/{till}/state")
        assert (now["available"], now["sequence"], now["last"]) == (True, 2, 2)
        assert now["state"] == {"cents": 250, "is_open": True}
        before = await _json(here.client, f"/runs/{till}/state", sequence=1)
        assert before["state"] == {"cents": 0, "is_open": True}
        assert (await _json(here.client, f"/runs/{here.runs['done']}/state"))["available"] is False
        events = await _json(here.client, f"/runs/{till}/events", limit=1)
        assert [event["type"] for event in events["events"]] == ["Opened"]
        more = await _json(here.client, f"/runs/{till}/events", after=events["cursor"])
        assert [event["data"] for event in more["events"]] == [{"cents": 250}]
        steps = (await _json(here.client, f"/runs/{here.runs['research']}/checkpoints"))["checkpoints"]
        assert [(step["step"], step["label"]) for step in steps] == [(0, ""), (1, "planned")]
        one = await _json(here.client, f"/runs/{here.runs['research']}/checkpoints/1")
        assert one["changed"]["notes"]["after"] == ["plan for gold"]
        assert one["ran"] == ["plan"]
        for missing in ("9", "x", "-1"):
            answer = await here.client.get(f"{API}/runs/{here.runs['research']}/checkpoints/{missing}")
            assert answer.status == 404


async def test_i2_queues_workers_timers_definitions_and_numbers_are_shown(store_url: str) -> None:
    """What operators look at first."""
    async with populated(store_url) as here:
        (queue,) = (await _json(here.client, "/queues"))["queues"]
        assert (queue["name"], queue["workers"]) == ("default", 1)
        (worker,) = (await _json(here.client, "/workers"))["workers"]
        assert worker["alive"]
        assert worker["queues"] == ["default"]
        first = await _json(here.client, "/timers", limit=1)
        rest = await _json(here.client, "/timers", cursor=first["cursor"])
        timers = first["timers"] + rest["timers"]
        assert {(timer["workflow"], timer["kind"]) for timer in timers} == {
            ("napping", "sleep"),
            ("till", "timer"),
            ("add", "start"),
        }
        (projection,) = (await _json(here.client, "/projections"))["projections"]
        assert (projection["name"], projection["decider"], projection["behind"]) == ("takings", "till", 0)
        named = {each["name"]: each for each in (await _json(here.client, "/definitions"))["definitions"]}
        assert {"add", "Errand", "approval", "rounds", "research", "till"} <= named.keys()
        assert named["add"]["parameters"][1] == {"name": "b", "type": "int", "default": "1"}
        assert named["add"]["doc"] == "Add two numbers."
        assert named["till"]["doc"] == ""  # its author wrote nothing, and Decider's words are ours
        for name in ("add", "Errand", "rounds", "research"):
            shown = await _json(here.client, f"/definitions/{name}")
            assert shown["graph"]["nodes"]
            assert sum(shown["runs"].values()) >= 1
        assert (await here.client.get(f"{API}/definitions/nothing")).status == 404
        stats = await _json(here.client, "/stats")
        assert stats["store"] == here.engine.store.kind
        assert stats["runs"]["failed"] == 1
        me = await _json(here.client, "/me")
        assert (me["role"], me["name"], me["code"], me["redacted"]) == ("admin", "local", True, True)


async def test_i2_runs_whose_code_is_not_here_are_shown_all_the_same(sqlite_url: str) -> None:
    """Looking needs no code: a page beside a worker of another program shows what is stored."""
    async with populated(sqlite_url) as here, hf.Engine(sqlite_url, registry=hf.Registry()) as other:
        from holdfast.web import create_app

        client = Client(create_app(other))
        for name, run in here.runs.items():
            for part in ("", "/nodes", "/graph", "/timeline", "/history", "/state", "/events", "/checkpoints"):
                answer = await client.get(f"{API}/runs/{run}{part}")
                assert answer.status == 200, (name, part, answer.body)
        listed = (await _json(client, "/definitions"))["definitions"]
        assert {each["name"]: each["known_here"] for each in listed}["Errand"] is False
        assert (await _json(client, "/me"))["code"] is False
        assert (await _json(client, "/definitions/Errand"))["graph"] is None
