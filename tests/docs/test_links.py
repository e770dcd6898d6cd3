"""A link leads somewhere, and a name that a page points at is in the file it points to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, documents, links

DOCUMENTS = documents()
_FIVE_FILES = ("engine.py", "coordinator.py", "models/dag.py", "store/sqlite.py", "runtime/worker.py")


def shown(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_every_relative_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    """Readers follow the path that a page promises."""
    dead = []
    for link in links(document):
        if link.target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.target.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            dead.append(str(link))
    assert not dead, "\n".join(dead)


@pytest.mark.parametrize("document", DOCUMENTS, ids=shown)
def test_a_name_in_a_link_is_defined_in_the_file_it_links_to(document: Path) -> None:
    """Code moves; a page that says where something is must move with it."""
    wrong = []
    for link in links(document):
        target = (document.parent / link.target.partition("#")[0]).resolve()
        name = re.fullmatch(r"`([A-Za-z_]\w*)`", link.text)
        if name and target.suffix == ".py" and name[1] not in _defined(target):
            wrong.append(str(link))
    assert not wrong, "\n".join(wrong)


def test_the_tour_passes_through_the_five_files() -> None:
    """A newcomer understands the engine from five files, and the tour leads through them."""
    targets = {link.target for link in links(ROOT / "docs" / "tour.md")}
    missing = [name for name in _FIVE_FILES if f"../src/holdfast/{name}" not in targets]
    assert not missing


def test_the_readme_leads_to_every_page_of_the_docs() -> None:
    """A page that nothing leads to is not read."""
    targets = {(ROOT / link.target.partition("#")[0]).resolve() for link in links(ROOT / "README.md")}
    pages = {page for page in (ROOT / "docs").glob("*.md")} | {ROOT / "docs" / "decisions" / "README.md"}
    assert not [shown(page) for page in sorted(pages - targets)]


def _anchors(document: Path) -> set[str]:
    """The headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _defined(source: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
