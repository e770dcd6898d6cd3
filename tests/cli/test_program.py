"""The program as a whole: help, exit codes, errors, and what it leaves alone."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.program import HOMES
from tests.cli.conftest import Shell

READING = [
    ["runs"],
    ["show", "x"],
    ["explain", "x"],
    ["cancel", "x"],
    ["pause", "x"],
    ["resume", "x"],
    ["retry", "x"],
    ["reattempt", "x", "n"],
    ["skip", "x", "n"],
    ["dead", "list"],
    ["dead", "replay", "x", "n"],
    ["dead", "discard", "x", "n"],
    ["maintenance", "on"],
    ["maintenance", "status"],
    ["drain", "x"],
    ["prune", "--older-than", "1d"],
    ["stats"],
    ["doctor"],
]


def test_help_names_every_command_and_what_each_exit_code_means(shell: Shell) -> None:
    shown = shell.ok("--help")
    for command in HOMES:
        assert f"\n  {command} " in shown
        assert shell.ok(command, "--help").startswith("Usage: holdfast ")
    for code in ("0", "1", "2", "3", "4", "130"):
        assert f"  {code}  " in shown


def test_help_loads_neither_the_engine_nor_a_driver_nor_rich() -> None:
    program = (
        "import sys; from holdfast.cli import program\n"
        "try: program(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('rich', 'holdfast.engine', 'asyncpg', 'sqlite3')\n"
        "print('loaded:', *[name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_an_unknown_command_names_the_nearest_one(shell: Shell) -> None:
    done = shell("rnus")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "error: there is no command 'rnus'",
        "hint: did you mean runs? `holdfast --help` shows how it is used",
    ]
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["runs", "--limit", "0"], ["runs", "--nope"], ["show"], ["start"], ["dead", "lst"]])
def test_a_line_that_cannot_be_understood_is_exit_code_2(shell: Shell, words: list[str]) -> None:
    done = shell(*words)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_no_command_but_start_worker_and_migrate_creates_a_database(shell: Shell, words: list[str]) -> None:
    done = shell(*words)
    assert done.exit_code == 3
    assert "there is no database" in done.stderr
    assert sorted(path.name for path in shell.folder.iterdir()) == ["shop.py"]


def test_a_reading_command_leaves_a_database_without_our_tables_as_it_is(shell: Shell) -> None:
    database = shell.folder / "app.db"
    database.touch()
    done = shell("stats")
    assert done.exit_code == 4
    assert "holdfast migrate" in done.stderr
    shell.ok("migrate")
    shell.ok("stats")


def test_a_file_that_is_no_database_is_exit_code_4_and_no_traceback(shell: Shell) -> None:
    (shell.folder / "app.db").write_bytes(b"these are no pages of SQLite" * 100)
    done = shell("runs")
    assert done.exit_code == 4
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.output


def test_debug_shows_where_an_error_comes_from(shell: Shell) -> None:
    assert "Traceback" not in shell("runs").stderr
    assert "Traceback" in shell("runs", "--debug").stderr


def test_a_server_that_does_not_answer_is_exit_code_4_without_its_password(shell: Shell) -> None:
    done = shell("runs", "--url", "postgresql://ada:opensesame@127.0.0.1:1/app")
    assert done.exit_code == 4
    assert done.stderr.startswith("error: PostgreSQL")
    assert "opensesame" not in done.output


def test_with_json_an_error_is_one_document_too(shell: Shell) -> None:
    done = shell("--json", "runs")
    assert json.loads(done.stdout)["error"]["exit_code"] == done.exit_code == 3
    assert json.loads(shell("runs", "--nope", "--json").stdout)["error"]["exit_code"] == 2


def test_common_options_work_before_and_after_the_command(shell: Shell, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    shell.ok("migrate", "--url", other)
    assert shell("runs").exit_code == 3
    assert json.loads(shell.ok("--url", other, "runs", "--json")) == {"runs": [], "next": None}
    assert json.loads(shell.ok("--json", "runs", "--url", other)) == {"runs": [], "next": None}


def test_without_a_url_the_database_is_the_file_of_the_current_directory(shell: Shell) -> None:
    shell(*["migrate"], env={"HOLDFAST_URL": ""})
    assert (shell.folder / "holdfast.db").exists()


def test_a_reader_that_closes_the_pipe_early_sees_no_error(shell: Shell) -> None:
    shell.ok("migrate")
    with shell.process("stats", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(30) in (0, 1)
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("runs --json >/dev/full", 1),
        ("runs >/dev/full", 1),
        ("runs --json >&-", 0),
        ("stats 2>&-", 0),
        ("show nobody --json >&-", 3),
        ("show nobody 2>&-", 3),
    ],
)
def test_an_output_that_is_full_or_closed_is_no_traceback(shell: Shell, line: str, code: int) -> None:
    """One error at most, which says what it is, and the exit code that it would have been."""
    shell.ok("migrate")
    program = f"{shlex.quote(sys.executable)} -m holdfast {line}"
    done = subprocess.run(  # noqa: S602 - the shell closes what is tested here
        program, shell=True, env=shell.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "AttributeError" not in done.stderr
    assert ("No space left on device" in done.stderr) == ("full" in line)
