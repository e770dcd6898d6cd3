"""What operators ask of runs and of the whole database, and what they are told."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

import holdfast as hf
from holdfast.core.codec import encode_error
from holdfast.core.errors import MissingJob
from holdfast.core.operations import BuryUnknown
from tests.cli.conftest import Shell


def test_g7_cancel_ends_a_run_once_and_a_completed_run_stays_as_it_is(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    assert shell.ok("cancel", run) == f"run {run} is cancelled\n"
    assert shell.ok("cancel", run) == f"run {run} was cancelled already\n"
    done = shell.start("shop:greet", "Bob")
    shell.work(done)
    refused = shell("cancel", done)
    assert refused.exit_code == 1
    assert "it is completed" in refused.stderr


def test_i11_pause_and_resume_say_what_they_changed(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    assert shell.json("pause", run, "--reason", "lunch") == {
        "run": run,
        "changed": True,
        "status": "paused",
        "nodes": [],
    }
    assert "paused already" in shell.ok("pause", run)
    assert "lunch" in shell.json("show", run)["reason"]
    assert "goes on" in shell.ok("resume", run)
    assert "was not paused" in shell.ok("resume", run)
    shell.work(run)
    assert shell("pause", run).exit_code == 1
    assert shell("resume", run).exit_code == 1


def test_i11_retry_and_reattempt_give_what_gave_up_a_new_attempt(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    refused = shell("retry", run)
    assert refused.exit_code == 1
    assert "nothing to retry" in refused.stderr
    shell.work(run)
    assert shell.json("retry", run)["nodes"] == ["charge"]
    shell.work(run)
    assert shell.json("reattempt", run, "charge")["nodes"] == ["charge"]
    shell.work(run)
    assert shell("reattempt", run, "validate").exit_code == 1
    missing = shell("reattempt", run, "nobody")
    assert missing.exit_code == 3
    assert "nobody" in missing.stderr


def test_i11_skip_with_the_code_goes_on_at_once_and_satisfies_what_follows(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    shell.forget_code()
    skipped = shell("skip", run, "charge", "--app", "shop")
    assert skipped.stdout == f"node charge of run {run} is skipped\n"
    assert skipped.stderr == ""
    assert {node["id"]: node["state"] for node in shell.json("show", run)["nodes"]}["ship"] == "ready"
    shell.work(run)
    assert shell.json("show", run)["status"] == "completed"


def test_i11_skip_without_the_code_leaves_what_follows_to_a_worker_that_has_it(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    shell.forget_code()
    skipped = shell("skip", run, "charge")
    assert skipped.exit_code == 0
    assert "what follows is in the code of Order: a worker that has it goes on within a minute" in skipped.stderr
    assert "waits for newer code of Order" in shell.ok("explain", run)
    shell.ok("graph", "shop:Order")  # imports it
    shell.work(run)
    assert shell.json("show", run)["status"] == "completed"


def test_i29_a_refused_reattempt_offers_the_fork_that_works(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=1")
    shell.work(run)
    refused = shell("reattempt", run, "validate")
    assert refused.exit_code == 1
    assert f"`holdfast fork {run} --from validate`" in refused.stderr
    shell.ok("fork", run, "--from", "validate")


def test_i11_a_retry_of_a_run_that_somebody_paused_says_that_it_stays_paused(shell: Shell) -> None:
    run = shell.start("shop:batch", "3", "1")
    shell.work(run)
    shell.ok("pause", run)
    stays = f"it stays paused until `holdfast resume {run}`"
    assert shell.ok("retry", run) == f"run {run} has new attempts; again: item_1; {stays}\n"
    assert shell.json("show", run)["status"] == "paused"
    shell.ok("resume", run)
    assert shell.json("show", run)["status"] == "running"


def test_i11_retry_names_the_nodes_of_a_built_dag_as_people_know_them(shell: Shell) -> None:
    run = shell.start("shop:batch", "3", "1")
    shell.work(run)
    assert shell.ok("retry", run) == f"run {run} goes on; again: item_1\n"


def test_history_names_who_did_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    run = shell.start("shop:greet", "Ada")
    shell.ok("pause", run)
    assert shell.json("show", run)["history"][0]["data"]["by"] == "ada"


def bury(shell: Shell, run: str, node: str) -> None:
    async def submit() -> None:
        async with hf.Engine(shell.url) as engine:
            error = encode_error(MissingJob(f"nobody knows {node}"))
            await engine.coordinator.submit(BuryUnknown(run=run, node=node, attempt=1, error=error))

    asyncio.run(submit())


def test_i9_dead_letters_are_listed_replayed_and_discarded(shell: Shell) -> None:
    run, other = shell.start("shop:Order", "order_id=1"), shell.start("shop:greet", "Ada")
    assert shell.ok("dead", "list") == "there are no dead letters\n"
    bury(shell, run, "validate")
    bury(shell, other, "greet")
    listed = shell.json("dead", "list")["dead"]
    assert [(item["run"], item["node"]) for item in listed] == [(run, "validate"), (other, "greet")]
    assert "nobody knows validate" in shell.ok("dead", "list")
    assert "new attempt" in shell.ok("dead", "replay", run, "validate")
    assert shell("dead", "replay", run, "validate").exit_code == 1
    shell.ok("dead", "discard", other, "greet")
    assert shell("dead", "discard", other, "greet").exit_code == 1
    assert shell.json("dead", "list") == {"dead": []}
    shell.work(run)
    assert shell.json("show", run)["status"] == "completed"
    assert shell.json("show", other)["status"] == "failed"


def test_i9_a_dead_letter_of_a_built_dag_is_named_as_people_know_it(shell: Shell) -> None:
    run = shell.start("shop:batch", "1")
    (node,) = [node["id"] for node in shell.json("show", run)["nodes"] if node["name"] == "item_0"]
    bury(shell, run, node)
    (letter,) = shell.json("dead", "list")["dead"]
    assert (letter["node"], letter["id"]) == ("item_0", node)
    assert f"holdfast dead replay {run} item_0\n" in shell.ok("explain", run)
    shell.ok("dead", "replay", run, "item_0")


def test_i9_a_dead_event_is_listed_replayed_and_discarded_by_its_id(shell: Shell) -> None:
    """Through the commands of all dead letters: a node has a run and a name, an event has an id."""

    async def bury_events() -> None:
        async with hf.Engine(shell.url) as engine:
            handle = await engine.start("greet", "Ada")
            kept = hf.event("kept", str, on_target_end="dead", registry=hf.Registry())
            for id in ("one", "two"):
                await engine.send(kept, id, to=handle, id=id)
            await handle.cancel()

    shell.start("shop:greet", "Ada")  # so that this process knows it
    asyncio.run(bury_events())
    one, two = shell.json("dead", "list")["dead"]
    assert (one["kind"], one["node"], one["id"].partition("/")[2]) == ("event", "kept", "one")
    assert "ended before it took this" in shell.ok("dead", "list")
    assert "whoever waits" in shell.ok("dead", "replay", one["id"])
    assert shell.json("dead", "discard", two["id"]) == {"event": two["id"], "changed": True}
    for word in ("replay", "discard"):
        assert shell("dead", word, two["id"]).exit_code == 1
    assert shell.json("dead", "list") == {"dead": []}


def test_i11_maintenance_is_switched_and_shown_by_scope(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    shell.ok("maintenance", "on")
    shell.ok("maintenance", "on", "--queue", "mail")
    shell.ok("maintenance", "on", "--workflow", "greet")
    scopes = {(hold["scope"], hold["name"]) for hold in shell.json("maintenance", "status")["holds"]}
    assert scopes == {("all", ""), ("queue", "mail"), ("workflow", "greet")}
    assert "maintenance off" in shell.ok("explain", run)
    off = shell("maintenance", "off")
    assert "still in maintenance: " in off.stderr
    shell.ok("maintenance", "off", "--queue", "mail")
    shell.ok("maintenance", "off", "--workflow", "greet")
    assert shell.ok("maintenance", "status") == "nothing is held back\n"
    assert shell("maintenance", "on", "--queue", "a", "--workflow", "b").exit_code == 2


def test_a_drained_workflow_takes_no_new_runs_until_it_is_switched_off(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    assert shell.json("drain", "greet") == {"workflow": "greet", "draining": True, "open_runs": 1}
    refused = shell("start", "shop:greet", "Bob")
    assert refused.exit_code == 1
    assert "holdfast drain greet --off" in refused.stderr
    shell.work(run)
    assert "have ended" in shell.ok("drain", "greet", "--wait")
    shell.ok("drain", "greet", "--off")
    shell.start("shop:greet", "Bob")
    assert "check the name" in shell("drain", "gret").stderr


def test_drain_wait_ends_with_the_last_open_run(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    with shell.process("drain", "greet", "--wait") as process:
        with shell.process("worker", "shop"):
            assert process.wait(30) == 0
        assert process.stdout is not None
        assert "have ended" in process.stdout.read()
    assert shell.json("show", run)["status"] == "completed"


def test_drain_wait_names_paused_runs_and_stops_when_the_drain_is_ended_elsewhere(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada", "--paused")
    with shell.process("drain", "greet", "--wait") as process:
        assert process.stderr is not None
        assert f"run {run} is paused and does not end by itself" in process.stderr.readline()
        shell.ok("drain", "greet", "--off")
        assert process.wait(30) == 1
        assert "greet takes new runs again" in process.stderr.read()


def test_maintenance_of_a_workflow_that_nobody_knows_is_remarked_on(shell: Shell) -> None:
    shell.ok("migrate")
    assert "check the name" in shell("maintenance", "on", "--workflow", "gret").stderr
    assert shell("maintenance", "on", "--workflow", "greet", "--app", "shop").stderr == ""


def test_prune_deletes_what_ended_and_nothing_else(shell: Shell) -> None:
    ended, waiting = shell.start("shop:greet", "Ada"), shell.start("shop:greet", "Bob", "--paused")
    shell.work(ended)
    assert shell.json("prune", "--older-than", "30d") == {"pruned": 0}
    assert shell.ok("prune", "--older-than", "0s") == "1 run deleted\n"
    assert [run["run"] for run in shell.json("runs")["runs"]] == [waiting]
    assert shell("prune", "--older-than", "30").exit_code == 2
    assert shell("prune").exit_code == 2


def test_stats_counts_runs_work_and_queues(shell: Shell) -> None:
    shell.start("shop:greet", "Ada")
    shell.start("shop:pay", "cents=1", "on=2031-05-01")
    document = shell.json("stats")
    assert document["runs"] == {"pending": 2}
    assert {queue["queue"]: queue["ready"] for queue in document["queues"]} == {"default": 1, "payments": 1}
    assert document["workers"] == []
    assert "none is running" in shell.ok("stats")


def test_migrate_says_what_it_applied(shell: Shell) -> None:
    assert shell.json("migrate")["applied"][0] == "0001_kernel"
    assert shell.json("migrate")["applied"] == []
    assert "is up to date" in shell.ok("migrate")


def test_g10_doctor_is_content_with_a_sound_database_and_is_exit_code_1_for_a_broken_one(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    assert "the database is healthy" in shell.ok("doctor")
    db = sqlite3.connect(shell.folder / "app.db")
    with db:
        db.execute("UPDATE runs SET active = 9")
    db.close()
    done = shell("doctor")
    assert done.exit_code == 1
    assert run in done.stdout
    assert "error" in done.stdout
