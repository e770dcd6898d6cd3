"""`holdfast check`: before a deploy, every open run against the new code.

The work is done in a child process with another PYTHONHASHSEED: code that goes through a set of texts, or depends on
hashes in another way, takes another order there, and the history shows it before a crash in production would. The
child writes a line for each run behind a mark, so that what modules print while they are imported is not taken for one.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from holdfast.cli.failures import FAILED, NOT_FOUND, OK, USAGE, Failure, failure_of, note
from holdfast.cli.options import Options, common_options, opened, pass_options
from holdfast.cli.output import print_json, progress, say

if TYPE_CHECKING:
    from holdfast.engine import Engine

MARK: Final = "\x1e"
SHOWN: Final = 50
PAGE: Final = 1000
SEEDS: Final = 2**32 - 1
COLOURS: Final = {"changes": "warning", "breaks": "error"}


@click.command()
@click.argument("modules", nargs=-1, metavar="MODULE...")
@click.option("--workflow", "workflows", multiple=True, metavar="NAME", help="Only runs of this one (repeatable).")
@click.option("--hash-seed", type=click.IntRange(0, SEEDS), metavar="N", help="Repeat a check under the seed it told.")
@click.option("--as-child", is_flag=True, hidden=True)
@common_options
@pass_options
def check(
    options: Options, modules: tuple[str, ...], workflows: tuple[str, ...], hash_seed: int | None, as_child: bool
) -> int:
    """Check open runs against new code; exit code 1 if one would break.

    Run it with the code that is about to be deployed: the history of every open function is replayed against what
    MODULE defines, up to where it is now. Of a DAG it is told what would change; the fields of a class, and what an
    action was started with, must be readable. Of a decider, an event of every stored type and version is read,
    instances are folded, and pending effects, timers and inputs must be of types that the code has: a sample of them,
    where there are very many. Of a state graph's run the nodes of the step under way and its state must fit the code.
    Nothing is started or changed.
    It runs in a process with another PYTHONHASHSEED, so that code which depends on the order of a set is found out.
    """
    names = (*modules, *options.modules())
    if not names:
        raise Failure(
            "no module is named", hint="name those that are to be deployed: holdfast check app.workflows", code=USAGE
        )
    if as_child:
        asyncio.run(_be_child(options, names, workflows))
        return OK
    seed = _another_seed() if hash_seed is None else hash_seed
    return _report(options, seed, _ask_child(options, names, workflows, seed))


# -- the parent


def _another_seed() -> int:
    seed = 1 + secrets.randbelow(SEEDS - 1)
    return seed + 1 if str(seed) == os.environ.get("PYTHONHASHSEED") else seed


def _ask_child(options: Options, names: Sequence[str], workflows: Sequence[str], seed: int) -> Iterator[dict[str, Any]]:
    """The lines of the child, one by one. Its own errors are on stderr already, or are raised here."""
    package = str(Path(__file__).resolve().parents[2])
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(seed),
        "PYTHONPATH": os.pathsep.join([*places, *([] if package in places else [package])]),
        "HOLDFAST_URL": options.database,  # and not on its line, where everybody could read a password
    }
    wanted = [word for name in workflows for word in ("--workflow", name)]
    command = [sys.executable, "-m", "holdfast", "check", "--as-child", *wanted, "--", *names]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8") as child:
        try:
            for line in child.stdout or ():
                if line.startswith(MARK):
                    yield json.loads(line[1:])
                elif line.strip():
                    click.echo(line, nl=False, err=True)
        finally:
            if child.poll() is None and sys.exc_info()[0] is not None:
                child.terminate()
    if child.returncode != 0:
        raise Failure(
            f"the process that checks ended with {child.returncode}",
            hint=f"see what it wrote; under the same hash seed again: --hash-seed {seed}",
            code=FAILED,
        )


def _report(options: Options, seed: int, lines: Iterator[dict[str, Any]]) -> int:
    first = next(lines, {})
    if "failure" in first:
        raise Failure(first["failure"]["message"], hint=first["failure"]["hint"], code=first["failure"]["code"])
    checked: list[dict[str, Any]] = []
    with progress("checking", first.get("open", 0)) as bar:
        for line in lines:
            if "failure" in line:
                raise Failure(line["failure"]["message"], hint=line["failure"]["hint"], code=line["failure"]["code"])
            checked.append(line)
            bar.advance_to(len(checked))
    counted = Counter(each["verdict"] for each in checked)
    if options.as_json:
        print_json(
            {
                "ok": not counted["breaks"],
                "hash_seed": seed,
                "fine": counted["fine"],
                "changes": counted["changes"],
                "breaks": counted["breaks"],
                "runs": checked,
                "not_checked": first.get("others", {}),
            }
        )
    else:
        _print(checked, counted, seed, first.get("others", {}))
    return FAILED if counted["breaks"] else OK


def _print(checked: list[dict[str, Any]], counted: Counter[str], seed: int, others: dict[str, int]) -> None:
    for verdict in ("changes", "breaks"):  # what is worse is nearer to the end, where people look
        found = [each for each in checked if each["verdict"] == verdict]
        for each in found[:SHOWN]:
            subject = f"run {each['run']} of {each['workflow']}"
            if each["what"] == "decider":
                subject = f"decider {each['workflow']} (see run {each['run']})"
            elif each["what"] == "graph":
                subject = f"graph {each['workflow']}"
            say(f"{verdict.ljust(7)}  {subject}: {each['difference']}", COLOURS[verdict])
        if len(found) > SHOWN:
            say(f"{verdict.ljust(7)}  and {len(found) - SHOWN:,} more: --json has all", COLOURS[verdict])
    if others:
        shown = ", ".join(f"{name} ({count:,})" for name, count in sorted(others.items())[:SHOWN])
        note(f"open runs of workflows that these modules do not define were not checked: {shown}")
    if not any(each["what"] != "graph" for each in checked):
        say("there are no open runs to check", "error" if checked else "ok")
        return
    status = "error" if counted["breaks"] else "ok"
    deciders = [each for each in checked if each["what"] == "decider"]
    if deciders:
        names = len({each["workflow"] for each in deciders})
        say(f"{names:,} decider{'' if names == 1 else 's'} checked: {_problems(deciders)}", status)
    runs = [each for each in checked if each["what"] == "run"]
    if runs:
        of_runs = Counter(each["verdict"] for each in runs)
        verdicts = ", ".join(
            f"{of_runs[name]:,} {words}"
            for name, words in (("fine", "fine"), ("changes", "with changes"), ("breaks", "would break"))
            if of_runs[name]
        )
        say(f"{len(runs):,} open run{'' if len(runs) == 1 else 's'} checked under hash seed {seed}: {verdicts}", status)


def _problems(deciders: list[dict[str, Any]]) -> str:
    """Of a decider each line is one thing that is wrong with it, and not an instance."""
    breaks, changes = (sum(each["verdict"] == verdict for each in deciders) for verdict in ("breaks", "changes"))
    words = [
        *([f"{breaks:,} problem{'' if breaks == 1 else 's'} that would break instances"] if breaks else []),
        *([f"{changes:,} thing{'' if changes == 1 else 's'} that would change"] if changes else []),
    ]
    return ", ".join(words) or "this code understands what is stored"


# -- the child


async def _be_child(options: Options, names: Sequence[str], workflows: Sequence[str]) -> None:
    from holdfast.cli.loading import load_modules

    try:
        load_modules(names)
        async with opened(options) as engine:
            await _check(engine, workflows)
    except Exception as error:
        failure = failure_of(error)
        _tell({"failure": {"message": failure.message, "hint": failure.hint, "code": failure.code}})


async def _check(engine: Engine, workflows: Sequence[str]) -> None:
    from holdfast.checking import check_runs
    from holdfast.core.graph import known_names

    known = set(engine.registry.known_workflows())
    for name in workflows:
        if name not in known:
            raise Failure(
                f"the modules define no workflow {name!r}", hint=known_names(name, sorted(known)), code=NOT_FOUND
            )
    wanted = set(workflows) or known
    counted = await _open_runs(engine)
    others = {} if workflows else {name: count for name, count in counted.items() if name not in known}
    # Of a decider one line is told, however many instances it has.
    expected = sum(counted[name] if engine.definitions.decider(name) is None else 1 for name in wanted)
    _tell({"open": expected, "others": others})
    async for checked in check_runs(engine, sorted(wanted)):
        _tell(msgspec.structs.asdict(checked))


async def _open_runs(engine: Engine) -> Counter[str]:
    from holdfast.checking import OPEN
    from holdfast.store.contract import FindRuns

    counted: Counter[str] = Counter()
    after: str | None = None
    while True:
        rows = await engine.store.find(FindRuns(status=OPEN, limit=PAGE, after=after))
        counted.update(row.workflow for row in rows)
        if len(rows) < PAGE:
            return counted
        after = rows[-1].id


def _tell(line: dict[str, Any]) -> None:
    # A line of its own, also where a module has printed something without ending it.
    sys.stdout.write(f"\n{MARK}{json.dumps(line)}\n")
    sys.stdout.flush()


__all__ = ["check"]
