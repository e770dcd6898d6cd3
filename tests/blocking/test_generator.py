"""The generator: the committed file is what it would write, and --check notices when it is not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("ruff", reason="the generator formats with ruff, which the dev environment has")


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/generate_blocking.py", "--check"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_the_committed_module_is_current() -> None:
    done = check(ROOT)
    assert done.returncode == 0, done.stderr


def test_check_fails_and_says_what_to_do_when_the_engine_has_changed(tmp_path: Path) -> None:
    """A new call must not be missing from the blocking front, nor an old docstring stay."""
    for name in ("tools", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert check(tmp_path).returncode == 0
    engine = tmp_path / "src" / "holdfast" / "operating.py"
    text = engine.read_text(encoding="utf-8")
    engine.write_text(text.replace('"""Whether the store is healthy."""', '"""Its health."""'), encoding="utf-8")
    done = check(tmp_path)
    assert done.returncode == 1
    assert "Its health." in done.stderr
    assert "run: python tools/generate_blocking.py" in done.stderr
