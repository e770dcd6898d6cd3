"""Work that was lost often: of all such items a worker runs one at a time, so that the culprit dies alone.

Theory of operation. When user code kills its process, everything that ran beside it loses its lease as well, and from
outside nobody can tell who did it. Counted alike, all of it would become dead letters together (I6). So from half of
`lost_limit` on, an item is a suspect, and two suspects never run in one worker: the innocent ones are run without the
culprit beside them and complete, and the culprit alone goes on losing until it is a dead letter.

A suspect that is claimed beside another is given back before anything of its claim is started. That counts as nothing
(I6), and it must be first: the culprit may take the process down as soon as it runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.operations import Handed
from holdfast.core.rows import Work
from holdfast.store.contract import NO_LOSSES_LIMIT


class LostOften:
    """Which of the items that a worker claims it may run now."""

    def __init__(self, lost_limit: int) -> None:
        self._suspicious = max(1, lost_limit // 2)
        self._careful = False

    def is_suspect(self, work: Work) -> bool:
        return work.losses >= self._suspicious

    def losses_below(self, running: Iterable[Work]) -> int:
        """What a claim must ask for, so that no second suspect comes."""
        return self._suspicious if any(map(self.is_suspect, running)) else NO_LOSSES_LIMIT

    def limit(self, wanted: int, losses_below: int) -> int:
        """How many a claim may take: where suspects wait in numbers, claiming all to keep one would be a waste."""
        return 1 if self._careful and losses_below == NO_LOSSES_LIMIT else wanted

    def sort(self, handed: list[Handed]) -> tuple[list[Handed], list[Handed]]:
        """What is to be run, with one suspect at most, and what is to be given back first."""
        if not any(self.is_suspect(item.work) for item in handed):
            self._careful = False
            return handed, []
        run: list[Handed] = []
        give_back: list[Handed] = []
        for item in handed:
            second = self.is_suspect(item.work) and any(self.is_suspect(other.work) for other in run)
            (give_back if second else run).append(item)
        self._careful = True
        return run, give_back
