"""State graphs on the command line: started, looked at, answered, replayed, forked, compared, explained and checked."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.loading import load_modules
from tests.cli.conftest import Shell
from tests.cli.test_json_shapes import promised

DESK = """
import operator
from typing import Annotated, TypedDict

import holdfast as hf


class State(TypedDict, total=False):
    question: str
    notes: Annotated[list[str], operator.add]
    rounds: int
    approved: bool
    title: str


research = hf.StateGraph(State, name="research")


@research.node
async def plan(state: State) -> dict:
    return {"rounds": state.get("rounds", 0) + 1}


@research.node(recordable=True, retry=hf.Retry(attempts=2, base=3600, cap=3600))
async def search(state: State, ctx: hf.NodeContext) -> dict:
    if state["question"] == "broken":
        raise ValueError("no answer")
    question = state["question"]
    found = await ctx.record("search", {"q": question, "api_key": "secret"}, lambda: look_up(question))
    return {"notes": [found]}


def look_up(question: str) -> str:
    return f"page on {question}"


@research.node
def verify(state: State) -> dict:
    return {"notes": [f"round {state['rounds']} is fine"]}


@research.node(label="approved")
async def approve(state: State, ctx: hf.NodeContext) -> dict:
    return {"approved": await ctx.interrupt({"approve?": len(state["notes"])})}


@research.node
async def write(state: State) -> dict:
    return {"title": state["question"].title()}


research.start_at("plan")
research.edge("plan", "search")
research.edge("plan", "verify")
research.edge("verify", "plan", when=lambda state: state["rounds"] < 2)
research.edge("search", "approve", when=lambda state: state["rounds"] >= 2)
research.edge("approve", "write", when=lambda state: state["approved"])
research.finish("search", "verify", "approve", "write")


class Wide(TypedDict, total=False):
    n: int
    title: str
    seen: Annotated[list[int], operator.add]


wide = hf.StateGraph(Wide, name="wide", max_concurrent=2, queue_depth=3)


@wide.node(goes_to=["leaf"])
async def fan(state: Wide) -> hf.Many:
    return hf.Many([hf.Send("leaf", {"n": number}) for number in range(9)])


@wide.node(queue="leaves")
async def leaf(state: Wide, ctx: hf.NodeContext) -> dict:
    if state["title"] == "ask":
        return {"seen": [await ctx.interrupt(f"what of {state['n']}?")]}
    return {"title": str(state["n"])}


wide.start_at("fan")
wide.finish("leaf")


outer = hf.StateGraph(State, name="outer")
outer.subgraph("part", research)
outer.start_at("part")
outer.finish("part")

narrow = hf.StateGraph(Wide, name="narrow", max_concurrent=1, queue_depth=1, backpressure_seconds=0)
narrow.node(goes_to=["leaf"])(fan)
narrow.node(leaf)
narrow.start_at("fan")
narrow.finish("leaf")
"""

TYPED = """
import datetime as dt
from dataclasses import dataclass
from typing import TypedDict

import holdfast as hf


@dataclass
class Page:
    words: frozenset[str]


class Typed(TypedDict, total=False):
    at: dt.datetime
    tags: set[str]
    page: Page
    year: int


typed = hf.StateGraph(Typed, name="typed")


@typed.node
async def look(state: Typed) -> dict:
    return {"year": state["at"].year + len(state["tags"] | state["page"].words)}


typed.start_at("look")
typed.finish("look")
"""


@pytest.fixture
def desk(shell: Shell, folder: Path) -> Shell:
    """With a module `desk` that has two graphs; the fixtures forget modules of that name."""
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    return shell


def work_until_settled(shell: Shell, *states: dict[str, Any], graph: str = "research") -> list[str]:
    """Start a run with each of these states, and run a worker in this process until nothing is due."""

    async def work() -> list[str]:
        (module,) = load_modules(["desk"])
        async with hf.Engine(shell.url, poll_seconds=0.02) as engine, engine.worker(queues=["default", "leaves"]):
            runs = [(await engine.start(getattr(module, graph), state)).id for state in states]
            await engine.settle(timeout=30)
        return runs

    return asyncio.run(work())


def words_of(shell: Shell, *command: str) -> str:
    return " ".join(shell.ok(*command).split())


def test_a_state_graph_is_started_with_a_json_object_with_fields_or_by_its_name(desk: Shell) -> None:
    """The state is refused before a database is made, with the field and the fix."""
    for words, told in (
        (['{"quest": "why"}'], "has 'quest', which is no field of State"),
        (['{"question": 7}'], "question"),
        (['{"question"'], "the state of research is no JSON"),
        (["[1]"], "the state of research is a list, and not an object"),
        (["why"], "'why' is neither a JSON object nor written as FIELD=VALUE"),
        (["rounds=many"], "argument 'rounds' is 'many', which is no int"),
        (["rounds=1", "rounds=2"], "the field 'rounds' is given twice"),
    ):
        refused = desk("start", "desk:research", *words)
        assert refused.exit_code == 2, refused.output
        assert told in refused.stderr
    assert not (desk.folder / "app.db").exists()
    by_place = desk.start("desk:research", '{"question": "why"}', "--key", "q-1")
    by_field = desk.start("research", "question=7", "rounds=1", "--app", "desk")
    assert desk.json("show", by_place)["input"]["question"] == "why"
    assert desk.json("show", "research/q-1")["run"] == by_place
    assert desk.json("show", by_field)["input"] == {"notes": [], "question": "7", "rounds": 1}
    assert {run["model"] for run in desk.json("runs")["runs"]} == {"graph"}


def test_i12_fields_of_a_state_get_the_types_that_the_class_names(shell: Shell, folder: Path) -> None:
    """A time is a text in JSON, a set a list; so it is in the arguments of a workflow too. Also in a fork."""
    (folder / "desk.py").write_text(TYPED, encoding="utf-8")
    given = {"at": "2031-05-01T12:00:00Z", "tags": ["a", "b"], "page": {"words": ["c"]}}
    for field, wrong in (("at", "soon"), ("tags", 7), ("page", {"word": []})):
        refused = shell("start", "desk:typed", json.dumps({**given, field: wrong}))
        assert refused.exit_code == 2, refused.output
        assert f"field '{field}' of the state of typed does not fit its annotation" in refused.stderr
    run = shell.start("desk:typed", json.dumps(given))
    work_until_settled(shell, graph="typed")
    assert shell.json("show", run)["result"]["year"] == 2034
    forked = shell("fork", run, "--step", "0", "--update", '{"at": "2021-01-01T00:00:00Z"}', "--app", "desk").stdout
    work_until_settled(shell, graph="typed")
    assert shell.json("show", forked.strip())["result"]["year"] == 2024
    refused = shell("fork", run, "--step", "0", "--update", '{"at": "soon"}', "--app", "desk")
    assert "field 'at' of the update of run" in refused.stderr


def test_i39_show_has_steps_the_frontier_and_what_a_person_is_asked(desk: Shell) -> None:
    """I39, I41: looking needs no code; items are in the order in which they are merged."""
    asking, broken = work_until_settled(desk, {"question": "why"}, {"question": "broken"})
    desk.forget_code()
    document = desk.json("show", asking)
    shape = promised()["the graph of show"]
    assert document["graph"].keys() == shape[0]
    assert document["graph"]["frontier"][0].keys() == shape[1]
    assert document["graph"]["questions"][0].keys() == shape[2]
    assert [step["step"] for step in document["graph"]["steps"]] == [0, 1, 2, 3, 4]
    assert document["graph"]["steps"][2]["ran"] == ["verify@2", "search@2"]
    assert document["graph"]["questions"][0]["payload"] == {"approve?": 4}
    assert document["due_at"] is None
    lines = desk.ok("show", asking)
    assert "steps (4 finished)" in lines
    assert "4     " in lines
    assert "[ ]  approve@5  asks a person  1" in lines
    assert f"    holdfast resume {asking} --answer ANSWER --node approve@5" in lines
    assert "search@2  ready (due " in desk.ok("show", broken)
    assert "search@2, attempt 1  ValueError: no answer" in desk.ok("show", broken)


def test_i41_items_of_a_fan_out_are_one_line_and_those_that_matter_have_their_own(desk: Shell) -> None:
    (run,) = work_until_settled(desk, {"title": "ask"}, graph="wide")
    shown = desk.ok("show", run)
    assert "frontier: step 2, 9 items" in shown
    assert "leaf (9 items)" in shown
    assert shown.count("asks a person") == 9
    assert desk.ok("show", run, "--nodes").count("leaf@2.") > 9
    document = desk.json("show", run)["graph"]
    assert sorted(item["sent"]["n"] for item in document["frontier"]) == list(range(9))
    assert len(document["questions"]) == 9


def test_the_time_travel_listing_has_what_ran_and_what_changed_and_one_checkpoint_its_state(desk: Shell) -> None:
    """Needs no code. The document of one checkpoint has the seed's names (I47)."""
    (run,) = work_until_settled(desk, {"question": "why"})
    desk.forget_code()
    lines = desk.ok("checkpoints", run).splitlines()
    assert lines[0].split() == ["STEP", "AT", "(UTC)", "RAN", "CHANGED", "CALLS"]
    assert "(it began)" in lines[1]
    assert lines[3].split()[2:] == ["verify,", "search", "notes", "1"]
    listing = desk.json("checkpoints", run)
    shape = promised()["checkpoints"]
    assert listing.keys() == shape[0]
    assert [step["changed"] for step in listing["checkpoints"][1:]] == [["rounds"], ["notes"], ["rounds"], ["notes"]]
    assert listing["checkpoints"][0].keys() == shape[1]
    one = desk.json("checkpoints", run, "--step", "2")
    assert one.keys() == promised()["checkpoints --step"][0]
    assert one["state"] == {"question": "why", "notes": ["round 1 is fine", "page on why"], "rounds": 1}
    assert one["recorded_ios"][0]["request"] == {"q": "why", "api_key": "***"}
    told = desk.ok("checkpoints", run, "--step", "2")
    assert '["round 1 is fine", "page on why"]' in told
    assert "plan" in told.partition("next")[2]
    missing = desk("checkpoints", run, "--step", "9")
    assert missing.exit_code == 1
    assert "has no checkpoint of step 9: its latest is 4" in missing.stderr
    assert desk("checkpoints", run, "--label", "approved").exit_code == 1
    greeting = desk.start("shop:greet", "Ada")
    assert "has no checkpoints" in desk("checkpoints", greeting).stderr


def test_an_answer_from_the_shell_lets_the_run_go_on(desk: Shell) -> None:
    """The run is suspended and not paused; whoever resumes it without an answer is told what it asks for."""
    asking, other = work_until_settled(desk, {"question": "why"}, {"question": "how"})
    plain = desk("resume", asking)
    assert plain.exit_code == 1
    assert "approve@5 waits for a person's answer" in plain.stderr
    assert desk("resume", asking, "--node", "approve").exit_code == 2
    nobody = desk("resume", asking, "--answer", "true", "--node", "verify@2")
    assert nobody.exit_code == 1
    assert "asks nobody anything in verify@2" in nobody.stderr
    desk.forget_code()
    assert desk.json("resume", asking, "--answer", "true") == {
        "run": asking,
        "changed": True,
        "status": "running",
        "nodes": ["approve@5"],
    }
    assert "has its answer for approve@5" in desk.ok("resume", other, "--answer", "false", "--node", "approve@5")
    assert desk.json("resume", asking, "--answer", "true")["changed"] is False, "a repeated answer does no harm"
    assert "asks nobody anything" in desk("resume", asking, "--answer", "7").stderr
    work_until_settled(desk)
    shown = desk.json("show", asking)
    assert (shown["status"], shown["result"]["title"]) == ("completed", "Why")
    assert desk.json("checkpoints", asking, "--label", "approved")["step_id"] == 5
    assert "title" not in desk.json("show", other)["result"]
    assert "answered" in desk.ok("show", asking)


def test_waiting_for_a_graph_says_what_it_asks_and_how_to_answer(desk: Shell) -> None:
    with (
        desk.process("worker", "desk"),
        desk.process("start", "desk:research", '{"question": "why"}', "--wait") as waiting,
    ):
        assert waiting.stderr is not None
        told = ""
        while "asks a person" not in told:
            told = waiting.stderr.readline()
            assert told, "it ended without a word"
        command = told.rpartition(": holdfast ")[2].split()
        assert command[0] == "resume"
        desk.ok(*[word.replace("ANSWER", "true") for word in command])
        assert waiting.stdout is not None
        assert json.loads(waiting.stdout.read())["title"] == "Why"
        assert waiting.wait(30) == 0


def test_i45_a_replay_that_agrees_says_so_and_one_that_does_not_shows_both_sides(desk: Shell) -> None:
    """I45: strict stops at the first difference with exit code 1, lenient tells all; nothing is written."""
    (run,) = work_until_settled(desk, {"question": "why"})
    assert "4 steps, 6 nodes were run again, 2 calls answered from the record" in desk.ok(
        "replay", run, "--app", "desk"
    )
    document = desk.json("replay", run, "--app", "desk")
    shape = promised()["replay of a state graph"]
    assert document.keys() == shape[0]
    assert (document["ok"], document["steps"], document["differences"]) == (True, 4, [])
    desk.forget_code()
    without = desk("replay", run)
    assert without.exit_code == 2
    assert "say --app" in without.stderr
    with sqlite3.connect(desk.url.removeprefix("sqlite:///")) as database:
        changed = json.dumps("another page").encode()
        database.execute("UPDATE recorded SET response = ? WHERE node = 'search@4'", (changed,))
    strict = desk("replay", run, "--app", "desk")
    assert strict.exit_code == 1
    assert "step 4, search@4: the stored response of call 1 (search) was changed" in strict.stdout
    assert "sha256:" in strict.stdout
    assert "another page" in strict.stdout
    lenient = desk("replay", run, "--app", "desk", "--mode", "lenient", "--json")
    assert lenient.exit_code == 1
    found = json.loads(lenient.stdout)["differences"]
    assert [each["what"].partition(" of")[0] for each in found] == ["the stored response", "it returned something else"]
    assert found[0].keys() == shape[1]
    refused = desk("replay", desk.start("shop:greet", "Ada"), "--mode", "live")
    assert refused.exit_code == 2


def test_i45_a_live_replay_tells_where_the_world_answers_differently_now(desk: Shell, folder: Path) -> None:
    (run,) = work_until_settled(desk, {"question": "why"})
    desk.forget_code()
    (folder / "desk.py").write_text(DESK.replace("page on {question}", "a newer page on {question}"), encoding="utf-8")
    assert desk("replay", run, "--app", "desk").exit_code == 0, "the call is not made, so nobody can know"
    live = desk("replay", run, "--app", "desk", "--mode", "live")
    assert live.exit_code == 1
    assert "the world answers otherwise now, in 2 places" in live.stdout
    assert "recorded  page on why" in live.stdout
    assert "now       a newer page on why" in live.stdout


def test_a_fork_goes_on_from_a_step_with_other_values_and_diff_shows_where_they_part(desk: Shell) -> None:
    """The source stays as it is; steps before the fork are not compared."""
    (run,) = work_until_settled(desk, {"question": "why"})
    forked = desk.json("fork", run, "--step", "1", "--update", '{"question": "how"}', "--app", "desk")
    assert forked.keys() == promised()["fork"][0]
    assert (forked["source"], forked["step"], forked["from_node"]) == (run, 1, None)
    again = desk.ok("fork", run, "--step", "1", "--app", "desk").strip()
    assert f"from run {run} after step 1" in desk.ok("show", again)
    assert f"into run {again}, after step 1" in desk.ok("show", run)
    work_until_settled(desk)
    desk.forget_code()
    same = desk("diff", run, again)
    assert (same.exit_code, same.stdout) == (0, "the runs are the same: 4 steps were compared\n")
    differing = desk("diff", run, forked["run"])
    assert differing.exit_code == 1
    assert "the runs differ first after step 1: 4 steps were compared, 4 steps differ" in differing.stdout
    assert 'question  - "why"\n          + "how"\n' in differing.stdout
    document = json.loads(desk("diff", run, forked["run"], "--json").stdout)
    shape = promised()["diff"]
    assert document.keys() == shape[0]
    assert document["differences"][0].keys() == shape[1]
    assert document["differences"][0]["fields"]["question"] == {"first": "why", "second": "how"}
    assert desk("diff", run, run).exit_code == 1


def test_a_fork_that_names_the_wrong_place_says_which_one_is_right(desk: Shell) -> None:
    (run,) = work_until_settled(desk, {"question": "why"})
    for words, code, told in (
        (["--from", "plan"], 2, "is a state graph, and --from is for DAGs"),
        (["--step", "9"], 1, "has no step 9: its latest is 4"),
        (["--label", "found"], 1, "has the label 'found'"),
        (["--step", "1", "--update", "{"], 2, "is no JSON"),
        (["--step", "1", "--update", '{"quest": 1}'], 1, "has 'quest', which is no field of State"),
    ):
        refused = desk("fork", run, *words, "--app", "desk")
        assert (refused.exit_code, told in refused.stderr) == (code, True), refused.output
    order = desk.start("shop:Order", "order_id=1")
    assert "say from which node: --from NODE" in desk("fork", order).stderr
    assert "--step is for state graphs" in desk("fork", order, "--step", "1").stderr


def test_a_graph_is_drawn_before_any_run_and_with_the_way_that_a_run_took(desk: Shell) -> None:
    drawn = desk.ok("graph", "desk:research").splitlines()
    assert drawn[0] == "plan (start) -> search, verify"
    assert desk.ok("graph", "research", "--app", "desk").splitlines() == drawn
    assert desk.ok("graph", "desk:research", "--format", "mermaid").startswith("graph TD\n")
    document = desk.json("graph", "desk:research")
    shape = promised()["graph of a state graph"]
    assert document.keys() == shape[0]
    assert document["nodes"][0].keys() == shape[1]
    assert document["edges"][0].keys() == shape[2]
    assert document["nodes"][0]["state"] is None
    assert "use --format mermaid" in desk("graph", "desk:research", "--format", "svg").stderr
    (run,) = work_until_settled(desk, {"question": "why"})
    of_run = desk.ok("graph", run, "--app", "desk")
    assert of_run.startswith("plan (start, completed 2 times) -> search, verify\n")
    assert "approve (blocked) -> " in of_run
    assert of_run.endswith("path:\n   1  plan\n   2  verify, search\n   3  plan\n   4  verify, search\n")
    mermaid = desk.ok("graph", run, "--app", "desk", "--format", "mermaid")
    assert '    n0["plan<br/>completed 2 times"]:::completed\n' in mermaid
    assert "    linkStyle 0,1,2,3,4,6,7 " in mermaid, "all but the way to write and those from it"
    taken = {(edge["from"], edge["to"]): edge["taken"] for edge in desk.json("graph", run, "--app", "desk")["edges"]}
    assert taken[("plan", "search")] == 2
    assert taken[("approve", "write")] == 0
    desk.forget_code()
    without = desk("graph", run)
    assert without.exit_code == 2
    assert f"`holdfast checkpoints {run}` shows which nodes ran" in without.stderr
    assert "is a state graph, and no DAG" in desk("verify", run).stderr


def test_explain_names_the_node_that_asks_and_its_command_answers(desk: Shell) -> None:
    """G10: what is printed can be pasted, and moves the run."""
    (run,) = work_until_settled(desk, {"question": "why"})
    desk.forget_code()
    told = desk.json("explain", run)
    assert told["summary"] == f"run {run} of research waits for an answer to node approve@5"
    assert told["reasons"][0].startswith("node approve@5 asks a person since ")
    assert told["reasons"][0].endswith(': {"approve?": 4}')
    (answer,) = told["fixes"]
    desk.ok(*answer["command"].replace("ANSWER", "true").split()[1:])
    assert "waits for approve@5 to be started" in desk.ok("explain", run)
    assert "no worker is running" in desk.ok("explain", run)


def test_explain_tells_backing_off_items_that_were_not_let_in_and_a_failed_merge(desk: Shell, folder: Path) -> None:
    """I41, I46: of a merge that failed no node is to blame, and the fix is a retry with better code."""
    (backing_off,) = work_until_settled(desk, {"question": "broken"})
    assert "node search@2 is backing off until " in words_of(desk, "explain", backing_off)
    (failed,) = work_until_settled(desk, {"title": "x"}, graph="wide")
    told = desk.json("explain", failed)
    assert "ConflictingWrites: 9 items of node 'leaf' wrote field 'title'" in told["summary"]
    assert told["reasons"][0].startswith("the merge of step 2 failed, and no node is to blame")
    assert "hf.reducers.last_writer" in told["reasons"][0]
    retry = told["fixes"][0]["command"]
    assert retry == f"holdfast retry {failed} --app desk"
    desk.forget_code()
    mended = DESK.replace("    title: str\n    seen:", "    title: Annotated[str, max]\n    seen:")
    (folder / "desk.py").write_text(mended, encoding="utf-8")
    assert "again: the merge of its last step" in desk.ok(*retry.split()[1:])
    shown = desk.json("show", failed)
    assert (shown["status"], shown["result"]["title"]) == ("completed", "x")
    assert all(len(node["attempts"]) == 1 for node in shown["nodes"]), "no node ran again"
    waits = desk.start("desk:wide", '{"title": "x"}')
    work_without_leaves(desk, waits)
    told = desk.json("explain", waits)
    assert (
        "7 items of step 2 wait to be let in: at most 2 run at once (max_concurrent); the frontier holds 3 of them "
        "(queue_depth), and 4 are spilled behind it"
    ) in told["reasons"]
    assert "not let in yet" in desk.ok("show", waits)


def work_without_leaves(shell: Shell, run: str) -> None:
    """Run what a worker of the default queue can: all but the leaves."""

    async def work() -> None:
        async with hf.Engine(shell.url, poll_seconds=0.02) as engine, engine.worker():
            await engine.watch.wait(run, lambda row: row.base >= 1, 30)

    asyncio.run(work())


def test_i46_explain_tells_a_pause_under_back_pressure_and_its_command_goes_on(desk: Shell) -> None:
    """I46: the run is paused at its checkpoint, and nothing is lost."""
    (run,) = work_until_settled(desk, {"title": "x"}, graph="narrow")
    told = desk.json("explain", run)
    assert told["status"] == "paused"
    assert "8 items wait behind a frontier of 1, and none was let in for" in told["summary"]
    assert told["reasons"] == [
        "8 items of step 2 wait to be let in: at most 1 run at once (max_concurrent); the frontier holds 1 of them "
        "(queue_depth), and 7 are spilled behind it"
    ]
    (resume,) = told["fixes"]
    assert resume["command"] == f"holdfast resume {run} --app desk"
    desk.forget_code()
    without = desk("resume", run)
    assert (without.exit_code, "say --app" in without.stderr) == (3, True), (
        "nothing of it is active: what follows is code"
    )
    assert "goes on" in desk.ok(*resume["command"].split()[1:])
    work_until_settled(desk)
    assert desk.json("show", run)["graph"]["waiting"] == 7


def test_explain_of_a_graph_that_waits_for_a_subgraph_leads_to_its_run(desk: Shell) -> None:
    (run,) = work_until_settled(desk, {"question": "why"}, graph="outer")
    (child,) = desk.json("show", run)["children"]
    told = desk.json("explain", run)
    assert f"waits for the end of its child run {child['run']} of research (suspended)" in told["summary"]
    assert [fix["command"] for fix in told["fixes"]] == [f"holdfast explain {child['run']}"]
    assert "approve@5 asks a person" in desk.ok("explain", child["run"])
    assert "part (start, graph research, blocked) -> finish" in desk.ok("graph", run, "--app", "desk")


def test_explain_of_a_graph_that_nobody_knows_names_the_worker_that_would(desk: Shell) -> None:
    run = desk.start("desk:research", '{"question": "why"}')
    assert "no worker is running" in desk.ok("explain", run)
    assert "holdfast worker desk" in desk.ok("explain", run)

    async def with_other_code() -> str:
        engine = hf.Engine(desk.url, registry=hf.Registry(), poll_seconds=0.02)
        async with engine, engine.worker():
            return str(await engine.get(run).explain())

    assert "no live worker of queue 'default' knows research.plan" in asyncio.run(with_other_code())


def test_check_finds_nodes_and_states_that_open_runs_need_and_new_code_lacks(desk: Shell, folder: Path) -> None:
    """Before a deploy; a graph that is not in order is told even if nothing of it is open."""
    (run,) = work_until_settled(desk, {"question": "why"})

    def checked(code: str) -> tuple[int, str]:
        (folder / "desk.py").write_text(code, encoding="utf-8")
        with desk.process("check", "desk") as process:
            told, trouble = process.communicate(timeout=60)
        return process.returncode, told + trouble

    assert checked(DESK)[0] == 0
    renamed = DESK.replace("async def approve(", "async def decide(").replace('"approve"', '"decide"')
    code, told = checked(renamed)
    assert code == 1
    assert f"breaks   run {run} of research: step 5 runs nodes that this code does not have: approve" in told
    code, told = checked(DESK.replace("    rounds: int", "    rounds: str"))
    assert code == 1
    assert "its state after step 4 does not fit State" in told
    code, told = checked(DESK.replace("    rounds: int", "    rounds: int\n    pages: int"))
    assert code == 0
    assert "changes  " in told
    assert "its graph or its state has changed since it was started" in told
    code, told = checked(DESK.replace('wide.finish("leaf")\n', ""))
    assert code == 1
    assert "breaks   graph wide: " in told


def test_the_main_path_of_graphs_on_postgresql(folder: Path, postgres_url: str) -> None:
    """Steps, an answer, a replay, a fork and a diff, as on SQLite."""
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    desk = Shell(folder, postgres_url)
    desk.ok("migrate")
    run = desk.start("desk:research", '{"question": "why"}')
    work_until_settled(desk)
    assert [step["ran"] for step in desk.json("checkpoints", run)["checkpoints"]][2] == ["verify@2", "search@2"]
    assert "approve@5  asks a person" in desk.ok("show", run)
    assert "asks a person since" in desk.ok("explain", run)
    forked = desk.ok("fork", run, "--step", "2", "--update", '{"question": "how"}', "--app", "desk").strip()
    desk.ok("resume", run, "--answer", "true")
    work_until_settled(desk)
    assert desk.json("show", run)["status"] == "completed"
    assert desk.json("checkpoints", run, "--label", "approved")["step_id"] == 5
    assert desk.json("replay", run, "--app", "desk")["ok"] is True
    assert "the runs differ first after step 2" in desk("diff", run, forked).stdout
    assert desk.ok("graph", run, "--app", "desk").endswith("   6  write\n")
