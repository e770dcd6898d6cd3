# ruff: noqa: RUF005, SIM105
"""Changes in place: allowed where nobody else could see them."""

from __future__ import annotations

import copy
from typing import Any

from tests.flows.actions import add, double, echo, numbers
from tests.flows.corpus import case


@case((3,))
async def append_and_extend(n: int) -> list[int]:
    rows = [0]
    rows.append(await add(n))
    rows.extend(await numbers(2))
    rows.insert(0, 9)
    await double(1)
    rows += [7]
    rows.extend(x * 2 for x in [1, 2])
    return rows


@case((3,))
async def pop_and_remove(n: int) -> list[Any]:
    rows = await numbers(n + 3)
    last = rows.pop()
    first = rows.pop(0)
    rows.remove(2)
    await double(1)
    del rows[0]
    rows.reverse()
    return [rows, last, first]


@case(([3, 1, 2],))
async def queue_of_work(items: list[int]) -> list[int]:
    done = []
    while items:
        item = items.pop(0)
        if item == 3:
            items.append(await add(item, 2))
        done.append(item)
    return done


@case(([3, 1, 2],))
async def pop_inside_of_a_call(items: list[int]) -> list[int]:
    done = []
    while items:
        done.append(await double(items.pop()))
    return done


@case(([],))
async def pop_from_empty(items: list[int]) -> str:
    try:
        items.pop()
    except IndexError as e:
        return str(e)
    return "never"


@case((["a", "b", "a"],))
async def counting(words: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + await add(0)
    return counts


@case((["a", "b", "a"],))
async def counting_with_augmented_items(words: list[str]) -> dict[str, int]:
    counts = {"a": 0, "b": 0}
    for word in words:
        counts[word] += await add(0)
    return counts


@case((["a"],))
async def augmented_item_misses_a_key(words: list[str]) -> str:
    counts: dict[str, int] = {}
    try:
        counts[words[0]] += await add(0)
    except KeyError as e:
        return f"{e}"
    return "never"


@case(([1, 2, 3, 4],))
async def grouping(items: list[int]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for item in items:
        key = "even" if item % 2 == 0 else "odd"
        if key not in groups:
            groups[key] = []
        groups[key].append(await double(item))
    return groups


@case(([1, 2, 3, 4],))
async def grouping_with_setdefault(items: list[int]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for item in items:
        groups.setdefault("even" if item % 2 == 0 else "odd", []).append(await double(item))
        groups.setdefault("all", []).extend([item])
    for key, members in groups.items():
        await echo([key, members])
    return groups


@case((3,))
async def grid(n: int) -> list[list[int]]:
    cells = [[0 for _ in range(n)] for _ in range(n)]
    for i in range(n):
        for j in range(n):
            cells[i][j] = await add(i, j)
            cells[i][j] += 1
    return cells


@case((3,))
async def dict_changes(n: int) -> list[Any]:
    data = {"a": 1, "b": 2, "c": 3}
    gone = data.pop("a")
    data.update({"d": n}, e=5)
    missing = data.pop("zzz", None)
    await double(1)
    del data["b"]
    kept = data.setdefault("f", 6)
    return [data, gone, missing, kept]


@case((3,))
async def set_changes(n: int) -> list[int]:
    seen = set()
    for x in [1, 2, 1]:
        seen.add(await add(x))
    seen.discard(9)
    seen.update([n, 50])
    return sorted(seen)


@case((3,))
async def sort_in_place(n: int) -> list[Any]:
    rows = await echo([3, 1, 2])
    rows.sort()
    words = ["bb", "a"]
    words.sort(key=len, reverse=True)
    words.sort(key=lambda w: w)
    return [rows, words]


@case((3,))
async def augmented_texts_and_numbers(n: int) -> list[Any]:
    text, total, ratio, pairs = "a", 1, 1.5, (1,)
    other = total
    for i in range(n):
        text += str(await add(i))
        total *= 2
        ratio -= 0.5
        pairs += (i,)
    return [text, total, ratio, pairs, other]


@case((2,))
async def copies_are_independent(n: int) -> list[Any]:
    a = await numbers(n)
    b = list(a)
    c = a[:]
    d = a.copy()
    b.append(1)
    c.append(2)
    d.append(3)
    await double(1)
    return [a, b, c, d]


@case((2,))
async def deep_copies_share_nothing(n: int) -> list[Any]:
    a = [[1], [n]]
    b = copy.deepcopy(a)
    b[0].append(await add(n))
    c = copy.copy(a)
    c.append([9])
    await double(1)
    return [a, b, c]


@case(([1, 2],))
async def nobody_reads_the_other_name(items: list[int]) -> list[int]:
    unused = items
    items.append(await add(3))
    unused = []
    return [*items, *unused]


@case((3,))
async def numbers_are_never_shared(n: int) -> list[Any]:
    rows: list[Any] = [[n], []]
    last = n
    for i, text in enumerate(["a", "b"]):
        rows[1].append(i)
        rows[0].append(last)
        last = len(text) + i
        rows.append(last)
        rows[0].append(f"{text}{i}")
        i += 1
    return rows


@case((2,))
async def rebinding_is_not_changing(n: int) -> list[Any]:
    a = await numbers(n)
    b = a
    a = a + [5]
    await double(1)
    return [a, b]


@case((2,))
async def change_before_sharing(n: int) -> list[Any]:
    a = [1]
    a.append(n)
    b = a
    await double(1)
    return [a, b]


@case((2,))
async def fresh_list_in_each_pass(n: int) -> list[Any]:
    rows = []
    for i in range(n):
        row: list[int] = []
        row.append(await add(i))
        rows.append(row)
    return rows


@case((3,))
async def changed_in_one_branch(n: int) -> list[int]:
    rows = [1]
    if n > 2:
        rows.append(await add(n))
    else:
        rows[0] = 5
    await double(1)
    return rows


@case((5,))
async def item_assignment_fails(n: int) -> str:
    pairs = (1, 2)
    try:
        pairs[0] = n
    except TypeError as e:
        return str(e)
    return "never"


@case((1,))
async def change_in_handler(n: int) -> list[str]:
    log: list[str] = []
    for i in range(3):
        try:
            log.append("try")
            if i == n:
                raise ValueError(str(i))
        except ValueError as e:
            log.append(str(e))
            await double(i)
        finally:
            log.append("end")
    return log


@case((3,))
async def elements_are_shared_but_not_changed(n: int) -> list[Any]:
    items = [[1], [2]]
    kept = []
    for item in items:
        kept.append(item)
        await double(1)
    return [kept, items]


@case(([1, 2, 3, 4, 5],), ([],))
async def slices_as_targets(items: list[int]) -> list[Any]:
    items[1:3] = [20, 30, 31]
    items[len(items) :] = await numbers(2)
    await double(1)
    items[:0] = (7, 8)
    items[-1:] = "xy"
    return [items, len(items)]


@case(([1, 2, 3, 4, 5],))
async def slice_of_itself(items: list[int]) -> list[int]:
    items[1:1] = items
    await double(1)
    items[:] = [item for item in items if item % 2]
    return items


@case((2,), (3,))
async def slice_with_a_step_that_may_not_fit(n: int) -> Any:
    rows = [0, 1, 2, 3, 4]
    try:
        rows[::2] = await numbers(n)
    except ValueError as error:
        return [rows, str(error)]
    return rows


@case(([0, 1, 2, 3, 4, 5],))
async def deleted_slices(items: list[int]) -> list[int]:
    del items[1:3]
    await double(1)
    del items[::2]
    return items


@case((3,))
async def slice_inside_of_a_dict(n: int) -> dict[str, list[int]]:
    await double(1)
    table: dict[str, list[int]] = {"a": [n, 0, 1], "b": []}
    table["a"][:1] = [await add(n)]
    table["b"][:] = [item + 1 for item in table["a"]]
    return table


@case(("abc",), (7,), ([1],))
async def slice_of_what_can_not_be_changed(value: Any) -> str:
    try:
        value[0:1] = [2]
    except TypeError as error:
        return str(error)
    try:
        value[:] = 7
    except TypeError as error:
        return str(error)
    return "never"


@case(([[1], [2]],))
async def items_of_a_slice_are_shared_only_inside(rows: list[list[int]]) -> list[Any]:
    more = [[3]]
    rows[1:] = [[*row] for row in more]
    rows[1].append(await add(1))
    return [rows, more]


@case(([5, 0],), ([5, 2],))
async def extended_by_a_part(items: list[int]) -> list[Any]:
    rows = [1]
    try:
        rows.extend(10 // k for k in items)
    except ZeroDivisionError:
        await double(1)
    return rows


@case(([5, 0],))
async def extended_by_a_part_in_every_pass(items: list[int]) -> list[Any]:
    rows: list[Any] = []
    for n in range(3):
        try:
            rows.append(await add(n))
            rows.extend(10 // (k - n) for k in items)
        except ZeroDivisionError as e:
            rows.append(str(e))
        finally:
            rows.append(await double(len(rows)))
    return rows


@case(([["a", 1], ["b", 2], 5],), ([["a", 1], [[], 2]],), ([["a", 1]],))
async def updated_by_a_part(pairs: list[Any]) -> list[Any]:
    found: dict[str, Any] = {"x": 0}
    inner: dict[str, Any] = {"y": {}}
    seen = {"z"}
    try:
        try:
            found.update(pairs)
        finally:
            await double(1)
    except (TypeError, ValueError) as e:
        found["failed"] = str(e)
    try:
        inner["y"] |= pairs
    except (TypeError, ValueError):
        await double(2)
    try:
        seen.update(["a", *pairs])
    except TypeError:
        pass
    await double(3)
    return [found, inner, sorted(seen)]


@case((0,), (1,))
async def sorted_by_a_part(n: int) -> list[Any]:
    rows = [5, 4, 3, "a", 2] if n else [2, 1]
    taken = {1, 2, 3}
    try:
        rows.sort()
        taken.difference_update([1], n)
    except TypeError as e:
        rows.append(str(e))
    await double(1)
    return [rows, sorted(taken)]


@case((5,), ([2, 3],), ([2],))
async def unpacked_by_a_part(value: Any) -> list[Any]:
    a = b = c = d = 0
    try:
        a, (b, c), d = 1, await echo(value), 4
    except (TypeError, ValueError) as e:
        await echo(str(e))
    try:
        (a, *(b, c)), d = [value, 7], await echo(8)
    except (TypeError, ValueError) as e:
        await echo(str(e))
    return [a, b, c, d]


@case(([[1, [2, 3]], [4, 5]],), ([[1, [2, 3]], [4]],), ([],))
async def loop_unpacked_by_a_part(rows: list[Any]) -> list[Any]:
    a = b = 0
    try:
        for a, (b, c) in rows:
            await double(a + b + c)
    except (TypeError, ValueError):
        await double(1)
    return [a, b]


@case((5,))
async def first_assigned_by_a_part(value: int) -> list[Any]:
    try:
        a, (b, _c) = 1, value
    except TypeError:
        await double(1)
    try:
        found = [a]
        found.append(b)
    except UnboundLocalError as e:
        found.append(str(e))
    return found
