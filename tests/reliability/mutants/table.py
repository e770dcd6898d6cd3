"""The table of mutants in docs/reliability.md: made from the catalogue, so that the page cannot lag behind."""

from __future__ import annotations

from tests.reliability.mutants.catalogue import numbered
from tests.reliability.mutants.mutant import ROOT

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->\n"


def table() -> str:
    """One line for a mutant: its number, what the bug is, which promises it would break, where it is put."""
    lines = ["| | area | the bug | breaks | where |", "|--:|---|---|---|---|"]
    for number, each in numbered().items():
        files = ", ".join(sorted({f"`{edit.file}`" for edit in each.edits}))
        lines.append(f"| {number} | {each.area} | {each.bug} | {each.promises} | {files} |")
    return "\n".join(lines) + "\n"


def table_on_page() -> str:
    """What the page has between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition(END)[0]


def write_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} has no place for the table: add the two lines\n{BEGIN}{END}")
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}", encoding="utf-8")
