"""What people do with the graph of a run: fork it, freeze it, take it out, put it back, and prove its order.

The graph of a run of a class is its code: what follows in a fork is for that to say, so it needs --app. A built DAG is
stored with its run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.failures import FAILED, NOT_FOUND, OK, USAGE, Failure
from holdfast.cli.finding import find_run
from holdfast.cli.graph_arguments import update_of
from holdfast.cli.options import Options, asynchronous, common_options, opened, operator, pass_options
from holdfast.cli.output import print_json, say
from holdfast.cli.start import note_missing_worker, print_started
from holdfast.documents.history_words import about

if TYPE_CHECKING:
    from holdfast.core.rows import Run
    from holdfast.engine import Engine

STANDARD = "-"


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--from", "from_node", metavar="NODE", help="Of a DAG: run this node, and what follows it, anew.")
@click.option("--step", type=click.IntRange(0), metavar="N", help="Of a state graph: go on after this step.")
@click.option("--label", metavar="TEXT", help="Of a state graph: go on after the latest step with this label.")
@click.option("--update", metavar="JSON", help='Of a state graph: fields to begin with, as in \'{"question": "why"}\'.')
@click.option("--key", metavar="TEXT", help="The key of the new run.")
@common_options
@pass_options
@asynchronous
async def fork(
    options: Options,
    run: str,
    from_node: str | None,
    step: int | None,
    label: str | None,
    update: str | None,
    key: str | None,
) -> None:
    """Make a new run that goes on where another one was.

    Of a DAG it shares what the other has completed, except the node that --from names and all that depends on it. Of a
    state graph it goes on from a checkpoint (`holdfast checkpoints` lists them; without --step and --label from the
    latest), with other values for the fields that --update names. Its id is printed. The other run stays as it is.
    """
    from holdfast.graph_reading import update_from_json

    fields: Mapping[str, Any] | None = None if update is None else update_of(update, run)
    async with opened(options) as engine:
        row = await find_run(engine, run)
        _check_place(row, from_node, step, label, update)
        fields = update_from_json(engine, row, fields)
        forked = await engine.fork(
            row.id, from_node=from_node, step=step, label=label, update=fields, key=key, by=operator()
        )
        (made,) = await engine.store.runs([forked.id])
        if not made.ended:
            await note_missing_worker(engine, made, " ".join(options.modules()) or "MODULE")
        begun = made.base if made.model == "graph" else None
        print_started(options, made, source=row.id, from_node=from_node, step=begun)


def _check_place(row: Run, from_node: str | None, step: int | None, label: str | None, update: str | None) -> None:
    if row.model == "graph" and from_node is not None:
        raise Failure(
            f"run {row.id} of {row.workflow} is a state graph, and --from is for DAGs",
            hint=f"say --step N or --label TEXT; `holdfast checkpoints {row.id}` lists them",
            code=USAGE,
        )
    if row.model == "dag" and from_node is None:
        what = next((name for name, given in (("--step", step), ("--label", label), ("--update", update)) if given), "")
        raise Failure(
            f"run {row.id} of {row.workflow} is a DAG" + (f", and {what} is for state graphs" if what else ""),
            hint=f"say from which node: --from NODE; `holdfast show {row.id}` lists them",
            code=USAGE,
        )


@click.command()
@click.argument("run", metavar="RUN")
@common_options
@pass_options
@asynchronous
async def freeze(options: Options, run: str) -> None:
    """Store a run's graph, so that deploys do not change it.

    It is the one that the run's class has now; from then on only `holdfast import` changes it. A built DAG is frozen
    from the start.
    """
    async with opened(options) as engine:
        row = await find_run(engine, run)
        stored = await engine.get(row.id).freeze_dag(by=operator())
    if options.as_json:
        print_json(
            {
                "run": row.id,
                "changed": row.definition is None,
                "signature": stored["signature"],
                "frozen_at": stored["frozen_at"],
                "nodes": len(stored["nodes"]),
            }
        )
        return
    was = "follows a stored graph" if row.definition is None else "was frozen already: it follows a stored graph"
    say(f"run {row.id} {was} of {_counted(len(stored['nodes']))}; `holdfast export` and `import` change it", "ok")


@click.command()
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of the standard output.")
@common_options
@pass_options
@asynchronous
async def export(options: Options, run: str, output: str | None) -> None:
    """Print a run's graph as a JSON document: structure, no state."""
    async with opened(options) as engine:
        row = await find_run(engine, run)
        text = await engine.get(row.id).export_dag()
    if output is None or output == STANDARD:
        click.echo(text)
        return
    _write(output, text)
    count = len(json.loads(text)["nodes"])
    if options.as_json:
        print_json({"run": row.id, "file": output, "nodes": count})
    else:
        say(f"{_counted(count)} written to {output}; after a change: holdfast import {row.id} {output}", "ok")


@click.command("import")
@click.argument("run", metavar="RUN")
@click.argument("file", metavar="FILE")
@common_options
@pass_options
@asynchronous
async def import_dag(options: Options, run: str, file: str) -> None:
    """Let a run follow an exported and edited graph from now on.

    FILE may be - for the standard input. Refused, with nothing changed, unless it is a valid DAG that keeps every
    node that has completed or is running, and was exported from the graph as it is now.
    """
    from holdfast.core.errors import DagError

    text = _read(file)
    async with opened(options) as engine:
        row = await find_run(engine, run)
        try:
            await engine.get(row.id).import_dag(text, by=operator())
        except DagError as error:
            if not options.modules() and "known here" in error.message:  # nothing is, without --app
                raise DagError(error.message, hint=f"say --app with the module that defines it; {error.hint}") from None
            raise
        (now,) = await engine.store.runs([row.id])
        changed = now.definition != row.definition
        told = await _what_changed(engine, row.id, row.entries) if changed else {}
        graph = await engine.get(row.id).dag()
    if options.as_json:
        print_json(
            {
                "run": row.id,
                "changed": changed,
                "status": now.status,
                "signature": graph.signature,
                "nodes": len(graph),
                "not_begun": told.get("not_begun", []),
                "skipped": told.get("skipped", []),
            }
        )
        return
    if not changed:
        say(f"run {row.id} follows this very graph already")
        return
    details = f": {about('graph changed', told)}" if told else ""
    say(f"run {row.id} follows the imported graph of {_counted(len(graph))} now{details}", "ok")


@click.command()
@click.argument("run", metavar="RUN")
@common_options
@pass_options
@asynchronous
async def verify(options: Options, run: str) -> int:
    """Check that a run is as it was recorded; exit code 1 if not.

    Every attempt carries a hash of the very attempts of its parents that it followed; all of them are recomputed.
    """
    async with opened(options) as engine:
        row = await find_run(engine, run)
        report = await engine.get(row.id).verify_ancestry()
    if options.as_json:
        print_json({"run": row.id, "ok": report.ok, "checked": report.checked, "first_break": report.first_break})
    elif report.ok:
        attempts = "1 attempt was" if report.checked == 1 else f"{report.checked:,} attempts were"
        say(f"run {row.id} is as it was recorded: {attempts} checked", "ok")
    else:
        say(f"run {row.id} was tampered with: {report.first_break}", "error")
    return OK if report.ok else FAILED


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}", hint="name another file", code=FAILED) from error


def _read(file: str) -> str:
    if file == STANDARD:
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise Failure(
            f"there is no file {file}", hint="`holdfast export RUN -o FILE` writes one", code=NOT_FOUND
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Failure(f"{file} cannot be read: {reason}", hint="name a file in UTF-8", code=FAILED) from error


async def _what_changed(engine: Engine, run: str, entries: int) -> dict[str, Any]:
    for entry in await engine.get(run).history():
        if entry.sequence > entries and entry.kind == "graph changed":
            return entry.data
    return {}


def _counted(nodes: int) -> str:
    return f"{nodes:,} node{'' if nodes == 1 else 's'}"
