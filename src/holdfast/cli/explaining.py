"""`holdfast explain`: why a run is where it is, with commands that work when they are pasted."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.finding import find_run
from holdfast.cli.options import Options, asynchronous, common_options, opened, pass_options
from holdfast.cli.output import paragraph, print_json, say

if TYPE_CHECKING:
    from holdfast.explain import Explanation

PROGRAM: Final = re.compile(r"(?:^|(?<=&& ))holdfast ")


@click.command()
@click.argument("run", metavar="RUN")
@common_options
@pass_options
@asynchronous
async def explain(options: Options, run: str) -> None:
    """Say why a run is where it is, and what would move it."""
    async with opened(options) as engine:
        row = await find_run(engine, run)
        explanation = for_this_database(await engine.get(row.id).explain(), options)
    if options.as_json:
        print_json(explanation)
        return
    paragraph(explanation.summary, status=explanation.status)
    for reason in explanation.reasons:
        paragraph(reason, start="  - ")
    for fix in explanation.fixes:
        paragraph(f"{fix.purpose}:", start="  ")
        say(f"      {fix.command}", "running")  # never wrapped: it is to be copied


def for_this_database(explanation: Explanation, options: Options) -> Explanation:
    """With --url in every command if it was said here: without it they would look at another database."""
    from msgspec.structs import replace

    from holdfast.runtime.stores import redacted

    # A password belongs into no text that is copied; whoever typed it has to type it again.
    if options.url is None or redacted(options.url) != options.url:
        return explanation
    said = f"holdfast --url {shlex.quote(options.url)} "
    fixes = tuple(replace(fix, command=PROGRAM.sub(lambda _: said, fix.command)) for fix in explanation.fixes)
    return replace(explanation, fixes=fixes)
