"""Every example of deciders runs, tells its story, and tells it again without doing anything twice."""

from __future__ import annotations

import itertools
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from tests.docs.documents import ROOT, environment, run_program

DECIDERS = ROOT / "examples" / "deciders"
ORDERS_TOLD = """\
order-1 is shipped:
  1 Placed(article='lamp')
  2 Paid(cents=4900)
  3 TimerCancelled(key='payment')
  4 Shipped(tracking='track-order-1')
order-2 is expired:
  1 Placed(article='chair')
  2 Expired()
"""


def test_g6_of_two_orders_the_paid_one_is_shipped_and_the_other_expires(tmp_path: Path) -> None:
    """I33, I34: a cancelled timer, a timer that fires, and inputs to ended instances that change nothing."""
    printed = run_program(DECIDERS / "order.py", folder=tmp_path)
    assert printed.endswith(ORDERS_TOLD)
    assert sorted(printed.removesuffix(ORDERS_TOLD).splitlines()) == [
        "  order-1: lamp handed over",
        "  order-1: mail: on its way: track-order-1",
        "  order-1: mail: thank you for ordering a lamp",
        "  order-2: mail: thank you for ordering a chair",
        "  order-2: mail: too late: your order has expired",
    ]
    assert run_program(DECIDERS / "order.py", folder=tmp_path) == ORDERS_TOLD


def test_g1_an_order_goes_on_although_the_program_was_killed(tmp_path: Path) -> None:
    """G1, G9: what was decided before SIGKILL stands, and the timer fires in the program that comes after it."""
    with subprocess.Popen(
        [sys.executable, str(DECIDERS / "order.py")], cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL
    ) as process:
        _wait_for_events(tmp_path / "holdfast.db", 2)
        process.kill()
    printed = run_program(DECIDERS / "order.py", folder=tmp_path)
    assert printed.endswith(ORDERS_TOLD)
    with closing(sqlite3.connect(tmp_path / "holdfast.db")) as database:
        events = database.execute("SELECT type, count(*) FROM stream GROUP BY type").fetchall()
    assert dict(events) == {"Placed": 2, "Paid": 1, "TimerCancelled": 1, "Shipped": 1, "Expired": 1}


def test_i33_a_subscription_is_billed_by_one_timer_that_sets_itself_again(tmp_path: Path) -> None:
    """I33: months come at their intervals, the refusal moves the timer, and the end cancels it."""
    printed = run_program(DECIDERS / "subscription.py", folder=tmp_path)
    charges = re.findall(r"^  (\w+: (?:declined|900 cents charged))$", printed, re.MULTILINE)
    assert charges == ["January: 900 cents charged", "February: 900 cents charged", *["March: declined"] * 2]
    events = re.findall(r"^\d\S+ (.+)$", printed, re.MULTILINE)
    assert events == [
        "Subscribed(cents=900)",
        "Billed(month=1)",
        "Received(month=1)",
        "Billed(month=2)",
        "Received(month=2)",
        "Billed(month=3)",
        "Declined(month=3)",
        "Reminded(month=3)",
        "Declined(month=3)",
        "Ended(reason='March was never paid')",
    ]
    billed = [_seconds(time) for time in re.findall(r"^(\d\S+) Billed", printed, re.MULTILINE)]
    # Printed in hundredths, so a fifth of a second may look like a hundredth less; G6: it is never less.
    assert all((later - earlier) % 86_400 > 0.185 for earlier, later in itertools.pairwise(billed))
    again = run_program(DECIDERS / "subscription.py", folder=tmp_path)
    assert re.findall(r"^\d\S+ (.+)$", again, re.MULTILINE) == events
    assert "charged" not in again


def test_i36_balances_are_projected_and_built_again(tmp_path: Path) -> None:
    """I36, I12: the table agrees with the accounts' own events; the slip that came twice counted once."""
    table = """\
  Ada: 6000 cents after 2 movements
  Grace: 700 cents after 2 movements
  Linus: 100 cents after 2 movements
  balances is at position 6, 0 events behind
"""
    states = "".join(f"  by its own events {owner} has {cents} cents\n" for owner, cents in _BALANCES)
    for _ in range(2):
        printed = run_program(DECIDERS / "account.py", folder=tmp_path)
        assert printed == f"the table:\n{table}built again:\n{table}{states}"


_BALANCES = (("Ada", 6000), ("Grace", 700), ("Linus", 100))


def test_i12_a_webhook_that_is_called_twice_counts_once(tmp_path: Path) -> None:
    """I12: the caller's id is the command id; what cannot be an input is the caller's fault, and told so."""
    for _ in range(2):
        lines = run_program(DECIDERS / "webhook.py", folder=tmp_path).splitlines()
        assert lines[:3] == ["call-1: 202 accepted", "call-1: 202 accepted", "call-2: 202 accepted"]
        assert re.match(r"call-3: 400 .*'PaymentRecieved'.*did you mean 'PaymentReceived'", lines[3])
        assert re.match(r"call-4: 400 .*'invoices'.*did you mean 'invoice'", lines[4])
        assert lines[5:] == ["invoice 2031-07: 1900 cents in 2 payments"]


def _seconds(clock: str) -> float:
    hours, minutes, seconds = clock.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _wait_for_events(database: Path, number: int) -> None:
    """Until the streams hold that many. The file and its tables may not be there yet."""
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline, f"there were never {number} events"
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader,
        ):
            if reader.execute("SELECT count(*) FROM stream").fetchone()[0] >= number:
                return
