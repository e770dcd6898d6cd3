"""Build the page: `python tools/build_ui.py` makes src/holdfast/web/_ui from ui/, with a manifest; needs Node and npm.

The same sources give the same files: names have a hash of what is in them, and nothing has a date. `tools/check_ui.py`
holds what is committed against a new build.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "ui"
BUILT = ROOT / "src" / "holdfast" / "web" / "_ui"
# What is in the bundle and not ours: its licences go along.
BUNDLED = ("preact", "@dagrejs/dagre")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


def build(into: Path, *, install: bool = True) -> None:
    """Build the page into a directory, which is emptied first."""
    if install or not (SOURCES / "node_modules").is_dir():
        # No script of a package runs; the lock's hashes decide what is taken, from whichever index this machine uses.
        npm("ci", "--ignore-scripts")
    npm("run", "check")
    npm(
        "exec", "--", "vite", "build", "--outDir", os.path.relpath(into, SOURCES), "--emptyOutDir", "--logLevel", "warn"
    )
    (into / "licenses.txt").write_text(licenses(), encoding="utf-8")
    (into / "manifest.json").write_text(manifest(into), encoding="utf-8")


def npm(*arguments: str) -> None:
    done = subprocess.run(["npm", *arguments], cwd=SOURCES, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"npm {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def licenses() -> str:
    parts = []
    for name in BUNDLED:
        folder = SOURCES / "node_modules" / name
        version = json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"]
        parts.append(f"{name} {version}\n\n{(folder / 'LICENSE').read_text(encoding='utf-8').strip()}\n")
    return "\n---\n\n".join(parts)


def manifest(folder: Path) -> str:
    """Every file with its size, type and hash: what the server may serve, and what a rebuild must give."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "manifest.json":
            data = path.read_bytes()
            files[path.relative_to(folder).as_posix()] = {
                "sha256": hashlib.sha256(data).hexdigest(),
                "bytes": len(data),
                "type": TYPES[path.suffix],
            }
    return json.dumps({"files": files}, indent=2) + "\n"


def main() -> None:
    if shutil.which("npm") is None:
        raise SystemExit("npm is not installed: the page that is committed is used as it is")
    build(BUILT, install="--keep-packages" not in sys.argv)
    total = sum(path.stat().st_size for path in BUILT.rglob("*") if path.is_file())
    print(f"built {BUILT.relative_to(ROOT)}: {total / 1024:.0f} kB")


if __name__ == "__main__":
    main()
