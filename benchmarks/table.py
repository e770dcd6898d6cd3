"""The report for people."""

from __future__ import annotations

from benchmarks.figures import Figure

HEADINGS = ("", "what", "store", "median", "unit", "spread", "x limit", "target", "x target")


def rendered(figures: list[Figure]) -> str:
    """One line a figure. `x limit`: times what the bare database needs; `x target`: 1 or less meets it."""
    rows = [HEADINGS, *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(_aligned(cell, width, column) for column, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.measure.name,
        figure.measure.what,
        figure.store,
        _number(figure.median),
        figure.measure.unit,
        f"{figure.spread:.0%}",
        "" if figure.times_the_limit is None else f"{figure.times_the_limit:.1f}",
        "" if figure.target is None else _number(figure.target),
        "" if figure.times_the_target is None else f"{figure.times_the_target:.2f}",
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column in (0, 1, 2, 4) else cell.rjust(width)
