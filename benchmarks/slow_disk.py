"""A disk that takes longer to sync, as a cloud's does: for the server, and for SQLite in our process or in a peer's.

PostgreSQL's setting commit_delay does not do this: it waits only when other sessions commit at the same moment. So the
delay is where the disk is: a small library, preloaded into whatever syncs, that sleeps after each fsync and fdatasync.
Reads, and commits that share a sync, are as fast as ever. Needs a C compiler, and a system that knows LD_PRELOAD.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("slow_disk.c")


class NoSlowDisk(Exception):
    """This machine cannot have one; the message says why."""


def why_not() -> str | None:
    """The reason why this machine cannot have a slow disk, if there is one."""
    if not sys.platform.startswith("linux"):
        return "a slow disk is preloaded into programs, which is done for Linux only"
    if _compiler() is None:
        return "a slow disk is a small C library, and neither cc, gcc nor clang is on PATH; install one of them"
    return None


def _compiler() -> str | None:
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


@contextmanager
def slow_disk(delay_ms: float) -> Iterator[dict[str, str]]:
    """The environment for programs whose syncs take this much longer; empty when nothing is to be delayed."""
    if delay_ms <= 0:
        yield {}
        return
    reason = why_not()
    compiler = _compiler()
    if reason is not None or compiler is None:
        raise NoSlowDisk(reason)
    with tempfile.TemporaryDirectory(prefix="hf-slow-disk-") as directory:
        # The account that runs PostgreSQL must be able to read it.
        os.chmod(directory, 0o755)  # noqa: S103
        library = Path(directory, "slow_disk.so")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
        library.chmod(0o755)
        yield {"LD_PRELOAD": str(library), "SYNC_DELAY_US": str(round(delay_ms * 1000))}


@contextmanager
def in_environment(variables: dict[str, str]) -> Iterator[None]:
    """Programs that are started inside of this get these variables as well."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
