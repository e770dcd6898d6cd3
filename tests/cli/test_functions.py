"""Durable functions on the command line: starting, looking, sending events, asking, and trying code on histories."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

import holdfast as hf
from tests.cli.conftest import Shell
from tests.cli.test_json_shapes import promised
from tests.worker.support import until

DESK = """
import asyncio
from dataclasses import dataclass

import holdfast as hf


@dataclass
class Approval:
    by: str


approved = hf.event("approved", Approval)


@hf.action
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@hf.action(retry=hf.Retry(attempts=2, base=600.0, cap=600.0))
async def flaky() -> None:
    raise ConnectionError("the bank does not answer")


@hf.workflow
async def hello(name: str) -> str:
    return await greet(name) + " Welcome back."


@hf.workflow
async def onboard(name: str) -> str:
    greeting = await greet(name)
    hf.expose("greeting", lambda: {"said": greeting})
    match await hf.wait_for(approved | hf.after(days=2)):
        case hf.Received(value=Approval(by=by)):
            return f"approved by {by}"
        case _:
            return "late"


@hf.workflow
async def family(name: str) -> str:
    return await onboard(name)


@hf.workflow
async def tries() -> None:
    await flaky()


@hf.workflow
async def listens() -> str:
    return str((await hf.wait_for("news")).value)


@hf.workflow
async def crowd() -> None:
    await asyncio.gather(*[greet(name) for name in {f"guest-{number}" for number in range(30)}])
    await hf.wait_for("news")
"""


@pytest.fixture
def desk(shell: Shell) -> Shell:
    (shell.folder / "desk.py").write_text(DESK, encoding="utf-8")
    return shell


def change(shell: Shell, old: str, new: str) -> None:
    """The next deploy."""
    path = shell.folder / "desk.py"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    for compiled in Path(shell.folder, "__pycache__").glob("desk.*"):
        compiled.unlink()  # two versions within a second look the same to Python's cache
    shell.forget_code()


def waiting(shell: Shell, *words: str) -> str:
    """A run that has come to where it waits."""
    run = shell.start(*words)
    shell.work(run, until="suspended")
    return run


# --- starting and looking -------------------------------------------------------------------------------------------


def test_i15_a_workflow_is_started_by_module_and_name_with_its_arguments(desk: Shell) -> None:
    run = desk.start("desk:hello", "Ada", "--key", "k")
    desk.work(run)
    assert desk.ok("start", "desk:hello", "Ada", "--key", "k", "--wait").endswith("Hello, Ada! Welcome back.\n")
    (listed,) = desk.json("runs")["runs"]
    assert listed["model"] == "function"
    refused = desk("start", "desk:hello")
    assert refused.exit_code == 2
    assert "its signature is hello(name: str) -> str" in refused.stderr


def test_waiting_for_a_function_that_waits_for_an_event_says_how_to_send_it(desk: Shell) -> None:
    with desk.process("worker", "desk"), desk.process("start", "desk:listens", "--wait") as waiter:
        assert waiter.stderr is not None
        lines = iter(waiter.stderr.readline, "")
        told = next(line for line in lines if "it waits for event news" in line)
        words = told.partition(": holdfast ")[2].replace("PAYLOAD", "hurrah").split()
        desk.ok(*words)
        out, _ = waiter.communicate(timeout=20)
        assert out.endswith("hurrah\n")


def test_i50_show_tells_what_a_function_waits_for_and_what_it_has_recorded(desk: Shell) -> None:
    run = waiting(desk, "desk:onboard", "Ada")
    text = desk.ok("show", run)
    assert "model     function" in text
    assert re.search(r"event approved +\d{4}-.* wait_for\(.*approved\)", text)
    assert re.search(r"time \d{4}-.* UTC \(in 1 day\)", text)
    assert 'greet (#1) = "Hello, Ada!"' in text
    assert "NODE" not in text
    shown = desk.json("show", run)
    (wait,) = shown["waits"]
    assert set(wait) == promised()["a wait of show"][0]
    assert (wait["event"], wait["run"]) == ("approved", None)
    assert shown["wakes_at"] > shown["created_at"]
    (entry,) = shown["history"]
    assert entry["data"] == {"at": "#1", "name": "greet", "value": "Hello, Ada!"}


def test_i55_show_tells_of_children_and_of_the_parent(desk: Shell) -> None:
    run = waiting(desk, "desk:family", "Ada")
    (child,) = desk.json("show", run)["children"]
    assert set(child) == promised()["a child of show"][0]
    assert child["workflow"] == "onboard"
    desk.work(child["run"], until="suspended")
    assert desk.json("show", child["run"])["parent"] == run
    assert f"run {child['run']} (suspended)" in desk.ok("show", run)
    assert f"parent    run {run}" in desk.ok("show", child["run"])


def test_i3_show_has_calls_of_the_work_table_with_the_error_of_the_first_attempt(desk: Shell) -> None:
    run = waiting(desk, "desk:tries")
    text = desk.ok("show", run, "--traceback")
    assert "call flaky (#1)" in text
    assert "flaky (#1), attempt 1  ConnectionError: the bank does not answer" in text
    assert "in flaky" in text


def test_i49_a_long_history_is_shown_from_its_end_unless_all_is_asked_for(desk: Shell) -> None:
    change(desk, 'return await greet(name) + " Welcome back."', "return [await greet(f'{n}') for n in range(60)][-1]")
    run = desk.start("desk:hello", "Ada")
    desk.work(run)
    text = desk.ok("show", run)
    assert "10 earlier: --history shows all" in text
    assert "greet (#11) =" in text
    assert "greet (#10) =" not in text
    assert "greet (#10) =" in desk.ok("show", run, "--history")
    assert len(desk.json("show", run)["history"]) == 60


def test_a_function_has_no_graph_and_says_where_to_look_instead(desk: Shell) -> None:
    run = waiting(desk, "desk:onboard", "Ada")
    for target in ("desk:onboard", run):
        refused = desk("graph", target)
        assert refused.exit_code != 0
        assert "is a function, which has no graph" in refused.stderr
        assert "holdfast show" in refused.stderr


def test_every_command_that_explain_offers_a_waiting_function_wakes_it(desk: Shell) -> None:
    run = waiting(desk, "desk:onboard", "Ada")
    fixes = desk.json("explain", run, "--app", "desk")["fixes"]
    (send,) = [fix["command"].split()[1:] for fix in fixes if " send " in fix["command"]]
    send[send.index("PAYLOAD")] = '{"by": "Eve"}'
    desk.ok(*send)
    desk.work(run)
    assert desk.json("show", run)["result"] == "approved by Eve"


# --- events ---------------------------------------------------------------------------------------------------------


def test_i52_send_brings_an_event_of_its_type_to_a_run_and_says_what_became_of_it(desk: Shell) -> None:
    run = waiting(desk, "desk:onboard", "Ada", "--key", "k")
    wrong = desk("send", "approved", '{"by": 3}', "--to", run, "--app", "desk")
    assert wrong.exit_code == 2
    assert "which is no Approval" in wrong.stderr
    missing = desk("send", "approved", "--to", run, "--app", "desk")
    assert missing.exit_code == 2
    assert "the payload of event approved" in missing.stderr
    typo = desk("send", "aproved", "x", "--to", run, "--app", "desk")
    assert typo.exit_code == 0
    assert "did you mean approved?" in typo.stderr
    assert "waits for approved now, not for aproved" in typo.stderr
    sent = desk("send", "approved", '{"by": "Eve"}', "--to", "onboard/k", "--app", "desk", "--id", "m-1", "--json")
    document = json.loads(sent.stdout.splitlines()[-1])
    assert set(document) == promised()["send"][0]
    assert document == {"event": "approved", "id": "m-1", "outcome": "delivered", "runs": [run]}
    again = desk("send", "approved", '{"by": "Mallory"}', "--to", run, "--id", "m-1")
    assert again.exit_code == 0  # I12: the same id applies once
    desk.work(run)
    assert desk.json("show", run)["result"] == "approved by Eve"
    late = desk("send", "approved", '{"by": "Eve"}', "--to", run)
    assert late.exit_code == 1
    assert f"run {run} of onboard is completed and takes none" in late.stderr
    assert desk("send", "approved", '{"by": "Eve"}', "--to", "nobody").exit_code == 3


def test_i52_an_event_for_a_dag_is_refused_because_nothing_in_it_would_ever_take_it(desk: Shell) -> None:
    run = desk.start("shop:greet", "Ada")
    refused = desk("send", "news", "--to", run)
    assert refused.exit_code == 1
    assert "takes no events: it is no function" in refused.stderr


def test_i48_what_is_no_function_exposes_nothing_and_cannot_be_queried(desk: Shell) -> None:
    run = desk.start("shop:greet", "Ada")
    refused = desk("query", run, "mood")
    assert refused.exit_code == 2
    assert f"run {run} of greet is no function" in refused.stderr
    assert "only workflows expose anything" in refused.stderr


def test_i52_broadcast_reaches_the_longest_waiting_or_all_and_is_kept_if_nobody_waits(desk: Shell) -> None:
    first, second, third = (waiting(desk, "desk:listens") for _ in range(3))
    assert desk.json("broadcast", "news", "-1")["runs"] == [first]
    assert sorted(desk.json("broadcast", "news", "[2]", "--all")["runs"]) == sorted([second, third])
    assert desk.ok("broadcast", "news", "three") == "event news is kept until somebody waits for it\n"
    fourth = desk.start("desk:listens")
    desk.work(first, second, third, fourth)
    assert [desk.json("show", run)["result"] for run in (first, second, third, fourth)] == ["-1", "[2]", "[2]", "three"]
    typo = desk("broadcast", "news", "--al")
    assert typo.exit_code == 2
    assert "did you mean --all?" in typo.stderr


def test_i9_an_event_that_cannot_be_read_is_a_dead_letter_that_is_listed_replayed_and_discarded(desk: Shell) -> None:
    run = waiting(desk, "desk:onboard", "Ada")
    desk.forget_code()
    noted = desk("send", "approved", "7", "--to", run)
    assert "its payload was not checked: --app MODULE checks it" in noted.stderr

    def refuse() -> str:
        async def until_dead() -> str:
            engine = hf.Engine(desk.url, poll_seconds=0.02)
            async with engine, engine.worker():
                (letter,) = await until(engine.dead, "the event is a dead letter")
                return str(letter.id)

        desk.start("desk:hello", "Ada")  # imports the code
        return asyncio.run(until_dead())

    event = refuse()
    (letter,) = desk.json("dead", "list")["dead"]
    assert set(letter) == promised()["dead list"][1]
    assert (letter["kind"], letter["id"], letter["run"]) == ("event", event, run)
    replayed = desk.json("dead", "replay", event)
    assert set(replayed) == promised()["dead replay EVENT"][0]
    assert refuse()
    (letter,) = desk.json("dead", "list")["dead"]
    assert desk.json("dead", "discard", letter["id"])["changed"] is True
    assert desk.ok("dead", "list") == "there are no dead letters\n"
    assert desk("dead", "replay", event).exit_code == 1


def test_events_queries_and_checks_on_postgresql(folder: Path, postgres_url: str) -> None:
    shell = Shell(folder, postgres_url)
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    run, other = waiting(shell, "desk:onboard", "Ada"), waiting(shell, "desk:listens")
    assert shell.ok("query", run, "greeting", "--app", "desk") == '{"said": "Hello, Ada!"}\n'
    assert "2 fine" in shell.ok("check", "desk")
    assert shell.json("send", "approved", '{"by": "Eve"}', "--to", run, "--app", "desk")["outcome"] == "delivered"
    assert shell.json("broadcast", "news", "1")["runs"] == [other]
    shell.work(run, other)
    assert "it ends with the same result" in shell.ok("replay", run, "--app", "desk")
    assert [listed["status"] for listed in shell.json("runs")["runs"]] == ["completed", "completed"]


# --- asking, and trying code ----------------------------------------------------------------------------------------


def test_query_prints_what_a_function_exposes_and_needs_its_code(desk: Shell) -> None:
    run = waiting(desk, "desk:onboard", "Ada")
    assert desk.ok("query", run, "greeting", "--app", "desk") == '{"said": "Hello, Ada!"}\n'
    document = desk.json("query", run, "greeting", "--app", "desk")
    assert set(document) == promised()["query"][0]
    unknown = desk("query", run, "mood", "--app", "desk")
    assert unknown.exit_code == 1
    assert "it exposes: greeting" in unknown.stderr
    desk.forget_code()
    without = desk("query", run, "greeting")
    assert without.exit_code == 2
    assert "say --app with the module that defines it" in without.stderr


def test_i48_replay_verifies_a_run_against_the_code_and_changes_nothing(desk: Shell) -> None:
    open_, ended = waiting(desk, "desk:onboard", "Ada"), desk.start("desk:hello", "Ada")
    desk.work(ended)
    before = desk.json("show", open_)
    assert f"run {open_} of onboard replays as it was recorded (1 entry); it goes on with wait_for(" in desk.ok(
        "replay", open_, "--app", "desk"
    )
    assert "(1 entry); it ends with the same result" in desk.ok("replay", ended, "--app", "desk")
    change(desk, " Welcome back.", " Farewell.")
    differs = desk("replay", ended, "--app", "desk")
    assert differs.exit_code == 1
    assert (
        'completed with "Hello, Ada! Welcome back.", and this code ends with "Hello, Ada! Farewell."' in differs.stdout
    )
    change(desk, "greeting = await greet(name)", "greeting = await greet(name + '!')")
    differs = desk("replay", open_, "--app", "desk", "--json")
    assert differs.exit_code == 1
    document = json.loads(differs.stdout.splitlines()[-1])
    assert set(document) == promised()["replay"][0]
    assert "differs from its history at #1: the same call of greet with other arguments" in document["difference"]
    assert desk.json("show", open_) == before


def test_i48_check_tells_of_every_open_run_whether_it_would_go_on_with_the_new_code(desk: Shell) -> None:
    fine, breaks = waiting(desk, "desk:listens"), waiting(desk, "desk:onboard", "Ada")
    change(desk, "import holdfast as hf", "import holdfast as hf\nprint('desk is imported')")
    done = desk("check", "desk")
    assert done.exit_code == 0
    assert re.fullmatch(r"2 open runs checked under hash seed \d+: 2 fine\n", done.stdout)
    assert "desk is imported" in done.stderr  # and is not taken for an answer
    change(desk, "greeting = await greet(name)", "greeting = await greet(name + '!')")
    broken = desk("check", "desk")
    assert broken.exit_code == 1
    assert f"breaks   run {breaks} of onboard: run {breaks} differs from its history at #1" in broken.stdout
    assert "1 fine, 1 would break" in broken.stdout
    document = json.loads(desk("check", "desk", "--json").stdout)
    assert [set(document), set(document["runs"][0])] == promised()["check"]
    assert {each["run"]: each["verdict"] for each in document["runs"]} == {fine: "fine", breaks: "breaks"}
    assert desk.json("show", breaks)["status"] == "suspended"


def test_check_counts_open_runs_that_no_module_defines_and_refuses_what_is_not_there(desk: Shell) -> None:
    waiting(desk, "desk:listens")
    change(desk, "async def listens(", "async def hears(")
    done = desk("check", "desk")
    assert done.exit_code == 0
    assert "workflows that these modules do not define were not checked: listens (1)" in done.stderr
    unknown = desk("check", "desk", "--workflow", "heers")
    assert unknown.exit_code == 3
    assert "did you mean 'hears'?" in unknown.stderr
    nowhere = desk("check", "nowhere")
    assert nowhere.exit_code == 3
    assert "there is no module 'nowhere'" in nowhere.stderr
    assert nowhere.stderr.count("error:") == 1
    assert desk("check").exit_code == 2


def test_i48_check_finds_code_whose_order_depends_on_hashes(desk: Shell) -> None:
    """It runs under another hash seed than the one that recorded, whatever this process is told to have."""
    run = desk.start("desk:crowd")

    async def until_it_waits() -> None:
        async with hf.Engine(desk.url, poll_seconds=0.02) as engine:
            await engine.watch.wait(run, lambda row: row.ended or row.status == "suspended", 30)

    with desk.process("worker", "desk", env={"PYTHONHASHSEED": "7"}):
        asyncio.run(until_it_waits())
    same = desk("check", "desk", "--hash-seed", "7")
    assert same.exit_code == 0, same.output
    done = desk("check", "desk", env={"PYTHONHASHSEED": "7"})
    assert done.exit_code == 1
    assert "the same call of greet with other arguments" in done.stdout
