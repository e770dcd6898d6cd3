"""Hypothesis does whatever it likes to runs, events and deciders on every store, and models of the promises look on.

Our own code is not asked what should happen: the models are small and written from docs/invariants.md. MODEL_EXAMPLES
multiplies how much is tried, MODEL_SHRINK=1 makes what fails as small as can be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.reliability.models.decider_machine import Deciders
from tests.reliability.models.event_machine import Events
from tests.reliability.models.lease_machine import Leases
from tests.support.stores import KINDS, Site, site_for

TIMES = int(os.environ.get("MODEL_EXAMPLES") or 1)
# Making a failure smaller takes minutes; what failed is short enough to be read, and is printed.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if os.environ.get("MODEL_SHRINK") else [])]
EXAMPLES = {"memory": 60, "sqlite": 20, "postgresql": 10}


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


def explore(machine: type[RuleBasedStateMachine], site: Site, *, steps: int, share: float = 1.0) -> None:
    """Let the machine run; each example finds the site's store emptied."""
    on_site: Any = type(machine.__name__, (machine,), {"site": staticmethod(lambda: site)})
    run_state_machine_as_test(
        on_site,
        settings=settings(
            max_examples=max(2, int(EXAMPLES[site.kind] * share * TIMES)),
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            phases=PHASES,
        ),
    )


@pytest.mark.timeout(0)
def test_g2_g4_i1_i6_i10_i11_runs_leases_and_tokens_are_what_the_promises_say(site: Site) -> None:
    explore(Leases, site, steps=40)


@pytest.mark.timeout(0)
def test_g5_i50_i51_i52_events_reach_whom_the_promises_say(site: Site) -> None:
    explore(Events, site, steps=15, share=0.4)


@pytest.mark.timeout(0)
def test_g6_i12_i33_i34_i38_deciders_do_what_the_promises_say(site: Site) -> None:
    explore(Deciders, site, steps=15, share=0.4)
