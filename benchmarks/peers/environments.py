"""The peers' virtual environments: `python -m benchmarks.peers.environments [NAME …]` makes what is missing.

Each is its own, below `.cache/peers` (or PEER_ENVIRONMENTS), from the versions in `requirements/NAME.txt`. A changed
list makes the environment anew. To move a peer to another version, change its list and measure again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = Path(os.environ.get("PEER_ENVIRONMENTS", ROOT / ".cache" / "peers"))
REQUIREMENTS = Path(__file__).with_name("requirements")
NAMES = tuple(sorted(path.stem for path in REQUIREMENTS.glob("*.txt")))


class NoEnvironment(Exception):
    """A peer cannot be installed here; the message holds the installer's last words."""


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is missing or of other versions."""
    wanted = REQUIREMENTS / f"{name}.txt"
    directory = ENVIRONMENTS / name
    python = directory / "bin" / "python"
    stamp = directory / "requirements.sha256"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == digest:
        return python
    if directory.is_symlink():
        directory.unlink()
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    # uv beside our own interpreter or on PATH takes seconds where pip takes minutes.
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is not None:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(directory)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(wanted)])
    else:
        _run([sys.executable, "-m", "venv", str(directory)])
        _run([str(python), "-m", "pip", "install", "--quiet", "-r", str(wanted)])
    _run([str(python), "-m", "compileall", "-q", str(directory / "lib")], may_fail=True)
    stamp.write_text(digest)
    return python


def version_of(name: str, package: str) -> str:
    """The version of a package as the peer's list has it."""
    for line in (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        found, _, version = line.partition("==")
        if found.strip() == package:
            return version.strip()
    return "unknown"


def _run(command: list[str], *, may_fail: bool = False) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        words = " ".join((done.stderr or done.stdout).split())
        raise NoEnvironment(f"{Path(command[0]).name} failed: {words[-300:]}")


if __name__ == "__main__":
    for each in sys.argv[1:] or NAMES:
        print(each, python_of(each), flush=True)
