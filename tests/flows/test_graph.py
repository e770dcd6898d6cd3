"""I24: the graph as a value: stored, signed, drawn, compared."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import msgspec
import pytest

from holdfast.authoring.flows import Flow, flow
from holdfast.authoring.pure import pure
from holdfast.authoring.registry import Registry
from holdfast.core.errors import FlowNotSupported, UnknownNode, UsageError
from holdfast.core.flow_addresses import FlowAddress, parse_address
from holdfast.core.flow_graph import FlowGraph
from tests.architecture.sources import ROOT
from tests.flows.actions import double
from tests.flows.programs import function_of
from tests.flows.simulator import Simulation

FIRST = """
async def program(n):
    a = await add(n)
    if a > 3:
        a = await double(a)
    return a
"""


def graph_of(text: str) -> FlowGraph:
    made: Flow[..., object] = flow(registry=Registry())(function_of(textwrap.dedent(text)))
    return made.graph


def test_i24_a_graph_survives_its_json_to_the_byte() -> None:
    graph = graph_of(FIRST)
    back = FlowGraph.from_json(graph.to_json())
    assert back == graph
    assert back.signature == graph.signature
    assert back.to_json() == graph.to_json()
    assert back.json() == graph.json()


def test_i24_the_signature_follows_the_meaning_and_not_the_lines() -> None:
    graph = graph_of(FIRST)
    assert graph_of("\n\n# moved down\n" + FIRST).signature == graph.signature
    assert graph_of(FIRST.replace("> 3", "> 4")).signature != graph.signature
    assert graph_of(FIRST.replace("double(a)", "double(n)")).signature != graph.signature


SIGNATURES = """
import sys
from tests.flows.corpus import all_cases
from tests.flows.parity import compiled
print(*[compiled(case.function).graph.signature for case in all_cases()])
"""


def test_i24_the_signature_is_the_same_in_every_process() -> None:
    """Python's hashes differ between processes; nothing in a graph may depend on them."""
    told = set()
    for seed in ("1", "2"):
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        done = subprocess.run(
            [sys.executable, "-c", SIGNATURES], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        )
        told.add(done.stdout)
    assert len(told) == 1
    assert len(told.pop().split()) > 300


async def test_i24_texts_over_several_lines_are_not_moved_with_the_code() -> None:
    async def indented(n: int) -> str:
        await double(n)
        return """first
            second"""

    made = flow(registry=Registry())(indented)
    assert await Simulation(made).run(1) == await indented(1)


def test_i24_a_graph_of_another_format_is_refused() -> None:
    document = msgspec.json.decode(graph_of(FIRST).to_json())
    document["version"] = 99
    with pytest.raises(FlowNotSupported, match="format 99"):
        FlowGraph.from_json(msgspec.json.encode(document))


def test_i24_an_edge_to_a_node_that_is_missing_is_refused() -> None:
    document = msgspec.json.decode(graph_of(FIRST).to_json())
    document["order"].append({"source": "add", "target": "nowhere"})
    with pytest.raises(UnknownNode, match="nowhere"):
        FlowGraph.from_json(msgspec.json.encode(document))


def test_i24_two_versions_are_compared_node_by_node() -> None:
    graph = graph_of(FIRST)
    assert not graph.difference(graph_of("\n\n" + FIRST))
    assert str(graph.difference(graph)) == "no difference"
    changed = graph.difference(graph_of(FIRST.replace("> 3", "> 4").replace("return a", "await add(9)\n    return a")))
    assert changed.added == ("add_2",)
    assert changed.changed == ("if",)
    assert changed.removed == ()
    assert changed.rewired == ("double",)
    assert str(changed) == "+ add_2\n~ if\n> double"
    assert graph.difference(graph_of(FIRST.replace("        a = await double(a)", "        pass"))).removed == (
        "double",
    )


def test_i24_a_graph_is_drawn_for_pages_and_for_terminals() -> None:
    graph = graph_of(FIRST)
    assert graph.ascii() == (
        "   2  input  input       program -> add\n"
        "   3  add    action      await add(n) -> if\n"
        "   4  if     conditional if a > 3 -> then: double, else: return\n"
        "   5  double action      await double(a) -> return\n"
        "   6  return assignment  return a -> output\n"
        "   2  output output      return\n"
    )
    drawn = graph.mermaid({"add": "completed", "double": "leased"})
    assert drawn.startswith("graph TD\n")
    assert 'n1["add: await add(n)<br/>completed"]:::completed' in drawn
    assert 'n2{"if: if a &gt; 3"}' in drawn
    assert "n2 -->|then| n3" in drawn
    assert "classDef leased" in drawn
    assert "(leased)" in graph.ascii({"double": "leased"})


@pytest.mark.parametrize("text", ["charge", "charge@2.0", "charge[7]", "charge@2.0[7]", "pay/charge_2@0"])
def test_i18_addresses_are_read_as_they_are_written(text: str) -> None:
    assert str(parse_address(text)) == text


def test_i18_an_address_has_node_passes_and_index() -> None:
    assert parse_address("pay/charge@2.0[7]") == FlowAddress("pay/charge", (2, 0), 7)
    for wrong in ("", "@1", "a@", "a[x]", "a@1[2]b"):
        with pytest.raises(UnknownNode):
            parse_address(wrong)


def test_a_pure_function_is_a_plain_function_with_a_promise() -> None:
    @pure
    def twice(x: int) -> int:
        return x * 2

    assert twice(4) == 8
    assert twice.fn(4) == 8
    assert "twice" in repr(twice)

    async def waits() -> None: ...

    with pytest.raises(UsageError, match="async def"):
        pure(waits)
    with pytest.raises(UsageError, match="marked already"):
        pure(twice)
    with pytest.raises(UsageError, match="a type"):
        pure(int)


async def test_a_flow_called_outside_of_a_run_is_plain_asyncio() -> None:
    from tests.flows.corpus_calls import add_twice

    assert await add_twice(1) == 3
    assert add_twice.name == "add_twice"
    assert "flow add_twice" in repr(add_twice)
