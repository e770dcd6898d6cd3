"""The events that a projection is given next: up to the bound, in the order of positions, decoded with today's code.

Several deciders are merged by position. What one page of each holds is complete only up to where the shortest full page
ends, so the rest waits for the next look.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import MissingJob
from holdfast.core.projection_operations import EventPlace
from holdfast.core.rows import Fact
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.authoring.projections import Projection
    from holdfast.authoring.recorded import Recorded

PAGE = 1_000

_position = attrgetter("position")


class NextEvent(msgspec.Struct, frozen=True):
    """An event, or why it cannot be read."""

    fact: Fact
    event: Recorded[Any] | None
    error: Exception | None = None

    @property
    def position(self) -> int:
        return self.fact.position

    @property
    def place(self) -> EventPlace:
        fact = self.fact
        return EventPlace(
            position=fact.position, type=fact.type, workflow=fact.workflow, key=fact.key, sequence=fact.sequence
        )


async def read_facts(store: Store, sources: Sequence[str], after: int, upto: int, limit: int = PAGE) -> list[Fact]:
    """Events of these workflows after a position, in order, none left out up to the last one returned."""
    pages = [await store.read_stream(source, after, upto, limit) for source in sources]
    if len(pages) == 1:
        return pages[0]
    complete = min((page[-1].position for page in pages if len(page) == limit), default=upto)
    merged = sorted((fact for page in pages for fact in page if fact.position <= complete), key=_position)
    return merged[:limit]


def decoded(projection: Projection[Any], facts: Sequence[Fact], definitions: RegistryDefinitions) -> list[NextEvent]:
    """The events as the handler gets them; the last one may be one that cannot be read, and nothing follows it."""
    events = []
    for fact in facts:
        try:
            code = definitions.decider(fact.workflow)
            if code is None:
                raise MissingJob(
                    f"projection {projection.name} needs decider {fact.workflow}, which is not registered here",
                    hint="import the module that defines it in this worker",
                )
            events.append(NextEvent(fact, code.recorded(fact)))
        except Exception as error:
            events.append(NextEvent(fact, None, error))
            break
    return events
