"""Random flows: well-typed programs of the supported grammar, as source text.

A program is drawn from a function `choose(n)`, which gives a number below n: Hypothesis shrinks such programs, a seeded
random number generator makes thousands of them quickly. Programs end after few steps, and fail in all the ways that
actions and expressions can.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from typing import Any

import tests.flows.actions as actions
import tests.flows.corpus_calls as calls

HEADER = "async def program(a, b, items):"
_numbers = itertools.count()


class Writer:
    """Writes one program."""

    def __init__(self, choose: Callable[[int], int], size: int = 12) -> None:
        self._choose = choose
        self._budget = size
        self._lines: list[str] = [HEADER]
        self._ints = ["a", "b"]
        self._lists = ["items"]
        self._dicts: list[str] = []
        self._loops = 0
        self._names = 0

    def text(self) -> str:
        self._block(1, size=5)
        everything = ", ".join([*dict.fromkeys(self._ints[:4]), *dict.fromkeys(self._lists[:2])])
        self._put(1, f"return [{everything}]")
        return "\n".join(self._lines) + "\n"

    # --- choosing

    def _pick(self, options: list[Any]) -> Any:
        return options[self._choose(len(options))]

    def _chance(self, one_in: int) -> bool:
        return self._choose(one_in) == one_in - 1

    def _put(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _new(self, names: list[str], letter: str) -> str:
        if names and self._chance(2):
            return str(self._pick(names))
        self._names += 1
        name = f"{letter}{self._names}"
        names.append(name)
        return name

    # --- expressions

    def _int(self, depth: int = 0) -> str:
        kind = self._choose(14 if depth < 2 else 4)
        if kind in (0, 1):
            return str(self._pick(self._ints))
        if kind in (2, 3):
            return str(self._choose(5))
        left, right = self._int(depth + 1), self._int(depth + 1)
        rows = self._pick(self._lists)
        made = [
            f"({left} + {right})",
            f"({left} - {right})",
            f"({left} * {right} % 23)",
            f"({left} // {right})",
            f"len({rows})",
            f"{rows}[{self._choose(3)}]",
            f"sum({rows})",
            f"({left} if {self._test(depth + 1)} else {right})",
            f"({left} or {right})",
            f"(await add({left}, {right}))",
        ]
        return str(made[kind - 4])

    def _test(self, depth: int = 0) -> str:
        left, right = self._int(depth + 1), self._int(depth + 1)
        return str(
            self._pick(
                [
                    f"{left} < {right}",
                    f"{left} == {right}",
                    f"{left} % 2 == 0",
                    f"not {left}",
                    f"{left} > 1 and {right} < 5",
                    f"{left} in {self._pick(self._lists)}",
                    f"await is_even({left})",
                ]
            )
        )

    def _list(self, depth: int = 0) -> str:
        rows = self._pick(self._lists)
        item = self._int(depth + 1)
        return str(
            self._pick(
                [
                    f"[{item}, {self._int(depth + 1)}]",
                    f"{rows} + [{item}]",
                    f"{rows}[1:]",
                    f"{rows}" if self._chance(3) else f"{rows}.copy()",
                    f"[x + 1 for x in {rows} if x != {self._choose(3)}]",
                    f"sorted({rows})",
                    f"await numbers({item} % 4)",
                    f"await asyncio.gather(add({item}), double({self._simple()}))",
                    f"await asyncio.gather(*[fail_if(x, 6) for x in {rows}[:3]])",
                    f"await asyncio.gather(*[add(x, {self._simple()}) for x in {rows}[:3] if x > 1], double(1))",
                    f"[await double(x) for x in {rows}[:2]]",
                    f"list({rows})",
                ]
            )
        )

    def _simple(self) -> str:
        return str(self._pick([*self._ints[:3], "1", "3"]))

    # --- statements

    def _block(self, depth: int, size: int, loop: bool = False) -> None:
        self._budget -= 1
        count = 1 + self._choose(size)
        known = (list(self._ints), list(self._lists), list(self._dicts))
        for _ in range(count):
            self._statement(depth, loop)
        if depth > 1 and not self._chance(12):
            # Names of a block may be unbound behind it: that is tried now and then, not all the time.
            self._ints, self._lists, self._dicts = known

    def _statement(self, depth: int, loop: bool) -> None:
        deep = depth >= 4 or self._budget <= 0
        kind = self._choose(11 if deep else 20)
        if kind <= 2:
            value = self._int()
            self._put(depth, f"{self._new(self._ints, 'n')} = {value}")
        elif kind == 3:
            value = self._list()
            self._put(depth, f"{self._new(self._lists, 'rows')} = {value}")
        elif kind == 4:
            self._put(depth, f"{self._pick(self._ints)} += {self._int()}")
        elif kind == 5:
            self._put(depth, f"{self._pick(self._lists)}.append({self._int()})")
        elif kind == 6:
            self._small(depth, loop)
        elif kind == 7:
            value = self._pick([f"await fail_if({self._int()}, 5)", f"await double({self._int()})"])
            self._put(depth, f"{self._new(self._ints, 'n')} = {value}")
        elif kind == 8:
            self._dict(depth)
        elif kind == 9:
            call = self._pick(["add_twice", "guarded", "fails", "maybe_unbound"])
            self._put(depth, f"{self._pick(['a', 'b'])} = len(str(await {call}({self._int()})))")
        elif kind == 10:
            self._unpack(depth)
        elif kind in (11, 12, 13):
            self._if(depth, loop)
        elif kind in (14, 15):
            self._for(depth)
        elif kind == 16:
            self._while(depth)
        else:
            self._try(depth, loop)

    def _small(self, depth: int, loop: bool) -> None:
        options = [
            f"return [{self._int()}]",
            f'raise ValueError("v" + str({self._int()}))',
            f"assert {self._test()}",
            "pass",
            f"{self._pick(self._lists)}[0] = {self._int()}",
            f"{self._pick(self._lists)}.pop()",
            f"{self._pick(self._lists)} += [{self._int()}]",
        ]
        if loop:
            options += ["break", "continue", "break", "continue"]
        line = self._pick(options)
        if line.split()[0] in ("return", "raise", "break", "continue") and self._chance(2):
            self._put(depth, f"if {self._test()}:")
            depth += 1
        self._put(depth, line)

    def _dict(self, depth: int) -> None:
        if not self._dicts or self._chance(4):
            self._names += 1
            self._dicts.append(f"d{self._names}")
            self._put(depth, f"{self._dicts[-1]} = {{1: {self._int()}}}")
            return
        name = self._pick(self._dicts)
        self._put(
            depth,
            self._pick(
                [
                    f"{name}[{self._int()} % 3] = {self._int()}",
                    f"{name}[1] += {self._int()}",
                    f"{self._new(self._ints, 'n')} = {name}.get({self._int()} % 3, 7)",
                    f"a = {name}[{self._int()} % 3]",
                ]
            ),
        )

    def _unpack(self, depth: int) -> None:
        value = self._pick(
            [f"{self._int()}, {self._int()}", f"await asyncio.gather(add({self._simple()}), double(2))", "a, b"]
        )
        one, two = self._new(self._ints, "n"), self._new(self._ints, "n")
        self._put(depth, f"{one}, {two} = {value}")

    def _if(self, depth: int, loop: bool) -> None:
        self._put(depth, f"if {self._test()}:")
        self._block(depth + 1, 3, loop)
        if self._chance(4):
            self._put(depth, f"elif {self._test()}:")
            self._block(depth + 1, 2, loop)
        if self._chance(2):
            self._put(depth, "else:")
            self._block(depth + 1, 2, loop)

    def _for(self, depth: int) -> None:
        name = self._new(self._ints, "i")
        rows = self._pick(self._lists)
        over = self._pick(["range(3)", f"{rows}[:3]", f"list({rows})[:2]", f"[{self._int()}, {self._int()}]"])
        self._put(depth, f"for {name} in {over}:")
        self._block(depth + 1, 3, True)
        if self._chance(3):
            self._put(depth, "else:")
            self._block(depth + 1, 2)

    def _while(self, depth: int) -> None:
        self._names += 1
        counter = f"w{self._names}"
        self._put(depth, f"{counter} = 0")
        self._put(depth, f"while {counter} < {1 + self._choose(3)}{self._pick(['', f' and {self._test()}'])}:")
        self._put(depth + 1, f"{counter} += 1")
        self._block(depth + 1, 3, True)
        if self._chance(4):
            self._put(depth, "else:")
            self._block(depth + 1, 2)

    def _try(self, depth: int, loop: bool) -> None:
        self._put(depth, "try:")
        self._block(depth + 1, 3, loop)
        shape = self._choose(4)
        if shape != 3:
            for kind in [["KeyError"], ["ValueError", "Exception"], ["(KeyError, IndexError)"]][self._choose(3)]:
                self._names += 1
                self._put(depth, f"except {kind} as e{self._names}:")
                if self._chance(2):
                    self._put(depth + 1, f"a = len(str(e{self._names}))")
                if self._chance(5):
                    self._put(depth + 1, "raise")
                self._block(depth + 1, 2, loop)
            if self._chance(3):
                self._put(depth, "else:")
                self._block(depth + 1, 2, loop)
        if shape in (2, 3):
            self._put(depth, "finally:")
            self._block(depth + 1, 2, loop)


def function_of(text: str) -> Callable[..., Any]:
    """The function that a program's text defines; its source can be read, as from a file."""
    file = f"<program {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {**vars(actions), **vars(calls), "__name__": __name__}
    exec(compile(text, file, "exec"), names)  # noqa: S102
    made: Callable[..., Any] = names["program"]
    return made
