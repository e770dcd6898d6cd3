"""Make .venv ready for `make test` or `make check`: once, from the locks, on a machine that has only Python.

Used as `python3 tools/setup_environment.py test|dev`. It needs nothing but the standard library, because it runs before
anything is installed. An environment that is already there is kept: only what the lock asks for and is missing or of
another version is installed. A stamp with the digest of the lock and of pyproject.toml makes the next call free.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
OLDEST_PYTHON = (3, 11)
# A dev environment can do all that a test environment can.
SATISFIED_BY = {"test": ("test", "dev"), "dev": ("dev",)}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in SATISFIED_BY:
        print("usage: setup_environment.py test|dev", file=sys.stderr)
        return 2
    kind = arguments[0]
    with one_at_a_time():
        if is_ready(kind):
            return 0
        print(f"setting up .venv from requirements/{kind}.txt", flush=True)
        if not PYTHON.exists():
            create_environment()
        installer = find_installer()
        run([*installer, "--require-hashes", "-r", str(lock(kind))])
        # The build tools are in the lock, so the build needs no isolated environment filled with unchecked downloads.
        run([*installer, "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
        stamp(kind).write_text(digest(kind), encoding="utf-8")
    return 0


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two calls of make at once must not install into one environment; this very file is the lock."""
    with Path(__file__).open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_ready(kind: str) -> bool:
    return PYTHON.exists() and any(
        stamp(other).exists() and stamp(other).read_text(encoding="utf-8") == digest(other)
        for other in SATISFIED_BY[kind]
    )


def lock(kind: str) -> Path:
    return ROOT / "requirements" / f"{kind}.txt"


def stamp(kind: str) -> Path:
    return ENVIRONMENT / f".holdfast-{kind}"


def digest(kind: str) -> str:
    content = lock(kind).read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    return hashlib.sha256(content).hexdigest()


def create_environment() -> None:
    """Create .venv with this Python; where Debian has split ensurepip off, uv does it."""
    has_ensurepip = importlib.util.find_spec("ensurepip") is not None
    uv = shutil.which("uv")
    if has_ensurepip and sys.version_info >= OLDEST_PYTHON:
        run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
    elif uv is not None:
        run([uv, "venv", "--quiet", "--python", ">=3.11", str(ENVIRONMENT)])
    else:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        sys.exit(
            f"setup: {sys.executable} cannot create an environment; Python {wanted} or later with ensurepip is needed. "
            "Install python3-venv or uv, or name another Python: make PYTHON=python3.12 test"
        )


def find_installer() -> list[str]:
    """Return the command that installs into .venv: its own pip, else uv."""
    has_pip = subprocess.run([str(PYTHON), "-c", "import pip"], capture_output=True, check=False).returncode == 0
    if has_pip:
        return [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    uv = shutil.which("uv") or (str(ENVIRONMENT / "bin" / "uv") if (ENVIRONMENT / "bin" / "uv").exists() else None)
    if uv is None:
        sys.exit("setup: .venv has no pip and uv is not on PATH; remove .venv and call make again")
    return [uv, "pip", "install", "--quiet", "--python", str(PYTHON)]


def run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(f"setup: {' '.join(command[:4])} … failed with exit code {done.returncode}; its words are above")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
