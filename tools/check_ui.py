"""Check the committed page: it fits its manifest, and a rebuild from ui/ gives the same bytes.

The rebuild needs npm and an index to install from; where there is none, that part is left out and said to be, unless
--strict asks for it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from build_ui import BUILT, ROOT, SOURCES, build, manifest, npm


def differences(one: Path, other: Path) -> list[str]:
    """Files that only one of them has, or that differ."""
    names = {
        path.relative_to(folder).as_posix() for folder in (one, other) for path in folder.rglob("*") if path.is_file()
    }
    return [name for name in sorted(names) if _bytes(one / name) != _bytes(other / name)]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _missing() -> str:
    """What keeps us from rebuilding, if anything does."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    if "--keep-packages" in sys.argv and (SOURCES / "node_modules").is_dir():
        return ""
    try:
        npm("ci", "--ignore-scripts")
    except SystemExit as failed:
        return f"the packages in ui/package-lock.json could not be installed\n{str(failed)[:500]}"
    return ""


def main() -> None:
    shown = BUILT.relative_to(ROOT)
    if (BUILT / "manifest.json").read_text(encoding="utf-8") != manifest(BUILT):
        raise SystemExit(f"{shown} does not fit its manifest: run `python tools/build_ui.py`")
    missing = _missing()
    if missing and "--strict" in sys.argv:
        raise SystemExit(f"{shown} could not be rebuilt: {missing}")
    if missing:
        print(f"{shown} fits its manifest; it was not rebuilt: {missing}")
        return
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), install=False)
        different = differences(BUILT, Path(folder))
    if different:
        raise SystemExit(f"{shown} is not what ui/ gives: run `python tools/build_ui.py`\n  " + "\n  ".join(different))
    print(f"{shown} is what ui/ gives")


if __name__ == "__main__":
    main()
