"""What a class of very many steps costs a process that does nothing but have it: what all of them say is kept once."""

from __future__ import annotations

import gc
import sys
import tracemalloc

from benchmarks.chains import chain_of
from holdfast.authoring.registry import Registry
from holdfast.runtime.definitions import RegistryDefinitions

STEPS = 2_000
BYTES_A_STEP = 1_450  # 1,280 in November 2026, of which the method itself is 430
CALLS_A_STEP = 90  # 81 in November 2026


def _ready(registry: Registry, name: str) -> None:
    """All that a worker needs of a class before it claims."""
    made = chain_of(STEPS, registry, name=name)
    assert made.__dag__.graph.signature
    assert len(RegistryDefinitions(registry).known_actions()) == 2 * STEPS + 1


def test_a_step_of_a_class_takes_no_more_memory_than_it_did() -> None:
    registry = Registry()
    _ready(Registry(), "Warm")
    gc.collect()
    tracemalloc.start(1)
    try:
        _ready(registry, "Measured")
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / STEPS < BYTES_A_STEP


def test_a_step_of_a_class_is_made_with_no_more_calls_than_it_was() -> None:
    """Counted, so that any machine will do."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    _ready(Registry(), "Warm")
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        _ready(Registry(), "Measured")
    finally:
        sys.setprofile(before)
    assert calls / STEPS < CALLS_A_STEP
