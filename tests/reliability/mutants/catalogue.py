"""All mutants in the order of their numbers. A new one is added at the end of its list."""

from __future__ import annotations

from tests.reliability.mutants.kernel_bugs import KERNEL
from tests.reliability.mutants.model_bugs import MODELS
from tests.reliability.mutants.mutant import Mutant
from tests.reliability.mutants.store_bugs import STORE
from tests.reliability.mutants.stream_bugs import STREAMS

MUTANTS: tuple[Mutant, ...] = (*KERNEL, *STORE, *MODELS, *STREAMS)

ROTATING = 5


def numbered() -> dict[int, Mutant]:
    return dict(enumerate(MUTANTS, 1))


def rotation(turn: int) -> tuple[int, ...]:
    """The numbers whose turn it is: far apart, so that they are of different areas, and all quick ones come in time."""
    quick = [number for number, each in numbered().items() if not each.slow]
    stride = -(-len(quick) // ROTATING)
    places = range(turn % stride, len(quick), stride)
    return tuple(quick[place] for place in places)
