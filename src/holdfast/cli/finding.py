"""From what a person types to a run: a full id, the beginning of one, or WORKFLOW/KEY."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.cli.failures import NOT_FOUND, USAGE, Failure

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.engine import Engine

SHORTEST_PREFIX: Final = 4
AFTER_EVERY_ID: Final = "g"  # ids are lower-case hex and dashes, so this sorts after all that begin with a prefix
SHOWN_CANDIDATES: Final = 5
GUESSED_AMONG: Final = 1000


async def find_run(engine: Engine, text: str) -> Run:
    """The one run that the text names; a Failure with the candidates otherwise."""
    exact = await engine.store.runs([text])
    if exact:
        return exact[0]
    if "/" in text:
        return await _by_key(engine, text)
    return await _by_prefix(engine, text)


async def _by_key(engine: Engine, text: str) -> Run:
    from holdfast.core.queries import RunByKey

    # Names and keys may hold slashes themselves: whichever split finds a run is the one that was meant.
    parts = text.split("/")
    for size in range(1, len(parts)):
        workflow, key = "/".join(parts[:size]), "/".join(parts[size:])
        found: list[Run] = await engine.store.rows(RunByKey(workflow, key))
        if found:
            return found[0]
    workflow, _, key = text.partition("/")
    raise Failure(
        f"there is no run of {workflow} with the key {key!r}",
        hint=f"`holdfast runs --workflow {workflow}` lists those that there are",
        code=NOT_FOUND,
    )


async def _guess_by_key(engine: Engine, text: str) -> str:
    """A key without its workflow is what people type first. Only the newest runs are looked at: it is a guess."""
    from holdfast.store.contract import ListRuns

    rows = await engine.store.list_runs(ListRuns(limit=GUESSED_AMONG))
    names = list(dict.fromkeys(f"{row.workflow}/{row.key}" for row in rows if row.key == text))
    return f"did you mean {' or '.join(names[:SHOWN_CANDIDATES])}? " if text and names else ""


async def _by_prefix(engine: Engine, text: str) -> Run:
    from holdfast.store.contract import FindRuns

    prefix = text.lower()
    if len(prefix) < SHORTEST_PREFIX or not set(prefix) <= set("0123456789abcdef-"):
        guess = await _guess_by_key(engine, text)
        raise Failure(
            f"there is no run {text!r}",
            hint=f"{guess}give an id, at least {SHORTEST_PREFIX} characters of its beginning, or WORKFLOW/KEY; "
            "`holdfast runs` lists them",
            code=NOT_FOUND,
        )
    rows = await engine.store.find(FindRuns(after=prefix + AFTER_EVERY_ID, limit=SHOWN_CANDIDATES + 1))
    matching = [row for row in rows if row.id.startswith(prefix)]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        guess = await _guess_by_key(engine, text)
        raise Failure(
            f"no run's id begins with {text}",
            hint=f"{guess}`holdfast runs` lists the runs of this database",
            code=NOT_FOUND,
        )
    more = ", ..." if len(matching) > SHOWN_CANDIDATES else ""
    raise Failure(
        f"more than one run's id begins with {text}",
        hint=f"it could be {', '.join(row.id for row in matching[:SHOWN_CANDIDATES])}{more}",
        code=USAGE,
    )
