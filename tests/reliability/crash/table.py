"""The table of scenarios."""

from __future__ import annotations

from tests.reliability.crash import (
    scenes_dags,
    scenes_deciders,
    scenes_flows,
    scenes_functions,
    scenes_graphs,
    scenes_operators,
)
from tests.reliability.crash.scenario import Scenario

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for module in (scenes_dags, scenes_functions, scenes_deciders, scenes_flows, scenes_graphs, scenes_operators)
    for scenario in module.scenarios()
}
