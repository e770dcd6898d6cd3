"""I24: all walks over one set of a flow agree, in whatever order, before and after it was stored."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from holdfast.core.flow_operations import call_function, mutate
from holdfast.core.flow_sets import shown, walked
from holdfast.core.flow_values import decode_value, encode_value, qualified_name
from tests.flows.parity import ending_of_flow, ending_of_plain
from tests.flows.programs import function_of
from tests.worker.support import ROOT, child_environment

# `seen` had many items, and has another order of its own when it is read again: 8 and 64 go to one place of a small
# table. Each program walks over it twice, with an action in between, and is true in Python whatever the order is.
SETUP = """
async def program():
    seen = set(range(128))
    for x in range(128):
        if x not in (1, 8, 33, 64):
            seen.discard(x)
"""
WALKS = {
    "a spread": "found = await asyncio.gather(*[echo(x) for x in seen])\n return [a == b for a, b in zip(seen, found)]",
    "a loop": "found = []\n for x in seen:\n  found.append(await echo(x))\n return [x for x in seen] == found",
    "a comprehension": "found = [await echo(x) for x in seen]\n return list(seen) == found",
    "list": "found = list(seen)\n await echo(1)\n return found == list(seen)",
    "tuple": "found = tuple(seen)\n await echo(1)\n return found == tuple(seen)",
    "zip": "found = list(zip(seen, seen))\n await echo(1)\n return [a for a, _ in found] == [x for x in seen]",
    "enumerate": "found = list(enumerate(seen))\n await echo(1)\n return found == list(enumerate(seen))",
    "unpacking": "a, b, *c = seen\n await echo(1)\n d, e, *f = seen\n return [a, b, c] == [d, e, f]",
    "a star": "found = [*seen]\n await echo(1)\n return found == [*seen]",
    "arguments": "found = max(*seen, key=lambda x: 0)\n await echo(1)\n return found == max(*seen, key=lambda x: 0)",
    "a sort that ties": "f = sorted(seen, key=lambda x: 0)\n await echo(1)\n return f == sorted(seen, key=lambda x: 0)",
    "a minimum that ties": "f = min(seen, key=lambda x: 0)\n await echo(1)\n return f == min(seen, key=lambda x: 0)",
    "join": "t = {str(x) for x in seen}\n f = '-'.join(t)\n await echo(1)\n return f == '-'.join(t)",
    "a text": "f = f'{seen} {[seen]!r:s}'\n await echo(1)\n return f == f'{seen} {[seen]!r:s}'",
    "str": "f = str((seen, 1))\n await echo(1)\n return f == str((seen, 1))",
    "a text of old": "f = '%s %s' % (seen, 1)\n await echo(1)\n return f == '%s %s' % (seen, 1)",
    "a dict": "f = {x: 1 for x in seen}\n await echo(1)\n return list(f) == list(seen)",
    "extend": "f = []\n f.extend(seen)\n await echo(1)\n return f == list(seen)",
    "+=": "f = []\n f += seen\n await echo(1)\n return f == list(seen)",
    "a slice": "f = []\n f[:] = seen\n await echo(1)\n return f == list(seen)",
    "bytes": "f = bytes(seen)\n await echo(1)\n return f == bytes(seen)",
    "pop": "a = set(seen)\n x = a.pop()\n await echo(1)\n b = set(seen)\n y = b.pop()\n return x == y and x not in a",
    "a frozen one": "f = frozenset(seen)\n a = list(f)\n await echo(1)\n return a == list(f)",
}


@pytest.mark.parametrize("name", WALKS)
async def test_i24_all_walks_over_one_set_agree(name: str) -> None:
    lines = WALKS[name].replace("\n ", "\n").split("\n")
    function = function_of("import asyncio\n" + SETUP + "".join(f"    {line}\n" for line in lines))
    assert await ending_of_flow(function, ()) == await ending_of_plain(function, ())


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclass(frozen=True)
class Point:
    x: int


KNOWN = {qualified_name(kind): kind for kind in (Colour, Point)}
SETS: list[Any] = [
    set(), {3, 1, 2}, {"b", "a"}, {1, "1", None, 2.5, b"1", (1,), (1.0, 2), float("inf"), float("-inf")},
    {Colour.RED, Colour.BLUE, "r", "b"}, {Point(2), Point(1), 1, 2}, frozenset({frozenset("ab"), frozenset("ba c")}),
    {date(2026, 1, 2), "2026-01-02", Decimal("1.1"), "1.1"}, {True, 2}, {chr(0xD800), "a"},
]  # fmt: skip


@pytest.mark.parametrize("value", SETS[:-1], ids=map(str, range(len(SETS) - 1)))
def test_i24_a_set_that_was_stored_is_walked_as_before_and_has_the_bytes_of_before(value: Any) -> None:
    data = encode_value(value, KNOWN)
    back = decode_value(data, KNOWN)
    assert back == value
    assert [repr(shown(item)) for item in walked(back)] == [repr(shown(item)) for item in walked(value)]
    assert repr(shown([back])) == repr(shown([value]))
    assert encode_value(back, KNOWN) == data


@pytest.mark.parametrize("value", SETS, ids=map(str, range(len(SETS))))
def test_i24_a_walk_gives_every_item_once_whatever_it_is(value: Any) -> None:
    assert len(walked(value)) == len(value)
    assert set(walked(value)) == value
    assert sorted(repr(shown(value))) == sorted(repr(value))


def test_i24_what_is_not_walked_over_is_given_as_it_is() -> None:
    assert call_function("max", [{1}, {1, 2}], {}) == {1, 2}
    assert call_function("dict", [], {"a": {1}}) == {"a": {1}}
    assert call_function("set", [{2, 1}], {}) == {1, 2}
    for name, args in (("reversed", [{1}]), ("sum", [[[1]], {2}])):
        with pytest.raises(TypeError, match="set"):
            call_function(name, args, {})
    with pytest.raises(KeyError, match="pop from an empty set"):
        mutate(set(), "pop", [], {})


def test_i24_processes_with_other_hashes_walk_alike() -> None:
    code = "from holdfast.core.flow_sets import *; s = set('holdfast'); print(walked(s), first_of(s), shown((s,)))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=child_environment() | {"PYTHONHASHSEED": seed},
            capture_output=True, check=True,
        ).stdout
        for seed in "123"
    }  # fmt: skip
    assert told == {b"['a', 'd', 'f', 'h', 'l', 'o', 's', 't'] a ({'a', 'd', 'f', 'h', 'l', 'o', 's', 't'},)\n"}
