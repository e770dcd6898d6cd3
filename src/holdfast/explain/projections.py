"""A projection in sentences: who owns it, how far it is behind, and what to do when it stopped at an event."""

from __future__ import annotations

import msgspec

from holdfast.core.codec import decode_error
from holdfast.core.projection_operations import sources_of
from holdfast.core.rows import CANCELLED, FAILED, LEASED, PAUSED, READY, Run, Work
from holdfast.explain.reason import Fix, Reason, fix
from holdfast.explain.situation import Situation
from holdfast.explain.words import brief, clock, span
from holdfast.models.projection import failed_place
from holdfast.store.contract import Store

HELD_BACK_SECONDS = 10.0
REBUILT, SKIPPED_EVENT = "rebuilt", "event skipped"  # entries of its history


class Behind(msgspec.Struct, frozen=True):
    """How many events a projection has before it, since when, and for how long newer ones are kept from all."""

    events: int
    oldest_at: int | None
    held_back_seconds: float


async def behind(store: Store, s: Situation) -> Behind:
    found = s.definitions.projections().get(s.run.workflow)
    sources = sources_of(s.run) if found is None else found.sources
    lags = [await store.stream_lag(source, s.run.base) for source in sources]
    oldest = min((lag.oldest_at for lag in lags if lag.oldest_at is not None), default=None)
    return Behind(sum(lag.events for lag in lags), oldest, await store.horizon_age())


async def passed_over(store: Store, run: Run) -> int:
    """How many events people have told it to go on without, since it was last built anew."""
    kinds = [entry.kind for entry in await store.history(run.id)] if run.entries else []
    begin = len(kinds) - kinds[::-1].index(REBUILT) if REBUILT in kinds else 0
    return kinds[begin:].count(SKIPPED_EVENT)


def without(count: int) -> str:
    """What was passed over, for the end of a summary: what it has built lacks these events."""
    return f". {'1 event was' if count == 1 else f'{count:,} events were'} passed over" if count else ""


def summary(s: Situation, lag: Behind) -> str:
    """Where it stands, in one sentence."""
    name, item = s.run.key or s.run.workflow, _item(s)
    at = f"at position {s.run.base:,}, {_distance(s, lag)}"
    if s.run.status == CANCELLED:
        return f"projection {name} was cancelled {at}. It never changes again"
    if s.run.status == FAILED:
        return f"{brief(s.run.reason or 'it failed', 800)}. It stands {at}"
    if s.run.status == PAUSED:
        return f"projection {name} is {s.run.reason or PAUSED} (since {clock(s.paused_at)}). It stands {at}"
    if item is not None and item.status == LEASED:
        return f"projection {name} is owned by worker {item.worker} and stands {at}"
    if item is not None and item.failures:
        return f"projection {name} waits to try an event again and stands {at}"
    return f"projection {name} waits for a worker to own it and stands {at}"


def reasons(s: Situation, lag: Behind) -> list[Reason]:
    """What keeps it from going on, apart from what keeps any work from being claimed."""
    told = []
    item, name = _item(s), s.run.key or s.run.workflow
    place = None if item is None else failed_place(item)
    if item is not None and item.failures and item.status == READY and place is not None and item.error is not None:
        error = decode_error(item.error)
        told.append(
            Reason(
                f"it could not take {place}, {_times(item.failures)}: {error.type}: {brief(error.message)}; it tries "
                f"again at {clock(item.due)}",
                (_skip(name),),
            )
        )
    if s.run.status == FAILED:
        told.append(
            Reason("", (fix("to try that event again, after a fix", "projections", "retry", name), _skip(name)))
        )
        told.append(Reason("", (fix("to see where the error comes from", "show", s.run.id, "--traceback"),)))
    if s.run.status == PAUSED:
        told.append(Reason("", (fix("to let it go on", "projections", "resume", name),)))
    if lag.held_back_seconds > HELD_BACK_SECONDS:
        told.append(
            Reason(
                f"a transaction that has written is open for {lag.held_back_seconds:.0f} s, and no projection sees "
                "newer events until it ends",
                (fix("to see which one", "doctor"),),
            )
        )
    return told


def _skip(name: str) -> Fix:
    return fix("to go on without that event", "projections", "skip", name)


def _times(failures: int) -> str:
    return "once" if failures == 1 else f"{failures} times in a row"


def _distance(s: Situation, lag: Behind) -> str:
    if not lag.events:
        return "behind nothing: it has taken every event"
    since = "" if lag.oldest_at is None else f", the oldest of which was recorded {span(s.now - lag.oldest_at)} ago"
    return f"with {lag.events:,} event{'' if lag.events == 1 else 's'} before it{since}"


def _item(s: Situation) -> Work | None:
    return s.work[0] if s.work else None
