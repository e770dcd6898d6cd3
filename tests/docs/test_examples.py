"""Every example runs, from the file that readers are sent to."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.docs.documents import ROOT, environment, run_program
from tests.support.pace import longer

EXAMPLES = ROOT / "examples"
QUICK = ("--orders", "8", "--pace", "0.3")


def test_hello_runs_once_for_each_name(tmp_path: Path) -> None:
    """I12: the second run under the same key finds the result and runs nothing."""
    greeting = "Hello, Ada! Welcome back.\n"
    assert run_program(EXAMPLES / "hello.py", "Ada", folder=tmp_path) == f"  (greeting Ada)\n{greeting}"
    assert run_program(EXAMPLES / "hello.py", "Ada", folder=tmp_path) == greeting


def test_g1_somebody_who_signs_up_is_reminded_and_approved_although_the_program_was_killed(tmp_path: Path) -> None:
    """G1, G5, I54: one account, each reminder once, and the decision of another process arrives once."""
    patience = f"{longer(1.0):.1f}"
    sign_up = [sys.executable, str(EXAMPLES / "onboarding.py"), "Ada", "--patience", patience]
    with subprocess.Popen(sign_up, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(2)]
        _wait_until(tmp_path / "holdfast.db", "SELECT count(*) FROM history", at_least=2)
        process.kill()
    assert first == ["  account of Ada created\n", "  question sent: may Ada join?\n"]
    with subprocess.Popen(sign_up, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "  reminder sent: may Ada join?\n"
        decide = (EXAMPLES / "onboarding.py", "Ada", "--patience", patience, "--approve")
        assert "\nDelivered(" in run_program(*decide, folder=tmp_path)
        rest = process.stdout.read()
        assert "\nDelivered(" in run_program(*decide, folder=tmp_path)  # the same id: nothing changes
    assert re.fullmatch(r"(  reminder .*\n)*  Ada is welcome, says the board\nAda has account-ada\n", rest)


def test_i10_somebody_who_is_rejected_has_no_account_afterwards(tmp_path: Path) -> None:
    """I10: what was registered with on_rollback runs when the run fails."""
    sign_up = [sys.executable, str(EXAMPLES / "onboarding.py"), "Bob"]
    with subprocess.Popen(sign_up, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2):
            process.stdout.readline()
        run_program(EXAMPLES / "onboarding.py", "Bob", "--reject", "already here", folder=tmp_path)
        assert process.stdout.read() == "  account-bob deleted\nBob did not join: the board: already here\n"


def test_i10_an_order_with_a_parcel_that_cannot_be_sent_is_undone_in_reverse(tmp_path: Path) -> None:
    """I10, I54: the failure of a child reaches its parent with its cause; the rollbacks run last to first, and once."""
    printed = run_program(EXAMPLES / "parcels.py", "lamp", "piano", folder=tmp_path)
    told = "lamp-piano stays here: a piano is too heavy\n"
    undone = "  track-lamp called back\n  money returned\n"
    assert printed == f"  2000 cents charged\n  lamp handed over\n{undone}{told}"
    assert run_program(EXAMPLES / "parcels.py", "lamp", "piano", folder=tmp_path) == told


def test_an_order_is_sent_in_parcels_and_its_review_goes_on_by_itself(tmp_path: Path) -> None:
    """Children side by side, and one that is detached."""
    printed = run_program(EXAMPLES / "parcels.py", "lamp", "chair", folder=tmp_path)
    assert sorted(printed.splitlines()[1:3]) == ["  chair handed over", "  lamp handed over"]
    assert printed.endswith("on their way: track-lamp, track-chair\n  how was lamp-chair?\n")


def test_examples_with_tables_of_their_own_share_the_database_of_the_folder(tmp_path: Path) -> None:
    """Whoever tries one after the other, as the page suggests, has one holdfast.db."""
    run_program(EXAMPLES / "ledger.py", folder=tmp_path)
    assert "Invoice 17 is paid: 7500 cents left" in run_program(EXAMPLES / "transactional.py", folder=tmp_path)


def test_g3_a_transactional_debit_happens_once_although_it_was_attempted_twice(tmp_path: Path) -> None:
    """The first attempt fails after its UPDATE: its write is rolled back, and asking again takes nothing."""
    printed = run_program(EXAMPLES / "transactional.py", folder=tmp_path)
    assert re.findall(r"attempt (\d)", printed) == ["1", "2"]
    again = run_program(EXAMPLES / "transactional.py", folder=tmp_path)
    assert "attempt" not in again
    with sqlite3.connect(tmp_path / "holdfast.db") as database:
        assert database.execute("SELECT cents FROM account WHERE name = 'Ada'").fetchone() == (7500,)
    database.close()


def test_orders_are_worked_on_by_a_worker_in_another_process(tmp_path: Path) -> None:
    """The program only starts runs; `holdfast worker examples.orders` does them, on two queues, with a retry."""
    command = ["-m", "holdfast", "worker", "examples.orders", "--queue", "default", "--queue", "payments"]
    with _running(command, tmp_path):
        _wait_until(tmp_path / "holdfast.db", "SELECT count(*) FROM workers", at_least=1)
        printed = run_program(EXAMPLES / "orders.py", folder=tmp_path)
    assert printed.split("\n") == ["order-1: completed", "order-2: completed", "order-3: completed", ""]
    with sqlite3.connect(tmp_path / "holdfast.db") as database:
        attempts = database.execute(
            "SELECT node, status, count(*) FROM work GROUP BY node, status ORDER BY node, status"
        ).fetchall()
    database.close()
    assert attempts == [
        ("charge_card", "completed", 3),
        ("label", "completed", 3),
        ("ship", "completed", 3),
        ("ship", "failed", 3),
        ("validate", "completed", 3),
    ]


def test_i15_a_script_and_the_worker_that_imports_it_agree_on_the_graph(tmp_path: Path) -> None:
    """I31: the module has another name there, also in `retry_on`, and a run must not take that for a deploy."""
    with _running(
        ["-m", "holdfast", "worker", "examples.orders", "--queue", "default", "--queue", "payments"], tmp_path
    ):
        _wait_until(tmp_path / "holdfast.db", "SELECT count(*) FROM workers", at_least=1)
        run_program(EXAMPLES / "orders.py", folder=tmp_path)
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as database:
        assert database.execute("SELECT count(*) FROM code WHERE workflow = 'Order'").fetchone() == (1,)
        assert database.execute("SELECT kind FROM history").fetchall() == []


def test_i29_the_order_workflow_goes_on_after_one_node_was_attempted_again(tmp_path: Path) -> None:
    """I30, I29: branches that do not need the broken node go on; after its reattempt nothing else runs again."""
    printed = run_program(EXAMPLES / "order_workflow.py", folder=tmp_path)
    before, _, after = printed.partition("Paused: ")
    assert "all pieces are there" in before
    assert "path validate > check_fraud); 5 nodes blocked by it" in after
    for once in (
        "order 17 is complete",
        "address looked up",
        "all pieces are there",
        "receipt sent",
        "order 17 is done",
    ):
        assert printed.count(once) == 1
    assert after.index("no sign of fraud") < after.index("card charged") < after.index("order 17 is done")
    assert "Order 17: completed. Attempts at check_fraud:\n  1: failed\n  2: completed\ngraph TD\n" in after
    again = run_program(EXAMPLES / "order_workflow.py", folder=tmp_path)
    assert again.startswith("Order 17: completed.")


def test_g3_two_hundred_mutations_are_applied_once_each_although_the_program_was_killed(tmp_path: Path) -> None:
    """I27, G4: the graph has a node for every row; the statement sees them all, whatever was interrupted."""
    applied = "SELECT count(*) FROM mutation WHERE applied IS NOT NULL"
    with subprocess.Popen(
        [sys.executable, str(EXAMPLES / "ledger.py")], cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL
    ) as process:
        _wait_until(tmp_path / "holdfast.db", applied, at_least=20)
        process.kill()
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as database:
        assert database.execute(applied).fetchone()[0] < 200
        assert database.execute("SELECT count(*) FROM mail").fetchone() == (0,)
    printed = run_program(EXAMPLES / "ledger.py", folder=tmp_path)
    assert "mutation_1 … mutation_200 (200 nodes)" in printed
    assert "202 of 202 nodes completed\nevery attempt followed its parents: True\n" in printed
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as database:
        assert database.execute("SELECT cents FROM ledger").fetchall() == [(sum(range(10, 2010, 10)),)]
        assert database.execute("SELECT count(DISTINCT applied) FROM mutation").fetchone() == (200,)
        assert database.execute("SELECT message FROM mail").fetchall() == [("200 mutations, 201000 cents",)]


def test_the_nightly_batch_is_built_from_its_template_and_found_by_its_key(tmp_path: Path) -> None:
    """I27: built when started, by name. It waits, retries and skips from inside its nodes."""
    printed = run_program(EXAMPLES / "nightly.py", "2031-05-05", folder=tmp_path)
    states = """
rates: completed, attempt 3
export_harbour: completed, attempt 1
export_market: completed, attempt 1
export_station: completed, attempt 2
export_university: skipped, attempt 1
report: completed, attempt 1
"""
    assert printed.startswith("rates are here\n")
    assert printed.endswith(f"report: 2000{states}")
    assert sorted(file.name for file in (tmp_path / "nightly-2031-05-05").iterdir()) == [
        "report.json",
        "shop-harbour.json",
        "shop-market.json",
        "shop-station.json",
    ]
    assert run_program(EXAMPLES / "nightly.py", "2031-05-05", folder=tmp_path) == states[1:]


def test_i31_a_run_is_healed_by_the_deploy_that_follows_a_kill(tmp_path: Path) -> None:
    """I31: what was recorded stays, a new node is picked up, one that is gone is skipped and told."""
    printed = run_program(EXAMPLES / "healing" / "run.py", folder=tmp_path)
    assert re.findall(r"^  (before|after): (.+)$", printed, re.MULTILINE)[:2] == [
        ("before", "invoice 17 received"),
        ("before", "asking for the rate …"),
    ]
    assert sorted(re.findall(r"^  after: (.+)$", printed, re.MULTILINE)) == [
        "converted, attempt 2",
        "customer checked",
        "mail sent",
    ]
    assert "The run is completed." in printed
    assert "not begun ['check_customer', 'send_mail'], skipped ['send_fax']" in printed


def test_the_page_of_examples_names_every_example() -> None:
    """An example that nobody finds teaches nobody."""
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    found = [path.relative_to(EXAMPLES) for path in sorted(EXAMPLES.glob("*.py")) if path.name != "__init__.py"]
    found += [path.parent.relative_to(EXAMPLES) for path in sorted(EXAMPLES.glob("*/run.py"))]
    found += [path.relative_to(EXAMPLES) for path in sorted(EXAMPLES.glob("deciders/[!_]*.py"))]
    assert not [str(path) for path in found if f"]({path})" not in page and f"]({path}/)" not in page]


def test_the_demo_keeps_its_promises_and_says_what_it_saw(tmp_path: Path) -> None:
    """G1, G2, G9: a worker is killed with SIGKILL, another goes on at once, nothing is lost or done twice."""
    printed = run_program(EXAMPLES / "demo" / "run.py", *QUICK, "--keep", "kept", folder=tmp_path)
    assert "Worker 1 is killed with SIGKILL" in printed
    assert "cut off by the kill" in printed
    assert printed.count("✓") == 7
    assert "NOT KEPT" not in printed
    assert "\x1b" not in printed  # a pipe gets plain text
    assert (tmp_path / "kept" / "shop.db").exists()


def test_the_demo_fails_when_something_happens_twice(tmp_path: Path) -> None:
    """Its verdict is worth something: with a world that ignores idempotency keys the exit code is 1."""
    demo = tmp_path / "demo"
    shutil.copytree(EXAMPLES / "demo", demo, ignore=shutil.ignore_patterns("__pycache__"))
    world = (demo / "world.py").read_text(encoding="utf-8")
    careless = world.replace('"known" if self._take_effect() else "done"', '"done"')
    assert careless != world
    (demo / "world.py").write_text(careless, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(demo / "run.py"), *QUICK],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "NOT KEPT: nothing happened twice outside" in done.stdout


def _wait_until(database: Path, question: str, *, at_least: int) -> None:
    """Until the answer is that large. The file and its tables may not be there yet."""
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline, f"not reached: {question}"
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader,
        ):
            if reader.execute(question).fetchone()[0] >= at_least:
                return


@contextmanager
def _running(arguments: list[str], folder: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment(), stderr=subprocess.PIPE)
    try:
        yield
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said.decode()
