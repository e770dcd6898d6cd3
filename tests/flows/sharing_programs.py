"""Random programs about lists in lists that several names hold: what is compiled must not show a difference.

Python lets two names hold one object; a flow stores variables apart. These programs take items out, put them in
elsewhere, change what they can reach, and await in between, so that a change that the compiler should have refused
shows up as another result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HEADER = "async def program(a, b, items):"


class SharingWriter:
    """Writes one program over nested lists `g1…`, flat lists `r1…` and dicts of lists `d1…`."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._nested = ["g1", "g2"]
        self._rows = ["r1", "r2"]
        self._dicts = ["d1"]
        self._lines = [HEADER, *(f"    {line}" for line in self._setup())]
        self._count = 0

    def text(self) -> str:
        for _ in range(2 + self._choose(6)):
            self._statement(1)
        kept = self._some([*self._nested, *self._rows, *self._dicts])
        self._put(1, "await double(9)")
        self._put(1, f"return [{', '.join(kept)}]")
        return "\n".join(self._lines) + "\n"

    def _setup(self) -> list[str]:
        first = self._pick(["[[1], [2, 3]]", "await echo([[1], [2, 3]])", "[items, [5]]", "[[0] for _ in range(2)]"])
        second = self._pick(["[[7]]", "[[x] for x in range(3)]", "[[]] * 2", "list(g1)", "g1[:]", "g1 + [[6]]"])
        return [
            f"g1 = {first}",
            f"g2 = {second}",
            f"r1 = {self._pick(['[1, 2]', 'items', 'g1[0]', 'await numbers(2)', 'list(items)'])}",
            f"r2 = {self._pick(['[8]', 'r1', 'g2[0] if a else [4]', 'r1 + [1]', 'g1[0] or [3]', 'max(g1)', '[]'])}",
            f"d1 = {self._pick(['{}', '{1: [1]}', '{1: r1}', 'dict(zip([1, 2], g1))', '{i: [] for i in range(2)}'])}",
        ]

    def _pick(self, options: list[Any]) -> Any:
        return options[self._choose(len(options))]

    def _some(self, names: list[str]) -> list[str]:
        kept = [name for name in names if self._choose(3)]
        return kept or names

    def _put(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _statement(self, depth: int) -> None:
        kind = self._choose(10 if depth < 3 else 7)
        if kind <= 2:
            self._put(depth, self._take())
        elif kind <= 5:
            self._put(depth, self._change())
        elif kind == 6:
            self._put(depth, "await double(1)")
        elif kind == 7:
            self._put(depth, f"if {self._pick(['a', 'b > 1', f'len({self._row()}) > 1'])}:")
            self._body(depth + 1)
            if self._choose(2):
                self._put(depth, "else:")
                self._body(depth + 1)
        elif kind == 8:
            self._loop(depth)
        else:
            self._put(depth, "try:")
            self._body(depth + 1)
            self._put(depth, self._pick(["except IndexError:", "except Exception:", "finally:"]))
            self._body(depth + 1)

    def _body(self, depth: int) -> None:
        for _ in range(1 + self._choose(3)):
            self._statement(depth)

    def _loop(self, depth: int) -> None:
        target, over = self._pick(
            [
                (self._row(), f"{self._grid()}[:3]"),
                (self._row(), f"list({self._grid()})[:3]"),
                ("i", "range(2)"),
                (f"i, {self._row()}", f"enumerate({self._grid()}[:2])"),
                (f"k, {self._row()}", f"list({self._pick(self._dicts)}.items())[:2]"),
                (f"{self._row()}, i", f"zip({self._grid()}[:2], [1, 2])"),
            ]
        )
        self._put(depth, f"for {target} in {over}:")
        self._body(depth + 1)

    def _row(self) -> str:
        return str(self._pick(self._rows))

    def _grid(self) -> str:
        return str(self._pick(self._nested))

    def _take(self) -> str:
        row, grid, name, data = self._row(), self._grid(), self._row(), self._pick(self._dicts)
        other = self._grid()
        return str(
            self._pick(
                [
                    f"{row} = {grid}[0]",
                    f"{row} = {name}",
                    f"{row} = [*{name}]",
                    f"{row} = []",
                    f"{row} = {data}.get(1, {name})",
                    f"{row} = {grid}[0] if b else {name}",
                    f"{row} = {grid}.pop()",
                    f"{row} = min({grid}, key=len)",
                    f"{row} = [x for g in {grid} for x in g]",
                    f"{row}, *{grid} = {other}",
                    f"{grid} = {other}",
                    f"{grid} = [{row}, [0]]",
                    f"{grid} = [{row}, {row}]",
                    f"{grid} = [{row} for _ in range(2)]",
                    f"{grid} = [list({row}), {name}]",
                    f"{grid} = {other} + [{row}]",
                    f"{grid} = [x for x in {other}]",
                    f"{grid} = [list(x) for x in {other}]",
                    f"{grid} = sorted({other})",
                    f"{grid} = list({data}.values())",
                    f"{grid} = [x for _, x in sorted({data}.items())]",
                    f"{row}, {name} = {name}, {row}",
                    f"{data} = {{1: {row}, 2: [3]}}",
                    f"{data} = dict({data})",
                    f"{data} = {{**{data}, 5: {row}}}",
                    f"{row} = {data}.setdefault(7, {name})",
                    f"{grid} = list(reversed({other}))",
                ]
            )
        )

    def _change(self) -> str:
        row, grid, name, data = self._row(), self._grid(), self._row(), self._pick(self._dicts)
        return str(
            self._pick(
                [
                    f"{row}.append({self._choose(9)})",
                    f"{row} += [{self._choose(9)}]",
                    f"{row}[0] = 50",
                    f"{row}.extend({name})",
                    f"{grid}.append({row})",
                    f"{grid}.append([5])",
                    f"{grid}[0].append({self._choose(9)})",
                    f"{grid}[0] = {row}",
                    f"{grid}[0] += [4]",
                    f"{grid}[-1][0] = 60",
                    f"{grid} += [{row}]",
                    f"{grid}.extend([{row}, {name}])",
                    f"{grid}.insert(0, {row})",
                    f"{data}[1] = {row}",
                    f"{data}[2] = []",
                    f"{data}[1].append(3)",
                    f"{data}[1] += [4]",
                    f"{data}.update({{1: {row}}})",
                    f"{row}.sort()",
                    f"{grid}.reverse()",
                    f"del {grid}[0]",
                    f"{grid}[1:] = {self._grid()}",
                    f"{grid}[:1] = [{row}, {name}]",
                    f"{row}[:1] = {name}",
                    f"{data}[1][1:] = {row}",
                    f"del {grid}[1:]",
                    f"{row}.append(await add({self._choose(5)}))",
                ]
            )
        )
