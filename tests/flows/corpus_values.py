# ruff: noqa: E501, UP031
"""Expressions: what is computed between actions."""

from __future__ import annotations

import dataclasses
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.flows.actions import Colour, Item, Order, add, double, echo, make_order, numbers, pair, plain_def, risky
from tests.flows.corpus import case

LIMIT = 3
NAMES = ("ada", "bob")
SEEN = frozenset({"ada", "bob", "cleo", "dan"})


@case((1,), (-5,))
async def straight_line(n: int) -> int:
    a = await add(n)
    b = a * 3 - 1
    c = await double(b)
    return c + a


@case()
async def nothing_at_all() -> None:
    pass


@case()
async def returns_a_constant() -> str:
    """A docstring is no statement."""
    return "done"


@case((7,))
async def returns_its_argument(n: int) -> int:
    return n


@case((7,), (0,))
async def arithmetic(n: int) -> list[Any]:
    m = await add(n)
    return [m + 2, m - 2, m * 2, m / 2, m // 2, m % 2, m**2, -m, +m, ~m, m << 1, m >> 1, m & 1, m | 8, m ^ 3]


@case((0,), (2,))
async def divides(n: int) -> float:
    m = await echo(n)
    return 10 / m


@case((3,), (9,))
async def comparisons(n: int) -> list[bool]:
    m = await echo(n)
    return [
        m < 5,
        m <= 3,
        m > 3,
        m >= 9,
        m == 3,
        m != 3,
        9 < m < 100,
        99 < m < 1 / 0,
        1 < m < 5,
        m in [3, 4],
        m not in (9,),
        m is None,
        m is not None,
    ]


@case((0, 5), (3, 0), (0, 0))
async def boolean_values(a: int, b: int) -> list[Any]:
    x = await echo(a)
    return [x and b, x or b, not x, (x or b) and "yes", x if x else b]


@case(([1, 2, 3],), ([],), ("text",))
async def truth_of_values(value: Any) -> str:
    kept = await echo(value)
    return "full" if kept else "empty"


@case((["a", "b", "c", "d"],))
async def slices(items: list[str]) -> list[Any]:
    kept = await echo(items)
    return [kept[1:], kept[:-1], kept[::2], kept[-1], kept[::-1], kept[1:3]]


@case(([1, 2],), ([],))
async def index_may_fail(items: list[int]) -> int:
    kept = await echo(items)
    return kept[0]


@case(({"a": 1},), ({},))
async def key_may_fail(data: dict[str, int]) -> int:
    kept = await echo(data)
    return kept["a"]


@case((5,))
async def texts(n: int) -> list[str]:
    name = await plain_def("ada")
    return [
        f"{name} is {n:>4} and {n / 3:.2f} {name!r}",
        name.lower().title(),
        "-".join(["a", name]),
        " x ".strip() + "y" * 2,
        f"{n:{n}d}",
        "%s has %d" % (name, n),
        name[0],
        ", ".join(str(k) for k in range(3)),
    ]


@case((4,))
async def comprehensions(n: int) -> list[Any]:
    found = await numbers(n)
    return [
        [x * x for x in found],
        [x for x in found if x % 2],
        {x: str(x) for x in found},
        sorted({x % 2 for x in found}),
        [(x, y) for x in found for y in range(x)],
        [x for row in [[1, 2], [3]] for x in row if x != 2],
        sum(x for x in found if x > 1),
        [[y for y in range(x)] for x in found],
    ]


@case((4,))
async def comprehension_names_stay_inside(n: int) -> list[Any]:
    x = await double(n)
    squares = [x for x in range(3)]
    return [x, squares]


@case((3,))
async def builtins_of_python(n: int) -> list[Any]:
    found = await numbers(n)
    return [
        len(found), sum(found), min(found), max(found, default=0), sorted(found, reverse=True), abs(-n), round(2.567, 1),
        list(range(1, n)), list(enumerate(found)), list(zip(found, "abc", strict=True)), any(found), all(found), int("12"), str(n),
        float("1.5"), bool(found), tuple(found), divmod(17, 5), list(reversed(found)), dict(a=1), max(3, n), pow(2, 5),
    ]  # fmt: skip


@case((3,))
async def sorted_with_keys(n: int) -> list[Any]:
    words = await echo(["bb", "a", "ccc"])
    items = [Item("x", 3), Item("y", 1)]
    return [
        sorted(words, key=len),
        sorted(words, key=lambda word: -len(word)),
        max(items, key=lambda item: item.cents).id,
        min(words, key=lambda w: (len(w) * n, w)),
    ]


@case((9,))
async def maths(n: int) -> list[Any]:
    m = await echo(n)
    return [math.sqrt(m), math.ceil(m / 2), math.floor(m / 2), math.gcd(m, 6), math.isclose(0.1 + 0.2, 0.3)]


@case((2,))
async def unpacking(n: int) -> list[Any]:
    a, b = await pair(n)
    (c, d), e = (a, b), 5
    first, *rest = await numbers(4)
    *start, last = [1, 2, 3]
    a, c = c, a
    return [a, b, c, d, e, first, rest, start, last]


@case(([1],), ([1, 2],), ([1, 2, 3],))
async def unpacking_may_fail(items: list[int]) -> int:
    a, b = await echo(items)
    return a + b


@case((5,))
async def unpacking_a_number_fails(n: int) -> int:
    a, b = await echo(n)
    return a + b


@case((2,))
async def starred_displays(n: int) -> list[Any]:
    found = await numbers(n)
    more = {"a": 1}
    return [[0, *found, 9], (*found,), {**more, "b": 2}, [*range(2), *found]]


@case((3,))
async def records(n: int) -> list[Any]:
    order = await make_order(n)
    bigger = dataclasses.replace(order, id="new")
    item = Item("z", n)
    return [order.id, order.items[0].id, order.size, order.colour.value, bigger.id, item.cents, item == Item("z", 3)]


@case((3,))
async def records_survive_actions(n: int) -> Order:
    order = await make_order(n)
    await double(1)
    copy = Order(order.id + "!", order.items, Colour.BLUE, order.due)
    await double(2)
    return copy


@case(("red",), ("blue",), ("green",))
async def enums(name: str) -> list[Any]:
    colour = Colour(await echo(name))
    await double(1)
    return [colour is Colour.RED, colour == Colour.BLUE, colour.name, colour.value]


@case((3,))
async def dates_and_decimals(n: int) -> list[str]:
    due = date(2026, 1, 30) + timedelta(days=n)
    when = datetime(2026, 1, 1, 12, 30)
    price = Decimal("1.10") * n
    await double(1)
    later = when + timedelta(hours=n)
    return [due.isoformat(), later.isoformat(), str(price), str(price + Decimal(1)), str(due.year), str(later - when)]


@case((3,))
async def values_survive_actions(n: int) -> list[Any]:
    odd = (1, 2)
    some = {3, 1}
    raw = b"\x00\xff"
    keyed = {1: "a", (1, 2): "b"}
    big = 2**70
    await double(n)
    return [odd == (1, 2), sorted(some), raw.hex(), keyed[(1, 2)], str(big), float("inf") > big, keyed[1]]


@case((2,))
async def constants_of_the_module(n: int) -> list[Any]:
    m = await double(n)
    return [m > LIMIT, "ada" in SEEN, NAMES[0], len(NAMES), Colour.RED.value, Colour.BLUE is Colour.RED]


@case(({"a": {"b": [1, 2]}},))
async def nested_data(data: dict[str, Any]) -> list[Any]:
    kept = await echo(data)
    return [
        kept["a"]["b"][1],
        kept.get("x", 5),
        list(kept.keys()),
        list(kept["a"].values()),
        "a" in kept,
        kept.get("x"),
    ]


@case((1,), (0,))
async def pure_helpers(n: int) -> float:
    m = await echo(n)
    return risky(m) + 1


@case((3,), (0,))
async def chained_assignment(n: int) -> list[int]:
    a = b = await add(n)
    a += 1
    return [a, b]


@case((3,))
async def annotated_assignment(n: int) -> int:
    total: int = await add(n)
    other: int
    other = 2
    return total + other


@case((3,))
async def await_inside_of_expressions(n: int) -> list[Any]:
    total = (await add(n)) + (await double(n)) * 2
    return [total, await add(await double(n)), {"k": await echo(n)}, f"{await add(1)}:{n}", (await pair(n))[1]]


@case(([],), ([5],))
async def left_before_right(items: list[int]) -> int:
    return items[0] + await double(2)


@case((0,), (1,), (5,))
async def await_in_conditions(n: int) -> str:
    if await add(n, -1) and n > 1 and await double(n) > 4:
        return "both"
    return "one" if (n or await add(0, 0)) else "none"


@case((0,), (3,))
async def await_in_conditional_expression(n: int) -> int:
    return await double(n) if n else await add(10)


@case((0,), (1,))
async def await_in_or(n: int) -> int:
    return (await echo(n)) or (await add(6)) or 100


@case((4,))
async def await_in_comprehensions(n: int) -> list[Any]:
    found = [await double(x) for x in range(n) if x != 1]
    table = {str(x): await add(x) for x in found}
    from_action = [x + 1 for x in await numbers(2)]
    unique = sorted({await add(x % 2) for x in range(n)})
    nested = [await add(x, y) for x in range(2) for y in range(2) if y >= x]
    return [found, table, from_action, unique, nested]


@case((3,))
async def type_names(n: int) -> list[Any]:
    m = await echo(n)
    return [
        type(m).__name__,
        isinstance(m, int),
        isinstance(m, (str, list)),
        isinstance(m, int | str),
        "".__class__.__name__,
    ]


@case(("x",))
async def method_that_does_not_exist(text: str) -> Any:
    kept = await echo(5)
    return kept.upper()


@case((None,), ("x",))
async def attribute_of_none(value: Any) -> Any:
    kept = await echo(value)
    return kept.id


@case(
    ("a", 2),
)
async def wrong_types(text: str, n: int) -> str:
    kept = await echo(text)
    return kept + n


@case((1,), (2, 3), (2, 3, "z"))
async def defaults(a: int, b: int = 5, c: str | None = None) -> list[Any]:
    x = await add(a, b)
    return [x, c]


@case((True,), (False,))
async def unbound_variable(flag: bool) -> int:
    if await echo(flag):
        x = 1
    await double(2)
    return x


@case((True,), (False,))
async def unbound_in_a_comprehension(flag: bool) -> list[Any]:
    if await echo(flag):
        x = 1
    await double(2)
    return [y + x for y in range(2)]


@case((True,), (False,))
async def unbound_in_a_generator(flag: bool) -> int:
    if await echo(flag):
        x = 1
    await double(2)
    return sum(y + x for y in range(2))


@case((3,))
async def deleted_variable(n: int) -> int:
    x = await add(n)
    y = x
    del x
    await double(1)
    return y + x  # noqa: F821


@case((3,))
async def shadowed_parameter(n: int) -> int:
    n = await add(n)
    n = n + 1
    await double(n)
    return n


@case((-1,), (0,), (4,))
async def sign(n: int) -> str:
    return "negative" if n < 0 else "zero" if n == 0 else "positive"


@case((5,))
async def asserts(n: int) -> int:
    m = await add(n)
    assert m > 0
    assert m < 6, f"{m} is too much"
    return m


@case((5,))
async def many_variables_live_long(n: int) -> list[int]:
    a = await add(n)
    b = await add(a)
    c = await add(b)
    d = await add(c)
    e = await add(d)
    return [a, b, c, d, e, n]


@case((2,))
async def strings_and_iteration(n: int) -> list[Any]:
    text = await plain_def("abc")
    return [
        list(text),
        [c for c in text if c != "B"],
        "".join(reversed(text)),
        text * n,
        "b" in text.lower(),
        text.split("B"),
    ]


@case((5,), ([1],))
async def star_of_anything(value: Any) -> list[Any]:
    kept = await echo(value)
    return [0, *kept]


@case((2,))
async def set_operations(n: int) -> list[Any]:
    left, right = {1, 2, 3}, {2, n}
    kept = await echo([1])
    return [sorted(left & right), sorted(left | right), sorted(left - right), left >= {1}, 1 in left, len(left), kept]


@case(([3, 1, 2],), ([],))
async def generators_that_are_consumed_at_once(items: list[int]) -> list[Any]:
    seen = {1, 9}
    found = await numbers(2)
    totals = [sum(x * 2 for x in items), max((x for x in items), default=None), sorted(-x for x in items)]
    joined = ", ".join(str(x) for x in items if x > 1)
    sets = [sorted(seen.union((x + 1 for x in items), found)), seen.isdisjoint(x for x in items)]
    pairs = dict((str(x), x) for x in items)
    return [totals, joined, sets, pairs, any(x == 2 for x in items), [*(x for x in items)], 2 in (x for x in items)]


@case(([0, 1],))
async def error_inside_of_a_generator(items: list[int]) -> str:
    await double(1)
    try:
        return str(sum(1 // x for x in items))
    except ZeroDivisionError as error:
        return str(error)
