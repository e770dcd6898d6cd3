"""`holdfast worker`: what it imports, what it logs, how it stops. In real processes."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.logs import JsonFormatter, ReadableFormatter
from holdfast.runtime.garbage import NEW_OBJECTS
from holdfast.runtime.stop_requests import ONE_WISH_SECONDS
from tests.cli.conftest import Shell


def lines_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    """The lines on stderr up to the one that holds the text."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if wanted in line:
            return lines
    raise AssertionError(f"{wanted!r} never came:\n" + "\n".join(lines))


def test_a_worker_runs_what_its_module_defines_and_sigterm_stops_it_politely(shell: Shell) -> None:
    with shell.process("worker", "shop", "--concurrency", "3") as worker:
        lines_until(worker, "serves default with 3 slots")
        done = shell("start", "shop:greet", "Ada", "--wait")
        assert (done.exit_code, done.stdout) == (0, "Hello, Ada!\n")
        assert shell.json("stats")["workers"][0]["live"] is True
        assert shell("start", "shop:fragile", "7", "--wait").exit_code == 1
        assert "ValueError: no way with 7" in lines_until(worker, "failed")[-1]
        worker.send_signal(signal.SIGTERM)
        lines_until(worker, "stopped")
        assert worker.wait(30) == 0
    assert shell.json("stats")["workers"] == []


def test_a_process_that_is_all_ours_collects_garbage_less_often(shell: Shell, folder: Path) -> None:
    (folder / "tidy.py").write_text(
        "import gc\nimport holdfast as hf\n@hf.action\nasync def new() -> int:\n    return gc.get_threshold()[0]\n"
    )
    with shell.process("worker", "tidy"):
        assert shell("start", "tidy:new", "--wait").stdout == f"{NEW_OBJECTS}\n"


def test_json_logs_have_stable_keys(shell: Shell) -> None:
    run = shell.start("shop:fragile", "7")
    with shell.process("worker", "shop", "--json-logs") as worker:
        lines = [json.loads(line) for line in lines_until(worker, "no way with 7")]
        worker.send_signal(signal.SIGINT)
        assert worker.wait(30) == 0
    keys = {"time", "level", "logger", "message", "run", "workflow", "node", "attempt", "worker"}
    assert all(keys <= set(line) for line in lines)
    failed = lines[-1]
    assert (failed["run"], failed["workflow"], failed["node"], failed["attempt"]) == (run, "fragile", "fragile", 1)
    assert failed["worker"] is not None
    assert failed["worker"] in [line["worker"] for line in lines[:-1]]


def test_i8_an_action_that_raises_keyboard_interrupt_does_not_end_the_worker(shell: Shell, folder: Path) -> None:
    """The worker hears SIGINT itself, so that this can only be the action's own."""
    (folder / "odd.py").write_text(
        "import holdfast as hf\n"
        "@hf.action\nasync def stop() -> None:\n    raise KeyboardInterrupt\n"
        "@hf.workflow\nasync def stopped() -> None:\n    await stop()\n"
        "@hf.action\nasync def seven() -> int:\n    return 7\n"
    )
    with shell.process("worker", "odd") as worker:
        for name in ("stop", "stopped"):
            failed = shell("start", f"odd:{name}", "--wait")
            assert "the action raised KeyboardInterrupt(), which is no Exception" in failed.stderr
        assert shell("start", "odd:seven", "--wait").stdout == "7\n"
        worker.send_signal(signal.SIGINT)
        assert worker.wait(30) == 0


def test_a_second_ctrl_c_stops_at_once_and_gives_the_work_back(shell: Shell) -> None:
    run = shell.start("shop:slow")
    with shell.process("worker", "shop") as worker:
        lines_until(worker, "it began")
        worker.send_signal(signal.SIGINT)
        lines_until(worker, "waits up to")
        with pytest.raises(subprocess.TimeoutExpired):  # it goes on with what is running
            worker.wait(2 * ONE_WISH_SECONDS)
        worker.send_signal(signal.SIGINT)
        lines_until(worker, "asked twice")
        assert worker.wait(30) == 0
    node = shell.json("show", run)["nodes"][0]
    assert node["state"] == "ready"


DEAF = """
import asyncio
import sys
import holdfast as hf

@hf.action
async def deaf() -> None:
    print("begun", file=sys.stderr, flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""


def test_g9_a_worker_ends_though_an_action_ignores_that_it_was_asked_to_stop(shell: Shell, folder: Path) -> None:
    """Whoever deploys would wait for ever; what it did is given back all the same."""
    (folder / "deaf.py").write_text(DEAF)
    run = shell.start("deaf:deaf")
    with shell.process("worker", "deaf", env={"HOLDFAST_SHUTDOWN_SECONDS": "0.1"}) as worker:
        lines_until(worker, "begun")
        worker.send_signal(signal.SIGTERM)
        lines_until(worker, "left behind what ignores that it was asked to stop: 1")
        assert worker.wait(30) == 0
    assert shell.json("stats")["workers"] == []
    assert [node["state"] for node in shell.json("show", run)["nodes"]] == ["ready"]


@pytest.mark.parametrize(
    ("module", "text", "code", "said"),
    [
        ("broken", "import holdfast\n\nx = 1 / 0\n", 2, "ZeroDivisionError: division by zero (broken.py:3)"),
        ("syntax", "def (\n", 2, "SyntaxError"),
        ("needs", "\nimport not_installed_anywhere\n", 2, "it needs 'not_installed_anywhere', which is not installed"),
        ("runs", "import holdfast, shop\nholdfast.run(shop.greet, 'Ada')\n", 2, 'below `if __name__ == "__main__":`'),
        ("ends", "raise SystemExit(3)\n", 2, 'if __name__ == "__main__"'),
        ("twice", "import shop, holdfast\n@holdfast.action\nasync def greet(): ...\n", 2, "defined twice"),
        ("shopp", None, 3, "did you mean shop?"),
        ("shop.py", None, 2, "write shop instead"),
        ("not-a-name", None, 2, "not a module's name"),
    ],
)
def test_a_module_that_does_not_import_is_named_with_its_line_and_no_worker_starts(
    shell: Shell, module: str, text: str | None, code: int, said: str
) -> None:
    if text is not None:
        (shell.folder / f"{module}.py").write_text(text, encoding="utf-8")
    done = shell("worker", "shop", module)
    assert done.exit_code == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (shell.folder / "app.db").exists()


def test_a_file_named_like_a_module_of_python_is_not_silently_passed_over(shell: Shell) -> None:
    (shell.folder / "queue.py").write_text("import shop\n", encoding="utf-8")
    done = shell("worker", "queue")
    assert done.exit_code == 2
    assert "rename the file" in done.stderr


def test_a_worker_without_anything_to_run_is_refused(shell: Shell, folder: Path) -> None:
    (folder / "empty.py").write_text("x = 1\n", encoding="utf-8")
    assert "error: empty defines no workflow" in shell("worker", "empty").stderr
    assert "no module is named" in shell("worker").stderr


def a_record(**extra: object) -> logging.LogRecord:
    record = logging.LogRecord("app", logging.WARNING, "app.py", 1, "it said %s", ("hello",), None)
    record.__dict__.update(extra)
    return record


def test_a_readable_line_names_the_run_unless_its_message_does() -> None:
    formatter = ReadableFormatter(coloured=False)
    shown = formatter.format(a_record(run="r1", workflow="Order", node="charge"))
    assert shown.split(" ", 1)[1] == "warning it said hello  [Order.charge r1]"
    assert formatter.format(a_record(run="hello", workflow="Order")).endswith("it said hello")


def test_a_json_line_carries_a_traceback_and_nulls_for_what_is_not_known() -> None:
    record = a_record()
    try:
        raise ValueError("no")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    line = json.loads(JsonFormatter().format(record))
    assert line["run"] is None
    assert line["message"] == "it said hello"
    assert "ValueError: no" in line["traceback"]
