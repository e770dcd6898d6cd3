"""The report for people."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Figure
from benchmarks.rounds import Failure

HEADINGS = ("", "what", "store", "median", "unit", "spread", "x limit", "x best peer", "target", "x target")
LEFT = (0, 1, 2, 4)


def rendered(figures: Sequence[Figure]) -> str:
    """One line a figure.

    `x limit`: times what the bare database needs. `x best peer`: how many times better than the best of the others.
    `x target`: 1 or less meets it.
    """
    return aligned([HEADINGS, *(_cells(figure, figures) for figure in figures)])


def rendered_failures(failures: Sequence[Failure]) -> str:
    return "\n".join(
        f"no figure: {each.workload} of {each.who} on {each.store}, round {each.round}: {each.reason}"
        for each in failures
    )


def rendered_notes(figures: Sequence[Figure]) -> str:
    """What has to be known about the peers' figures."""
    notes = {f"{each.who} {each.measure.name}, {each.store}: {each.note}" for each in figures if each.note}
    return "\n".join(sorted(notes))


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = LEFT) -> str:
    """Columns of text, under a heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(len(line) for line in lines), *lines[1:]])


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cells(figure: Figure, figures: Sequence[Figure]) -> tuple[str, ...]:
    peer = figure.best_peer(figures)
    better = figure.better_than(peer) if peer is not None else None
    return (
        figure.measure.name,
        figure.measure.what,
        figure.store,
        number(figure.median),
        figure.measure.unit,
        f"{figure.spread:.0%}",
        "" if figure.times_the_limit is None else f"{figure.times_the_limit:.1f}",
        "" if peer is None or better is None else f"{better:.1f} {peer.who}",
        "" if figure.target is None else number(figure.target),
        "" if figure.times_the_target is None else f"{figure.times_the_target:.2f}",
    )
