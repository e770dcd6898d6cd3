"""W9: how soon a program that uses Holdfast is there, and how much it weighs when it does nothing."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import psutil

from benchmarks.measures import POSTGRES

HELLO = Path(__file__).with_name("hello.py")
# Names are found when first used, so a bare `import holdfast` would say little: use what every program uses.
_IMPORT = "import holdfast as hf; hf.Engine, hf.Dag, hf.action, hf.step; import holdfast.store.{driver}"


@cache
def environment() -> dict[str, str]:
    """Where bytecode is kept, as it is for a program that was started before, even if this shell forbids it."""
    kept = tempfile.mkdtemp(prefix="hf-bytecode-")
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    made = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    made["PYTHONPYCACHEPREFIX"] = kept
    for driver in ("sqlite", "postgres"):
        subprocess.run([sys.executable, "-c", _IMPORT.format(driver=driver)], env=made, check=True)
    # And what a worker loads, or its first result would be the time that Python takes to compile it.
    subprocess.run(
        [sys.executable, str(HELLO), f"sqlite:///{kept}/hello.db"],
        env=made,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    return made


def import_ms(store: str) -> float:
    """What the import adds to a Python that has nothing but itself loaded, in milliseconds."""
    driver = "postgres" if store == POSTGRES else "sqlite"
    program = f"import time; t = time.perf_counter(); {_IMPORT.format(driver=driver)}; print(time.perf_counter() - t)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    return float(done.stdout) * 1000


def first_result(url: str) -> tuple[float, float]:
    """Seconds from the start of the process to its first result, on an empty database, and then its megabytes."""
    surroundings = environment()
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, str(HELLO), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=surroundings
    ) as program:
        assert program.stdout is not None
        said = program.stdout.readline()
        seconds = time.perf_counter() - started
        memory = psutil.Process(program.pid).memory_info().rss / 1e6
        program.communicate()
    if said.strip() != "Hello, world!":
        raise RuntimeError(f"{HELLO.name} said {said!r}; run it by hand to see why")
    return seconds, memory


def bare_python_seconds() -> float:
    surroundings = environment()
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True, env=surroundings)
    return time.perf_counter() - started
