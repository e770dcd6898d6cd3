"""I24: a change in place is compiled only if no other variable could have seen it. Random programs look for gaps."""

from __future__ import annotations

import os
import random

import pytest

from holdfast.authoring import flow_compiler
from holdfast.authoring.flows import flow
from holdfast.authoring.registry import Registry
from holdfast.core.errors import FlowNotSupported
from tests.flows.programs import function_of
from tests.flows.sharing_programs import SharingWriter
from tests.flows.simulator import Simulation
from tests.flows.test_random_programs import NOT_COMPARED, check

PROGRAMS = int(os.environ.get("FLOW_PROGRAMS", "250"))
FIRST = int(os.environ.get("FLOW_FIRST", "0"))

SEEN_BY_OTHERS = {
    "another name": "b = a\n a.append(1)\n await double(1)\n return b",
    "another name, changed there": "b = a\n b.append(1)\n await double(1)\n return a",
    "an item": "b = a[0]\n b.append(1)\n await double(1)\n return a",
    "a container": "b = [a]\n a.append(1)\n await double(1)\n return b",
    "a dict": "b = {1: a}\n a.append(1)\n await double(1)\n return b",
    "a record": "b = Item(a, 1)\n a.append(1)\n await double(1)\n return b.id",
    "a loop's variable": "for b in a:\n  b.append(1)\n await double(1)\n return a",
    "the list that is walked": "for b in a:\n  a.append(1)\n await double(1)\n return a",
    "the dict that is walked": "b = {1: 2}\n for k, v in b.items():\n  b[k] = await add(v)\n return b",
    "the enumerated list": "for i, b in enumerate(a):\n  a[i] = i\n return a",
    "both of a chain": "b = c = [1]\n b.append(1)\n await double(1)\n return c",
    "a repeated row": "b = [[0]] * 2\n b[0].append(1)\n await double(1)\n return b",
    "a row put in twice": "r = [1]\n b = [r, r]\n b[0].append(1)\n await double(1)\n return b",
    "one of two": "b = [5]\n c = a if a else b\n c.append(1)\n await double(1)\n return [a, b]",
    "or": "b = a or [1]\n b.append(1)\n await double(1)\n return a",
    "min": "b = min(a)\n b.append(1)\n await double(1)\n return a",
    "get": "b = {1: a}.get(1)\n b.append(1)\n await double(1)\n return a",
    "a shallow copy's item": "b = list(a)\n b[0].append(1)\n await double(1)\n return a",
    "a slice's item": "b = a[:]\n b[0].append(1)\n await double(1)\n return a",
    "a sum's item": "b = a + [[2]]\n b[0].append(1)\n await double(1)\n return a",
    "an appended row": "r = [1]\n a.append(r)\n r.append(2)\n await double(1)\n return a",
    "an extended row": "r = [[1]]\n a.extend(r)\n r[0].append(2)\n await double(1)\n return a",
    "the rows of a slice": "r = [[1]]\n a[:1] = r\n r[0].append(2)\n await double(1)\n return a",
    "a row in a slice": "r = [1]\n a[:1] = [r]\n a[0].append(2)\n await double(1)\n return r",
    "a slice of itself": "a[1:] = a\n a[0].append(2)\n await double(1)\n return a",
    "a popped row": "r = a.pop()\n b = r\n r.append(2)\n await double(1)\n return b",
    "what is returned": "try:\n  return a\n finally:\n  a.append(1)",
    "a comprehension's items": "b = [x for x in a]\n b[0].append(1)\n await double(1)\n return a",
    "an earlier pass": "b = []\n r = []\n for x in a:\n  r.append(1)\n  b.append(r)\n  await double(1)\n return b",
    "zipped rows": "b = [x for x, _ in zip(a, a)]\n b[0].append(1)\n await double(1)\n return a",
    "a pure function's result": "b = same(a)\n b.append(1)\n await double(1)\n return a",
    "another name, augmented": "b = a\n b += [1]\n await double(1)\n return a",
    "another name of a list": "c = [1]\n b = c\n await double(1)\n b *= a\n return c",
    "another name of a row": "b = {'x': a}\n c = b\n b['x'] += sorted(a)\n await double(1)\n return c",
    "another name of a dict": "b = c = dict(a)\n b |= a\n await double(1)\n return c",
    "another name of a result": "b = await numbers(2)\n c = b\n b += a\n await double(1)\n return c",
    "another name of a set": "b = c = {x for x in a}\n b.add(1)\n b -= c\n return c",
    "itself again": "b = a\n a = a\n a.append(1)\n await double(1)\n return b",
}


def source(body: str) -> str:
    """The body with one space for each level."""
    return "async def program(a):\n" + "".join(f" {line}\n" for line in body.replace("\n ", "\n").split("\n"))


def test_i24_an_annotated_parameter_is_known_to_be_a_list() -> None:
    text = "async def program(a{}, n):\n b = a\n await double(1)\n b += n\n return [a, b]\n"
    flow(registry=Registry())(function_of(text.format("")))
    with pytest.raises(FlowNotSupported, match="changing `b` in place is not supported here"):
        flow(registry=Registry())(function_of(text.format(": list[int]")))


@pytest.mark.parametrize("name", SEEN_BY_OTHERS)
def test_i24_a_change_that_somebody_else_would_see_is_refused(name: str) -> None:
    function = function_of(source(SEEN_BY_OTHERS[name]))
    with pytest.raises(FlowNotSupported, match="in place is not supported here"):
        flow(registry=Registry())(function)


async def test_i24_augmented_assignment_of_a_shared_list_is_refused_by_the_run() -> None:
    """What `+=` does depends on the value: a number is fine, a list that another name holds is not."""
    text = "async def program(a, b, items):\n    kept = items\n    items += [1]\n    await double(1)\n    return kept\n"
    assert await check(text, 0) == NOT_COMPARED
    text = "async def program(a, b, items):\n    kept = a\n    a += 1\n    await double(1)\n    return [kept, a]\n"
    assert await check(text, 0) == "compared"


async def test_i24_a_graph_that_was_compiled_before_parts_were_kept_is_followed_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no edges for what a failing node has changed, so that nothing of it may be written."""
    text = "async def program(a):\n try:\n  a.extend(6 // x for x in [3, 0])\n except ZeroDivisionError:\n"
    text += "  await double(1)\n return a\n"
    new = flow(registry=Registry())(function_of(text))
    monkeypatch.setattr(flow_compiler, "with_kept_parts", lambda nodes: nodes)
    old = flow(registry=Registry())(function_of(text))
    assert old.graph.signature != new.graph.signature
    assert await Simulation(new).run([1]) == [1, 2]
    assert await Simulation(old).run([1]) == [1]


def test_i24_only_what_can_fail_half_way_under_a_handler_is_kept() -> None:
    text = "async def program(a, b):\n try:\n  b += await double(1)\n  a.append(b)\n  a.pop()\n  c, *d = a\n"
    text += " except ValueError:\n  await double(b)\n a.extend(a)\n e, (f, g) = a\n return a\n"
    graph = flow(registry=Registry())(function_of(text)).graph
    assert [node.keeps for node in graph.nodes if node.keeps] == []


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_i24_random_programs_with_shared_lists_end_as_plain_asyncio_does() -> None:
    compared = 0
    for seed in range(FIRST, FIRST + PROGRAMS):
        text = SharingWriter(random.Random(seed).randrange).text()
        compared += await check(text, seed) != NOT_COMPARED
    assert compared > PROGRAMS / 10, f"only {compared} of {PROGRAMS} programs were compiled"
