"""Listing and counting runs that are kept in memory, as the other stores do it in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from holdfast.core.rows import Run
from holdfast.core.stored import stored_tags
from holdfast.store.contract import NOT_COUNTED, FindRuns, ListRuns, RunMark


def found(runs: Iterable[Run], ask: FindRuns) -> list[Run]:
    """A listing by id, the greatest first."""
    meant = []
    for run in sorted(runs, key=lambda run: run.id, reverse=True):
        tags = stored_tags(run.tags)
        if (
            (ask.workflow is None or run.workflow == ask.workflow)
            and (ask.model is None or run.model == ask.model)
            and (ask.key_prefix is None or (run.key is not None and run.key.startswith(ask.key_prefix)))
            and (not ask.status or run.status in ask.status)
            and all(tags.get(name) == value for name, value in ask.tags)
            and (ask.since is None or run.created >= ask.since)
            and (ask.after is None or run.id < ask.after)
        ):
            meant.append(run)
    return meant[: ask.limit]


def listed(runs: Iterable[Run], ask: ListRuns) -> list[Run]:
    """A page, newest first."""
    meant = [run for run in runs if ask.matches(run, stored_tags(run.tags))]
    meant.sort(key=lambda run: (run.created, run.id), reverse=True)
    return [run for run in meant if ask.after is None or (run.created, run.id) < ask.after][: ask.limit]


def counted(runs: Iterable[Run], ask: ListRuns, most: int) -> dict[str, int]:
    """By status, at most so many of those that ended and of those that did not."""
    meant = [run for run in runs if ask.matches(run, stored_tags(run.tags))]
    ended = [run.status for run in meant if run.finished is not None]
    return dict(Counter([*[run.status for run in meant if run.finished is None][:most], *ended[:most]]))


def marks(
    runs: Collection[Run], most: int, ended_since: int, most_ended: int, leases: Mapping[str, int]
) -> list[RunMark]:
    """What changes of runs that go on, of the latest that ended since then, and of those whose leases are given."""
    ended = [run for run in runs if run.finished is not None and run.finished >= ended_since]
    ended.sort(key=lambda run: run.finished or 0, reverse=True)
    others = [*[run for run in runs if run.finished is None][:most], *ended[:most_ended]]
    return [
        *(RunMark(run.id, run.workflow, run.model, run.status, run.version, NOT_COUNTED) for run in others),
        *(
            RunMark(run.id, run.workflow, run.model, run.status, run.version, leases[run.id])
            for run in runs
            if run.id in leases
        ),
    ]
