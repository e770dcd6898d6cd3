"""The command line, given words that nobody would type: a sentence and an exit code, and never a traceback."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import program
from holdfast.cli.failures import CODES
from holdfast.cli.program import HOMES, SECTIONS

SEED_VARIABLE, COUNT_VARIABLE = "HOSTILE_SEED", "HOSTILE_LINES"
# They serve or show until they are stopped; what is wrong with their options is tried with the others' help.
NEVER_RETURNS = {"worker", "ui", "dev", "watch"}
WORDS = (
    *(
        "",
        " ",
        "-",
        "--",
        "---",
        "-1",
        "0",
        "99999999999999999999",
        "nan",
        "1e999",
        "null",
        "true",
        "[]",
        "{}",
        "{",
        '"',
    ),
    *(
        "'; DROP TABLE runs; --",
        "%s%n",
        "$(id)",
        "`id`",
        "../../etc/passwd",
        "/dev/null",
        "a\tb",
        "a\nb",
        "\x1b[31m",
        "\u202e",
    ),
    *("é", "💣", "\ud800", "x" * 5000, "[" * 2000, '{"a":' * 500, "run-1", "01a1e095-6968-728c-9389-ce76da9edcfb"),
    *(
        "--json",
        "--help",
        "--url",
        "sqlite:////nowhere/at/all.db",
        "postgresql:///x?host=/nowhere",
        "nonsense://x",
        "memory://",
    ),
    *(
        "--app",
        "no.such.module",
        "os",
        "--status",
        "--tag",
        "a=b",
        "=",
        "--limit",
        "--since",
        "yesterday",
        "5m",
        "--all",
        "--force",
    ),
    *(
        "--key",
        "--queue",
        "--at",
        "--paused",
        "--from",
        "--step",
        "--label",
        "--node",
        "--to",
        "--id",
        "--yes",
        "on",
        "off",
    ),
    *(
        "--workflow",
        "--debug",
        "--traceback",
        "--follow",
        "--output",
        "--format",
        "svg",
        "list",
        "replay",
        "discard",
        "rebuild",
    ),
)


def lines(dice: random.Random, count: int) -> list[list[str]]:
    """Every command alone, with --help, with one strange word each, and then at random."""
    commands = [command for command in HOMES if command not in NEVER_RETURNS]
    found = [[command] for command in commands] + [[command, "--help"] for command in HOMES]
    found += [[command, dice.choice(WORDS)] for command in commands for _ in range(3)]
    while len(found) < count:
        found.append([dice.choice(commands), *(dice.choice(WORDS) for _ in range(dice.randint(1, 6)))])
    return found


def test_no_words_make_the_command_line_fall_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1 << 30))
    count = int(os.environ.get(COUNT_VARIABLE) or 250)
    print(f"repeat with: {SEED_VARIABLE}={seed} {COUNT_VARIABLE}={count} pytest {__file__}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path / 'app.db'}")
    known = {code for code, _ in CODES}
    wrong = []
    for line in lines(random.Random(seed), count):
        result = CliRunner().invoke(program, line, catch_exceptions=True)
        told = result.output + (result.stderr if result.stderr_bytes is not None else "")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            wrong.append(f"{line!r:.300} raised {result.exception!r}")
        elif result.exit_code not in known:
            wrong.append(f"{line!r:.300} ended with {result.exit_code}")
        elif "Traceback" in told and "--debug" not in line and "--traceback" not in line:
            wrong.append(f"{line!r:.300} showed a traceback")
        elif "error: unexpected" in told:
            wrong.append(f"{line!r:.300} met something unexpected: {told[:300]}")
        elif result.exit_code and not told.strip():
            wrong.append(f"{line!r:.300} ended with {result.exit_code} and said nothing")
    assert not wrong, "\n".join(wrong)


def test_every_command_is_tried() -> None:
    assert {name for commands in SECTIONS.values() for name in commands} == set(HOMES)
