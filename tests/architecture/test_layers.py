"""A module imports only downward. Stated once here, as a table; nothing else draws the layers a second time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.sources import PACKAGE, ROOT, imports_of, package_sources, part_of

# From the top. Parts on one line may import each other, unless INDEPENDENT says no.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli", "web", "__main__", "script"),
    ("documents",),
    (
        "engine",
        "handle",
        "any_queue",
        "blocking",
        "checking",
        "decider_checking",
        "dag_reading",
        "dead_letters",
        "projecting",
        "operating",
        "engine_parts",
        "deciding",
        "explain",
        "graph_checking",
        "graph_diff",
        "graph_documents",
        "graph_path",
        "graph_reading",
        "graph_replay",
        "graph_steps",
        "instance_documents",
        "joining",
        "listing",
        "querying",
        "sending",
        "settling",
        "start_options",
    ),
    ("runtime", "authoring", "emitters"),
    ("coordinator", "audience", "batches", "needs"),
    ("models", "store"),
    ("core",),
)
# What a decision means must not depend on where rows are kept, nor the other way round.
INDEPENDENT = {("models", "store"), ("store", "models")}
# `holdfast` itself hands out the public names; `holdfast.testing` serves users' tests. Both stand above all layers.
ABOVE_ALL = {"", "testing"}

LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


def test_every_part_of_the_package_has_a_place_in_the_layers() -> None:
    """A new part is placed on purpose, not by whoever imports it first."""
    unplaced = {part_of(source.module) for source in package_sources()} - LEVEL.keys() - ABOVE_ALL
    assert not unplaced, f"add to LAYERS in this file: {sorted(unplaced)}"


def test_a_module_imports_only_downward() -> None:
    """The layers of the package point one way, so that each can be read without those above it."""
    wrong = []
    for source in package_sources():
        importer = part_of(source.module)
        if importer in ABOVE_ALL or importer not in LEVEL:
            continue
        for imported in imports_of(source):
            if not imported.module.startswith("holdfast."):
                continue
            target = part_of(imported.module)
            if target == "testing" or (importer, target) in INDEPENDENT or LEVEL.get(target, 99) < LEVEL[importer]:
                wrong.append(f"{source.shown}:{imported.line}: {importer} must not import {imported.module}")
    assert not wrong, "\n".join(wrong)


def test_importing_the_package_loads_no_driver_and_no_page() -> None:
    """Import stays quick: what only some users need is loaded when it is used."""
    if not (PACKAGE / "__init__.py").exists():
        pytest.skip("the package has no __init__.py yet")
    heavy = ("asyncpg", "click", "rich", "starlette", "uvicorn", "pydantic", "sqlite3")
    program = f"import sys, holdfast; print(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
