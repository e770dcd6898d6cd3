"""`holdfast runs`, `show` and `explain`: what people see of runs."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.cli.conftest import Shell


def test_runs_lists_newest_first_in_plain_aligned_text(shell: Shell) -> None:
    first = shell.start("shop:greet", "Ada", "--tag", "tenant=acme")
    second = shell.start("shop:Order", "order_id=13", "--key", "o13")
    header, *rows = shell.ok("runs").splitlines()
    assert header.split() == ["RUN", "WORKFLOW", "MODEL", "KEY", "STATUS", "STARTED", "TOOK", "TAGS"]
    assert [row.split()[0] for row in rows] == [second, first]
    assert rows[0][header.index("KEY") :].startswith("o13 ")
    assert rows[1].endswith("tenant=acme")


def test_runs_can_be_narrowed_and_paged(shell: Shell) -> None:
    first = shell.start("shop:greet", "Ada", "--tag", "tenant=acme")
    second = shell.start("shop:Order", "order_id=13")
    third = shell.start("shop:greet", "Bob", "--paused")

    def ids(*words: str) -> list[str]:
        return [run["run"] for run in shell.json("runs", *words)["runs"]]

    assert ids("--workflow", "greet") == [third, first]
    assert ids("--status", "paused", "--status", "failed") == [third]
    assert ids("--tag", "tenant=acme") == [first]
    assert ids("--since", "1h") == [third, second, first]
    assert ids("--since", "2100-01-01") == []
    page = shell.json("runs", "--limit", "2")
    assert [run["run"] for run in page["runs"]] == [third, second]
    assert ids("--limit", "2", "--after", page["next"]) == [first]
    assert shell.ok("runs", "--workflow", "nobody") == "no runs match\n"


def test_a_run_is_found_by_id_by_prefix_and_by_workflow_and_key(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada", "--key", "a/b")
    for text in (run, run[:13], run[:13].upper(), "greet/a/b"):
        assert shell.json("show", text)["run"] == run


@pytest.mark.parametrize("text", ["ffff", "zz", "0", "greet/nobody", "nobody/k", "%", ""])
def test_a_run_that_is_not_there_is_exit_code_3(shell: Shell, text: str) -> None:
    shell.start("shop:greet", "Ada", "--key", "k")
    done = shell("show", text)
    assert done.exit_code == 3
    assert "holdfast runs" in done.stderr


def test_a_prefix_of_two_runs_is_refused_with_both(shell: Shell) -> None:
    first, second = shell.start("shop:greet", "Ada"), shell.start("shop:greet", "Bob")
    done = shell("cancel", first[:8])
    assert done.exit_code == 2
    assert first in done.stderr
    assert second in done.stderr


def test_i2_show_lists_nodes_in_order_with_state_attempts_and_what_a_blocked_one_waits_for(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13", "--key", "o13")
    shell.work(run)
    shown = shell.ok("show", run, "--app", "shop")
    nodes = shown.partition("\nnodes\n")[2].splitlines()[1:4]
    assert [line.split()[:4] for line in nodes[:2]] == [
        ["[+]", "validate", "completed", "1"],
        ["[!]", "charge", "failed", "1"],
    ]
    assert nodes[2].split()[:3] == ["[", "]", "ship"]
    assert "RuntimeError: card refused" in shown
    assert "status    paused" in shown
    assert "paused  by on_failure" in shown
    assert 'raise RuntimeError("card refused")' in shell.ok("show", run, "--traceback")


def test_show_json_holds_every_attempt_and_the_history(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    shell.ok("retry", run)
    shell.work(run)
    document = shell.json("show", run)
    charge = next(node for node in document["nodes"] if node["id"] == "charge")
    assert [attempt["state"] for attempt in charge["attempts"]] == ["failed", "failed"]
    assert charge["attempts"][1]["error"]["message"] == "card refused"
    assert [entry["kind"] for entry in document["history"]] == ["paused", "retried", "paused"]


def test_show_needs_no_code_and_gives_the_result(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    shell.work(run)
    (shell.folder / "shop.py").unlink()
    assert shell.json("show", run)["result"] == "Hello, Ada!"
    assert 'result    "Hello, Ada!"' in shell.ok("show", run)


def test_explain_says_why_a_run_waits_and_what_to_do(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    shell.forget_code()
    shown = shell.ok("explain", run)
    assert f"run {run} of greet waits for greet" in shown
    assert "no worker is running" in shown
    assert "  to start a worker (MODULE is the one that defines greet):\n      holdfast worker MODULE\n" in shown
    assert "      holdfast worker shop\n" in shell.ok("explain", run, "--app", "shop")
    document = shell.json("explain", run)
    assert document.keys() == {"run", "status", "summary", "reasons", "fixes"}
    assert document["status"] == "pending"
    assert [fix.keys() for fix in document["fixes"]] == [{"purpose", "command"}]


def test_explain_tells_a_failure_a_pause_and_a_cancel_once(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    assert shell.ok("explain", run).count("card refused") == 1
    other = shell.start("shop:greet", "Ada")
    shell.ok("pause", other, "--reason", "lunch")
    paused = shell.ok("explain", other)
    assert f"run {other} of greet is paused by " in paused
    assert ": lunch (since " in paused
    shell.ok("cancel", other)
    assert f"run {other} of greet was cancelled by " in shell.ok("explain", other)


def test_a_key_alone_is_answered_with_the_workflow_in_front(shell: Shell) -> None:
    shell.start("shop:greet", "Ada", "--key", "mine")
    shell.start("shop:greet", "Bob", "--key", "0815")
    assert "did you mean greet/mine?" in shell("show", "mine").stderr
    assert "did you mean greet/0815?" in shell("show", "0815").stderr


def test_a_skipped_node_has_no_duration(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    shell.ok("skip", run, "charge", "--app", "shop")
    (line,) = [line for line in shell.ok("show", run).splitlines() if line.startswith("[-]")]
    assert line.split() == ["[-]", "charge", "skipped", "1", "validate"]


def test_i6_what_is_leased_is_shown_as_running_and_a_lost_attempt_is_listed(shell: Shell) -> None:
    """People read `running`, programs the stored word; an attempt that vanished with its worker left no error."""
    run = shell.start("shop:slow")
    with shell.process("worker", "shop") as worker:
        assert worker.stderr is not None
        for line in worker.stderr:
            if "it began" in line:
                break
        assert "[>]  slow  running" in shell.ok("show", run)
        assert "leased" not in shell.ok("stats")
        assert shell.json("show", run)["nodes"][0]["state"] == "leased"
        first = shell.json("show", run)["nodes"][0]["attempts"][0]["worker"]
        worker.kill()
        worker.wait(30)
    assert f"was running on worker {first}" in shell.ok("explain", run) or "is running since" in shell.ok(
        "explain", run
    )
    with shell.process("worker", "shop") as successor:
        assert successor.stderr is not None
        for line in successor.stderr:
            if "it began" in line:
                break
        assert f"slow, attempt 1  lost with its worker {first}" in shell.ok("show", run)


def test_what_others_stored_cannot_control_the_terminal(shell: Shell) -> None:
    run = shell.start("shop:fragile", "7")
    shell.work(run)
    for words in (["runs"], ["show", run], ["explain", run]):
        assert "\x1b" not in shell.ok(*words)
    assert "\\x1b[31m" in shell.ok("show", run)


def test_reading_works_while_another_process_holds_the_write_lock(shell: Shell) -> None:
    run = shell.start("shop:greet", "Ada")
    program = (
        "import fcntl, sqlite3, sys\n"
        "lock = open('app.db-holdfast-lock'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "db = sqlite3.connect('app.db', isolation_level=None); db.execute('BEGIN IMMEDIATE')\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=shell.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert run in shell.ok("runs")
        assert shell.json("show", run)["status"] == "pending"
        shell.ok("stats")
        shell.ok("doctor")


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_are_for_a_terminal_and_respect_no_color(shell: Shell, no_color: str, coloured: bool) -> None:
    run = shell.start("shop:greet", "Ada", "--paused")
    ours, theirs = pty.openpty()
    environment = {**shell.environment(), "TERM": "xterm-256color", "COLUMNS": "100", "NO_COLOR": no_color}
    if not no_color:
        del environment["NO_COLOR"]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "runs"], cwd=shell.folder, env=environment, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        assert process.wait(30) == 0
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert run in shown
    assert ("\x1b[33mpaused" in shown) is coloured


def test_a_narrow_terminal_never_cuts_an_id(shell: Shell) -> None:
    run = shell.start("shop:fragile", "7")
    shell.work(run)
    ours, theirs = pty.openpty()
    environment = {**shell.environment(), "TERM": "xterm-256color", "COLUMNS": "45", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "runs"], cwd=shell.folder, env=environment, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        assert process.wait(30) == 0
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert run in shown
    assert "REASON" not in shown


def test_on_a_terminal_explain_wraps_between_words_and_leaves_commands_whole(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    lines = shell.terminal("explain", run, "--app", "shop", columns=60).splitlines()
    assert f"      holdfast skip {run} charge --app shop" in lines
    assert all(len(line) <= 60 for line in lines if "holdfast " not in line)
    assert any(run in line for line in lines), "an id is never broken"


def test_on_a_terminal_the_history_never_breaks_the_id_of_another_run(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=1")
    shell.work(run)
    forked = shell.ok("fork", run, "--from", "charge").strip()
    assert forked in shell.terminal("show", run, "--app", "shop", columns=50)
