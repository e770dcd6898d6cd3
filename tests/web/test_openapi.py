"""The OpenAPI document: complete and true. Thousands of generated requests find no failure and no other answer."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.web import serve
from holdfast.web.openapi import document
from holdfast.web.routes import ROUTES
from tests.web.client import API
from tests.web.world import TOKENS, populated

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
# What a stream says does not end, and what stops the server's work stops this test's.
LEFT_OUT = frozenset({"live", "set_maintenance"})
CASES = int(os.environ.get("WEB_TEST_CASES", "5200"))
OPERATIONS = [route.name for route in ROUTES if route.name not in LEFT_OUT and route.serves not in ("page", "asset")]


def test_the_document_names_every_route_with_its_role_and_its_answers() -> None:
    """It is made of the same table as the routes, so that neither can lie about the other."""
    paths = document(ROUTES)["paths"]
    shown = {
        (method.upper(), path, operation["operationId"], operation["x-role"])
        for path, operations in paths.items()
        for method, operation in operations.items()
    }
    assert shown == {
        (route.method, route.shown_path, route.name, route.role.word)
        for route in ROUTES
        if route.serves not in ("page", "asset")
    }
    assert len({name for _, _, name, _ in shown}) == len(shown)
    start = paths[f"{API}/runs"]["post"]
    assert {"200", "201", "401", "403", "409", "413", "415", "422", "503"} <= start["responses"].keys()
    assert any(each["name"] == "Idempotency-Key" for each in start["parameters"])


def test_every_reference_in_the_document_leads_somewhere() -> None:
    """Other tools make clients of it."""
    made = document(ROUTES)
    found = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(made)))
    assert found
    assert found <= made["components"]["schemas"].keys()


@contextmanager
def _served(url: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A server with runs of every model, on a loop and a socket of its own; its address, and the ids of the runs."""
    ready: threading.Event = threading.Event()
    told: dict[str, Any] = {}

    async def run() -> None:
        told["loop"], told["stop"] = asyncio.get_running_loop(), asyncio.Event()
        async with populated(url, tokens=TOKENS) as here:
            told["runs"] = here.runs

            def is_ready(address: str) -> None:
                told["address"] = address
                ready.set()

            await serve(here.engine, port=0, tokens=TOKENS, ready=is_ready, stop=told["stop"])

    def work() -> None:
        try:
            asyncio.run(run())
        finally:
            ready.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield told["address"].rstrip("/"), told["runs"]
    finally:
        told["loop"].call_soon_threadsafe(told["stop"].set)
        thread.join(30)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('openapi') / 'app.db'}"
    with _served(url) as found:
        yield found


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    import requests

    with requests.Session() as made:
        yield made


@pytest.mark.parametrize("operation", OPERATIONS)
def test_generated_requests_find_no_failure_and_no_other_answer(
    operation: str, served: tuple[str, dict[str, str]], session: Any
) -> None:
    """At least 5,000 cases over all operations: every answer is one that the document knows, and none is a failure."""
    address, runs = served
    schema = schemathesis.openapi.from_dict(document(ROUTES)).include(operation_id=operation)
    (found,) = [each.ok() for each in schema.get_all_operations()]
    names = sorted(runs.values())
    count = -(-CASES // len(OPERATIONS))
    seen = 0

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(case=found.as_strategy(), chosen=hypothesis.strategies.integers(0, 2 * len(names)))
    def check(case: Any, chosen: int) -> None:
        nonlocal seen
        if chosen < len(names) and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = names[chosen]  # mostly of runs that there are: others are a 404
        headers = {"Authorization": "Bearer admin-token"}
        response = case.call(base_url=address, headers=headers, session=session, timeout=20)
        seen += 1
        case.validate_response(response, checks=CHECKS)

    check()
    assert seen >= 1


def test_five_thousand_cases_are_what_the_operations_add_up_to() -> None:
    """Split over operations, so that none hides behind another."""
    assert CASES >= 5_000 or "WEB_TEST_CASES" in os.environ
    assert -(-CASES // len(OPERATIONS)) * len(OPERATIONS) >= CASES


def test_the_routes_in_the_documentation_are_those_of_the_table() -> None:
    """`python -m holdfast.web.listing docs/http.md` writes them anew."""
    from holdfast.web.listing import listed

    page = Path(__file__).parents[2] / "docs" / "http.md"
    assert listed(ROUTES) in page.read_text()
