"""The main path once more on PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Shell


def test_the_main_path_on_postgresql(folder: Path, postgres_url: str) -> None:
    shell = Shell(folder, postgres_url)
    unmigrated = shell("runs")
    assert unmigrated.exit_code == 4
    assert "holdfast migrate" in unmigrated.stderr
    shell.ok("migrate")

    run = shell.start("shop:Order", "order_id=13", "--key", "o/13", "--tag", "tenant=acme")
    greeting = shell.start("shop:greet", "Ada", "--key", "k")
    shell.work(run, greeting)
    assert shell.ok("start", "shop:greet", "Ada", "--key", "k", "--wait") == "Hello, Ada!\n"
    assert [found["run"] for found in shell.json("runs", "--tag", "tenant=acme")["runs"]] == [run]
    assert shell.json("show", "Order/o/13")["run"] == run
    assert shell.json("show", run[:18])["status"] == "paused"
    assert f"holdfast resume {run}" in shell.ok("explain", run)
    assert shell.json("skip", run, "charge", "--app", "shop")["changed"] is True
    shell.work(run)
    assert shell.json("show", run)["status"] == "completed"
    assert shell.json("stats")["runs"] == {"completed": 2}
    doctor = shell("doctor", "--json")
    findings = json.loads(doctor.stdout)["findings"]
    errors = {finding["subject"] for finding in findings if finding["severity"] == "error"}
    assert errors <= {"fsync", "full_page_writes", "synchronous_commit"}  # a server for tests may be set up to forget
    assert doctor.exit_code == (1 if errors else 0)
    assert shell.json("prune", "--older-than", "0s") == {"pruned": 2}
