"""`holdfast start`: arguments, options, and waiting."""

from __future__ import annotations

import datetime
import json
import signal
from typing import Any

import msgspec
import pytest

from holdfast.cli.arguments import parse_word
from holdfast.cli.failures import Failure
from tests.cli.conftest import Shell


class Item(msgspec.Struct):
    id: int


@pytest.mark.parametrize(
    ("word", "annotation", "value"),
    [
        ("5", int, 5),
        ("5", str, "5"),
        ('"5"', str, '"5"'),
        ("5", str | None, "5"),
        ("null", str | None, None),
        ("Ada", Any, "Ada"),
        ("5", Any, 5),
        ("NaN", Any, "NaN"),
        ("true", bool, True),
        ("2031-05-01", datetime.date, datetime.date(2031, 5, 1)),
        ('{"id": 7}', Item, Item(7)),
        ("[1, 2]", list[int], [1, 2]),
    ],
)
def test_a_word_is_json_unless_its_parameter_is_a_text(word: str, annotation: Any, value: Any) -> None:
    parsed = parse_word(word, annotation, "x")
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_word_that_fits_in_no_way_is_refused_with_its_parameter() -> None:
    with pytest.raises(Failure, match="argument 'x' is 'many', which is no int"):
        parse_word("many", int, "x")


def test_start_prints_the_id_alone_and_says_that_no_worker_runs_it(shell: Shell) -> None:
    done = shell("start", "shop:greet", "Ada", "2")
    assert done.exit_code == 0
    assert len(done.stdout.strip()) == 36
    assert done.stderr == "note: no live worker runs greet on queue 'default': holdfast worker shop\n"
    assert shell.json("show", done.stdout.strip())["input"] == [["Ada", 2], {}]


def test_parameters_that_have_to_be_named_are_given_by_name(shell: Shell) -> None:
    run = shell.start("shop:pay", "cents=5", "on=2031-05-01")
    assert shell.json("show", run)["input"] == [[], {"cents": 5, "on": "2031-05-01"}]


def test_a_dag_takes_its_fields_by_name(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=7", "note=12")
    assert shell.json("show", run)["input"] == {"order_id": 7, "note": "12"}


def test_an_imported_app_needs_no_module_in_front(shell: Shell) -> None:
    run = shell.start("greet", "Ada", "--app", "shop")
    assert shell.json("show", run)["workflow"] == "greet"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["shop:greet"], 2, "missing a required argument: 'name'"),
        (["shop:greet", "a", "b"], 2, "argument 'times' is 'b'"),
        (["shop:greet", "a", "1", "2"], 2, "too many positional arguments"),
        (["shop:Order", "7"], 2, "FIELD=VALUE"),
        (["shop:Order", "order=7"], 2, "has no field 'order'"),
        (["shop:Order", "order_id=1", "order_id=2"], 2, "given twice"),
        (["shop:gret", "a"], 3, "did you mean 'greet'?"),
        (["shop:not_startable"], 2, "shop:not_startable has the type int, which cannot be started"),
        (["shop:greet", "a", "--queu", "x"], 2, "did you mean --queue?"),
        (["shop:greet", "a", "--loudly"], 2, "after `--`"),
        (["shp:greet", "a"], 3, "did you mean shop?"),
        (["greet", "a"], 2, "write MODULE:greet"),
        (["shop:greet", "a", "--restart"], 2, "give --key"),
        (["shop:greet", "a", "--at", "soon"], 2, "'soon' is no time"),
        (["shop:greet", "a", "--tag", "x"], 2, "NAME=VALUE"),
    ],
)
def test_a_start_that_is_wrong_creates_no_database(shell: Shell, words: list[str], code: int, said: str) -> None:
    done = shell("start", *words)
    assert done.exit_code == code
    assert said in done.stderr
    assert not (shell.folder / "app.db").exists()


def test_i12_the_same_key_and_input_is_the_same_run_and_another_input_is_refused(shell: Shell) -> None:
    first = shell.start("shop:greet", "Ada", "--key", "k")
    assert shell.start("shop:greet", "Ada", "--key", "k") == first
    refused = shell("start", "shop:greet", "Bob", "--key", "k")
    assert refused.exit_code == 1
    assert first in refused.stderr
    shell.ok("cancel", first)
    assert shell.start("shop:greet", "Ada", "--key", "k", "--restart") != first


def test_options_of_a_start_are_stored_with_the_run(shell: Shell) -> None:
    options = ["--queue", "q", "--priority", "-3", "--tag", "tenant=acme", "--at", "+2h", "--paused"]
    run = shell.json("show", shell.start("shop:greet", "Ada", *options))
    assert (run["queue"], run["priority"], run["tags"], run["status"]) == ("q", -3, {"tenant": "acme"}, "paused")
    due = datetime.datetime.fromisoformat(run["due_at"]) - datetime.datetime.fromisoformat(run["created_at"])
    assert datetime.timedelta(hours=1, minutes=59) < due < datetime.timedelta(hours=2, minutes=1)


def test_wait_prints_the_result_alone(shell: Shell) -> None:
    shell.work(shell.start("shop:greet", "Ada", "--key", "k"))
    done = shell("start", "shop:greet", "Ada", "--key", "k", "--wait")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Hello, Ada!\n", "")


def test_wait_for_a_run_that_fails_is_exit_code_1_with_its_cause(shell: Shell) -> None:
    run = shell.start("shop:fragile", "7", "--key", "k")
    shell.work(run)
    done = shell("start", "shop:fragile", "7", "--key", "k", "--wait")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "ValueError: no way with 7" in done.stderr
    assert f"holdfast retry {run}" in done.stderr
    assert "\\x1b[31m" in done.stderr  # shown, and not sent: what a run says must not control the terminal
    as_json = shell("start", "shop:fragile", "7", "--key", "k", "--wait", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["error"]["type"] == "ValueError"


def test_wait_for_a_run_that_pauses_says_how_to_go_on(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13", "--key", "k")
    shell.work(run)
    done = shell("start", "shop:Order", "order_id=13", "--key", "k", "--wait")
    assert done.exit_code == 1
    assert f"holdfast resume {run}" in done.stderr


def test_ctrl_c_while_waiting_is_exit_code_130_and_leaves_the_run(shell: Shell) -> None:
    with shell.process("start", "shop:greet", "Ada", "--key", "k", "--wait") as process:
        assert process.stderr is not None
        assert "no live worker" in process.stderr.readline()
        assert "waiting for run" in process.stderr.readline()  # it is about to wait, or waits
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        said = process.stderr.read()
    run = shell.json("show", "greet/k")
    assert run["status"] == "pending"
    assert f"run {run['run']} goes on" in said
    assert f"holdfast show {run['run']}" in said
    assert "Traceback" not in said


def test_wait_names_the_run_at_once_and_says_in_a_word_that_a_dag_has_completed(shell: Shell) -> None:
    with shell.process("start", "shop:Order", "order_id=1", "--key", "k", "--wait") as process:
        assert process.stderr is not None
        assert "no live worker" in process.stderr.readline()
        run = shell.json("show", "Order/k")["run"]
        assert f"waiting for run {run} of Order" in process.stderr.readline()
        shell.ok("--app", "shop", "show", run)  # imports the module for the worker of this process
        shell.work(run)
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""
        assert f"run {run} of Order has completed" in process.stderr.read()


def test_an_argument_that_looks_like_an_option_stands_after_two_dashes(shell: Shell) -> None:
    run = shell.start("shop:greet", "--key", "k", "--", "--queu")
    assert shell.json("show", run)["input"] == [["--queu"], {}]


def test_hints_speak_of_options_and_not_of_keyword_arguments(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=1", "--key", "k")
    shell.ok("pause", run)
    paused = shell("start", "shop:Order", "order_id=1", "--key", "k", "--wait").stderr
    assert "wait_paused" not in paused
    assert f"holdfast resume {run}" in paused
    assert "is paused by" in paused
    shell.ok("cancel", run)
    cancelled = shell("start", "shop:Order", "order_id=1", "--key", "k", "--wait").stderr
    assert "with --restart to keep its key" in cancelled
    assert "was cancelled by" in cancelled
    conflict = shell("start", "shop:Order", "order_id=2", "--key", "k").stderr
    assert "give --restart" in conflict


def test_a_person_who_waits_sees_how_many_nodes_are_done(shell: Shell) -> None:
    with shell.process("worker", "shop"):
        shown = shell.terminal("start", "shop:batch", "6", "--wait")
    assert "nodes " in shown
    assert " 7/7 " in shown
    assert "of batch has completed" in shown
