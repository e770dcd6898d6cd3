"""The short soak: one minute of kills, restarts and cuts; `make soak MINUTES=60` is the long one."""

from __future__ import annotations

import os
import random

import pytest

from tests.reliability.soak.plan import Plan
from tests.reliability.soak.proxy import seen_in
from tests.reliability.soak.soak import soak
from tests.reliability.soak.wire import Framer, asks_for_an_end, tells_of_an_end
from tests.support.postgres import EXTERNAL_URL_VARIABLE, external_url

SEED_VARIABLE, SECONDS_VARIABLE = "SOAK_SEED", "SOAK_SECONDS"


@pytest.mark.timeout(420)
@pytest.mark.skipif(external_url() is not None, reason=f"{EXTERNAL_URL_VARIABLE} is set, and this needs its own server")
def test_g1_g2_g3_g9_g10_a_minute_of_kills_restarts_and_cuts_loses_nothing() -> None:
    """All models under load: what clients were told and what was done outside is what is stored, once, and all ends."""
    plan = Plan(seed=int(os.environ.get(SEED_VARIABLE) or random.randrange(1 << 30)))
    report = soak(plan)
    print(report)
    print(f"repeat with: {SEED_VARIABLE}={plan.seed} pytest {__file__} -k a_minute_of_kills")
    assert not report.broken, str(report)
    assert report.did["kills"] >= 20
    assert report.did["server restarts"] >= 5
    assert report.cuts >= 200
    assert report.runs >= 100, "too little work to show anything"


def test_the_proxy_knows_where_a_transaction_ends() -> None:
    """Messages are cut at the right places however the stream is chopped up."""
    begin, commit, idle, open_ = (
        b"C\x00\x00\x00\x0aBEGIN\x00",
        b"C\x00\x00\x00\x0bCOMMIT\x00",
        b"Z\x00\x00\x00\x05I",
        b"Z\x00\x00\x00\x05T",
    )
    said = begin + open_ + commit + idle
    whole = seen_in(said)
    assert [tells_of_an_end(message) for message in whole] == [False, False, False, True]
    framer = Framer(untyped_first=False)
    assert [message for place in range(len(said)) for message in framer.feed(said[place : place + 1])] == whole


def test_the_proxy_knows_what_asks_for_a_commit() -> None:
    startup = b"\x00\x00\x00\x08\x00\x03\x00\x00"
    asked = startup + b"Q\x00\x00\x00\x0bBEGIN;\x00" + b"Q\x00\x00\x00\x0cCOMMIT;\x00" + b"S\x00\x00\x00\x04"
    messages = list(Framer(untyped_first=True).feed(asked))
    assert [asks_for_an_end(message) for message in messages] == [False, False, True, True]


def test_the_same_seed_plans_the_same_storm() -> None:
    first, again, other = (Plan(seed=seed).schedule() for seed in (7, 7, 8))
    assert first == again != other
    assert sum(what == "kill" for _, what in first) >= 20
