"""Modules that the command line cannot import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("content", "code", "named"),
    [
        ("import holdfast\n\nholdfast.no_such_thing()\n", 2, "broken.py:3"),
        ("def half(:\n", 2, "broken.py:1"),
        ("import not_installed_anywhere\n", 2, "not_installed_anywhere"),
        (None, 3, "'broken'"),
    ],
)
def test_a_module_that_fails_to_import_is_named_with_the_line_at_fault(
    tmp_path: Path, content: str | None, code: int, named: str
) -> None:
    if content is not None:
        (tmp_path / "broken.py").write_text(content)
    command = [sys.executable, "-m", "holdfast", "worker", "broken"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert "holdfast.db" not in [path.name for path in tmp_path.iterdir()]
