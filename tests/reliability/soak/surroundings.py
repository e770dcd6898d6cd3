"""What the machine lets us do to it: a disk of our own that can be filled, and a library that fakes the time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FAKETIME_VARIABLE = "FAKETIME_LIBRARY"
_FAKETIME_PLACES = ("usr/lib/x86_64-linux-gnu/faketime", "usr/lib/aarch64-linux-gnu/faketime", "usr/lib/faketime")
KEEP_FREE = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """Where the server's data is. `why_not` says why it cannot be filled, if it cannot."""

    folder: Path
    why_not: str = ""

    def fill(self) -> None:
        """Leave no byte free."""
        with contextlib.suppress(OSError), self._ballast.open("wb") as file:
            room = os.statvfs(self.folder)
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
            while True:
                os.write(file.fileno(), bytes(4096))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@contextlib.contextmanager
def small_disk(megabytes: int) -> Iterator[Disk]:
    """A disk of this size in memory, if we may mount one; else a folder on the disk that there is."""
    folder = Path(tempfile.mkdtemp(prefix="hf-soak-"))
    folder.chmod(0o711)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m,mode=0711", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True, text=True)
        why_not = "" if mounted.returncode == 0 else mounted.stderr.strip() or "mount failed"
    except FileNotFoundError:
        why_not = "there is no program mount"
    try:
        yield Disk(folder, f"a small disk cannot be mounted here ({why_not})" if why_not else "")
    finally:
        if not why_not:
            subprocess.run(["umount", "-l", str(folder)], check=False)
        with contextlib.suppress(OSError):
            folder.rmdir()


def faketime_environment(skew_seconds: float) -> dict[str, str]:
    """What makes a process believe in another time; empty where the library is missing."""
    library = _faketime_library()
    if library is None:
        return {}
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{skew_seconds:+g}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def _faketime_library() -> Path | None:
    named = os.environ.get(FAKETIME_VARIABLE)
    places = [Path(named)] if named else [Path(os.sep) / place / "libfaketime.so.1" for place in _FAKETIME_PLACES]
    return next((place for place in places if place.exists()), None)
