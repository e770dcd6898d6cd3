"""docs/bad-input.md and this folder say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "bad-input.md"


def names_of_tests_in(folder: Path) -> set[str]:
    return {
        node.name
        for path in folder.glob("test_*.py")
        if path.name != Path(__file__).name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_line_of_the_table_has_a_test_and_every_test_its_line() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "`test_" in line]
    named: dict[str, set[str]] = {}
    for line in lines:
        folder = re.search(r"`(tests/\w+)` `test_", line)
        named.setdefault(folder[1] if folder else "tests/badinput", set()).update(re.findall(r"`(test_\w+)`", line))
    assert named["tests/badinput"] == names_of_tests_in(ROOT / "tests" / "badinput")
    for folder_name, names in named.items():
        assert names <= names_of_tests_in(ROOT / folder_name), folder_name
