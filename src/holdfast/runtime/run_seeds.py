"""Randomness that repeats: seeded by run and branch, so it costs no write and no branch disturbs another (I56)."""

from __future__ import annotations

import random
import uuid

from holdfast.core.ids import hashed
from holdfast.runtime.run_task import Branch

_MARK_DIGITS = 14  # of 4 bits: a hash has 61 bits; the rest is room for counting up


def first_mark(run_id: str, purpose: str) -> int:
    """Return where the marks of a run start: far from those of other runs, the same in every process."""
    return int(hashed("mark", purpose, run_id)[:_MARK_DIGITS], 16)


def generator_of(seed: str, branch: Branch) -> random.Random:
    """Return the branch's one generator: asking for it again goes on where the branch left off."""
    if branch.generator is None:
        number = int(hashed("rng", seed, branch.name), 16)
        branch.generator = random.Random(number)  # noqa: S311 - it must repeat; secrets are made in actions
    return branch.generator


def next_uuid(seed: str, branch: Branch) -> uuid.UUID:
    """Return the branch's next UUID, of version 4 in form."""
    branch.uuids += 1
    digest = hashed("uuid", seed, branch.name, str(branch.uuids))
    return uuid.UUID(hex=digest[:32], version=4)
