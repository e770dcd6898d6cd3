"""The project's own files, parsed once, for the tests that read code instead of running it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "holdfast"


class Source(NamedTuple):
    """A parsed module of the package."""

    path: Path
    module: str
    tree: ast.Module

    @property
    def shown(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


class Import(NamedTuple):
    """An absolute module name that a source imports, and where."""

    module: str
    line: int


@functools.cache
def package_sources() -> tuple[Source, ...]:
    return tuple(
        Source(path, _module_name(path), ast.parse(path.read_text(encoding="utf-8"), str(path)))
        for path in sorted(PACKAGE.rglob("*.py"))
    )


def below(*parts: str) -> list[Source]:
    """Return the sources of these parts of the package: "core" is core.py and everything in core/."""
    return [source for source in package_sources() if part_of(source.module) in parts]


def part_of(module: str) -> str:
    """Return the first name below the package; "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports_of(source: Source) -> Iterator[Import]:
    """Yield every import, those in functions and under TYPE_CHECKING too: each is a dependency of the design."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute_base(source, node)
            # `from holdfast import engine` names a module in the list, not before it.
            yield from (Import(f"{base}.{alias.name}", node.lineno) for alias in node.names)


def _absolute_base(source: Source, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parents = source.module.split(".")
    depth = node.level - 1 if source.is_package else node.level
    base = parents[: len(parents) - depth]
    return ".".join([*base, *([node.module] if node.module else [])])


def _module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
