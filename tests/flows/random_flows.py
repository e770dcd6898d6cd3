"""Random programs as flows: those of the generator's that compile, with what plain asyncio makes of them."""

from __future__ import annotations

import contextlib
import linecache
import random
import warnings
from typing import Any

import holdfast as hf
from holdfast.authoring.flows import Flow, flow
from holdfast.core.errors import FlowNotSupported
from tests.flows.by_hand import registry_with_actions
from tests.flows.parity import ending_of_plain
from tests.flows.programs import Writer, function_of

ARGUMENTS = ((1, 4, [3, 0, 2]), (0, 7, []))


class Program:
    """A program and its flow."""

    def __init__(self, seed: int, registry: hf.Registry) -> None:
        self.seed = seed
        self.text = Writer(random.Random(seed).randrange).text()
        self.function = function_of(self.text)
        self.made: Flow[..., Any] = flow(registry=registry, name=f"program {seed}")(self.function)

    async def endings(self) -> list[tuple[Any, ...]]:
        """How plain asyncio ends it, with each of the arguments."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # calls whose neighbour raised are never awaited in plain asyncio
            return [await ending_of_plain(self.function, args) for args in ARGUMENTS]

    def forget(self) -> None:
        """Its source is not needed any more."""
        linecache.cache.pop(self.function.__code__.co_filename, None)


def compiled(first: int, count: int) -> tuple[hf.Registry, list[Program], int]:
    """The next programs that compile, from this seed on; and the seed after them."""
    registry = registry_with_actions()
    programs: list[Program] = []
    while len(programs) < count:
        with contextlib.suppress(FlowNotSupported):
            programs.append(Program(first, registry))
        first += 1
    return registry, programs, first


def is_refused(ending: tuple[Any, ...]) -> bool:
    """Whether a run met what only shows when it runs, and is no parity: a value that flows do not have."""
    return ending[1:2] == ("FlowNotSupported",)
