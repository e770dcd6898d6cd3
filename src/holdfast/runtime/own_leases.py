"""What a worker holds, compared with what it runs: the two differ when an answer of the store was lost or is late.

An answer that is late must not be mistaken for one that was lost, and not be followed either once what it tells of was
found without it: whatever it leased would run twice (G3).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.errors import HoldfastError
from holdfast.core.operations import Handed
from holdfast.core.rows import Work
from holdfast.runtime.attempt import Attempt, log_keys, named, release
from holdfast.runtime.last_resort import submit_or_log
from holdfast.store.contract import Store

log = logging.getLogger("holdfast.worker")

Item: TypeAlias = tuple[str, str, int]
Lease: TypeAlias = tuple[str, str, int, int]


class Differences(NamedTuple):
    """What to do about them."""

    lost: list[Attempt]  # runs here and is not ours
    orphans: list[Work]  # is ours and does not run
    soon: bool  # something was seen for the first time: look again before long


class OwnLeases:
    """The looks of one worker at its leases. A difference must be seen twice: an answer may just be under way."""

    def __init__(self) -> None:
        self._idle: set[Lease] = set()
        self._unheld: set[Lease] = set()
        self._adopted: set[Lease] = set()  # as many as answers were lost; a token never comes again
        self._given_back: set[Lease] = set()  # just now: idle, and nobody's to adopt

    def compare(self, leased: Iterable[Work], running: Mapping[Item, Attempt]) -> Differences:
        held = {(work.run, work.node, work.attempt): work for work in leased}
        lost = [
            attempt
            for item, attempt in running.items()
            if _lease(attempt.work) in self._unheld and (item not in held or held[item].token != attempt.work.token)
        ]
        idle = {(*item, work.token) for item, work in held.items() if item not in running}
        orphans = [held[lease[:3]] for lease in sorted(idle & self._idle)]
        unheld = {_lease(attempt.work) for item, attempt in running.items() if item not in held}
        soon = not unheld <= self._unheld
        self._idle, self._unheld = idle, unheld
        return Differences(lost, orphans, soon)

    def adopt(self, work: Work) -> bool:
        """Run what was found; False if its answer has come since it was seen, and perhaps its end."""
        lease = _lease(work)
        if lease not in self._idle or lease in self._given_back:
            return False
        self._adopted.add(lease)
        return True

    def adopted(self, work: Work) -> bool:
        """Whether this lease was found before the answer that tells of it, which is not to be followed any more."""
        return bool(self._adopted) and _lease(work) in self._adopted

    def has_run(self, work: Work) -> None:
        """A look that saw it idle was made before it began, and is out of date."""
        if self._idle:
            self._idle.discard(_lease(work))

    async def give_back(self, coordinator: Coordinator, handed: Sequence[Handed]) -> None:
        """Let others have what was leased to us and was not begun."""
        leases = {_lease(item.work) for item in handed}
        self._given_back |= leases
        try:
            answers = await coordinator.submit_batch([release(item.work) for item in handed])
        finally:
            self._given_back -= leases
            self._idle -= leases  # a look that saw them is out of date
        for item, answer in zip(handed, answers, strict=True):
            if isinstance(answer, Exception):  # we still hold it, and the next looks find and run it
                log.warning("%s was not given back: %s", named(item.work), answer, extra=log_keys(item.work))


async def retire(store: Store, coordinator: Coordinator, worker: str) -> None:
    """Give back whatever a worker that stops still holds, and take its row away, if the store answers in time."""
    with contextlib.suppress(HoldfastError, asyncio.TimeoutError):
        async with asyncio.timeout(5.0):
            for work in await store.leased_to(worker):
                if failpoints.armed:
                    await failpoints.reach("release.before")
                await submit_or_log(coordinator, release(work))
            await store.retire(worker)


def _lease(work: Work) -> Lease:
    return (work.run, work.node, work.attempt, work.token)
