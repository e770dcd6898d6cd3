"""Ten flows of the corpus that are killed and crashed wherever they commit: loops, spreads, handlers, children."""

from __future__ import annotations

from typing import Any

import holdfast as hf
from holdfast.authoring.flows import Flow, flow
from tests.flows.by_hand import registry_with_actions
from tests.flows.corpus import Case, all_cases

NAMES = (
    "calls_a_child",
    "checkout",
    "failing_spread_in_loop",
    "finally_with_break_and_continue",
    "gather_in_loop",
    "handler_in_handler_in_loop",
    "inlined_return_through_finally",
    "inner_break_outer_continue",
    "partial_failures",
    "spread_in_nested_loops",
)


def ten_cases() -> list[Case]:
    """Each with the last of its argument lists: the one that takes the longest way."""
    found = {case.function.__name__: case for case in all_cases() if case.function.__name__ in NAMES}
    assert len(found) == len(NAMES), f"the corpus has no {set(NAMES) - set(found)}"
    return [found[name] for name in NAMES]


def registered() -> tuple[hf.Registry, dict[str, Flow[..., Any]]]:
    """Everything that is needed to run them, and the flows by their names."""
    registry = registry_with_actions()
    return registry, {case.function.__name__: flow(registry=registry)(case.function) for case in ten_cases()}
