"""Which classes of exceptions are found by the names in records: all that this process has, and nothing is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.codec import decode_error, encode_error
from holdfast.runtime.exception_classes import known_exception
from tests.worker.support import ROOT, engine_on


class ApiHere:
    class Refused(Exception):
        class Twice(Exception):
            pass

    limit = 3


class DeclinedHere(Exception):
    pass


def local_class() -> type[Exception]:
    class Local(Exception):
        pass

    return Local


def test_classes_are_found_in_modules_and_in_other_classes() -> None:
    for kind in (DeclinedHere, ApiHere.Refused, ApiHere.Refused.Twice, hf.RunFailed, ExceptionGroup):
        assert known_exception(f"{kind.__module__}.{kind.__qualname__}") is kind


def test_a_class_in_a_function_is_found_while_it_is_alive() -> None:
    """Each call of the function makes another one: the youngest is meant."""
    assert known_exception(f"{__name__}.another.<locals>.Local") is None
    _, latest = local_class(), local_class()
    assert known_exception(f"{__name__}.local_class.<locals>.Local") is latest


def test_what_stands_in_for_a_class_in_a_function_is_not_taken_for_it() -> None:
    """A class whose text is made of what no record keeps is stood in for by one of its name, which is younger."""

    class Mute(Exception):
        def __str__(self) -> str:
            return f"{self.speaker!r} says nothing"  # type: ignore[attr-defined]

    mute = Mute()
    mute.speaker = object()  # type: ignore[attr-defined]
    record = decode_error(encode_error(mute))
    first = record.to_exception(known_exception)
    assert (type(first).__mro__[1], str(first)) == (Mute, str(mute))
    assert known_exception(record.qualified) is Mute
    assert type(record.to_exception(known_exception)).__mro__[1] is Mute


@pytest.mark.parametrize("name", ["ApiHere", "ApiHere.limit", "ApiHere.Missing", "missing.DeclinedHere", "Path", ""])
def test_what_is_no_exception_is_not_found(name: str) -> None:
    assert known_exception(f"{__name__}.{name}") is None
    assert known_exception(name) is None


def test_nothing_is_imported_because_a_record_names_it() -> None:
    assert "wave" not in sys.modules
    assert known_exception("wave.Error") is None
    assert "wave" not in sys.modules


def test_a_module_that_imports_what_it_is_asked_for_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = types.ModuleType("lazy")
    asked: list[str] = []
    lazy.__getattr__ = asked.append  # type: ignore[method-assign,assignment]
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    assert known_exception("lazy.DeclinedHere") is None
    assert asked == []


def test_a_class_of_a_main_program_is_found_in_the_module_that_defines_its_workflows() -> None:
    """A module that only has the class by import, or defines nothing of ours, was not that program."""

    @hf.action(registry=hf.Registry())
    async def something() -> None:
        pass

    assert known_exception("__main__.DeclinedHere") is DeclinedHere
    assert known_exception("__main__.ApiHere.Refused") is ApiHere.Refused
    assert known_exception("__main__.Path") is None
    assert known_exception("__main__.RemoteError") is None


def test_a_class_of_an_imported_module_is_found_in_the_main_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program = types.ModuleType("__main__")
    program.__file__ = "/srv/shop/hello.py"
    program.__spec__ = None
    kind = type("DeclinedHere", (Exception,), {"__module__": "__main__"})
    program.DeclinedHere = kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert known_exception("hello.DeclinedHere") is kind
    assert known_exception("shop.hello.DeclinedHere") is kind
    assert known_exception("other.DeclinedHere") is None


async def test_a_function_catches_what_its_actions_raise_wherever_the_class_is_defined(sqlite_url: str) -> None:
    registry = hf.Registry()

    class Local(Exception):
        pass

    @hf.action(registry=registry)
    async def raises(which: str) -> None:
        raise {"nested": ApiHere.Refused, "local": Local}[which](which)

    @hf.workflow(registry=registry)
    async def catches() -> list[str]:
        caught = []
        try:
            await raises("nested")
        except ApiHere.Refused as refused:
            caught.append(str(refused))
        try:
            await raises("local")
        except Local as local:
            caught.append(str(local))
        return caught

    async with engine_on(sqlite_url, registry) as engine, engine.worker():
        assert await engine.run(catches) == ["nested", "local"]


SCRIPT = """
import asyncio
import sys

import holdfast as hf

class DeclinedHere(Exception):
    pass

@hf.action
async def charge() -> None:
    raise DeclinedHere("no")

@hf.workflow
async def pays() -> str:
    try:
        await charge()
    except DeclinedHere as declined:
        caught = f"caught {declined}"
    await hf.wait_for("go")
    return caught

async def main(url: str, part: str) -> None:
    async with hf.Engine(url) as engine, engine.worker():
        handle = await engine.start(pays, key="one")
        while part == "begin" and await handle.status() != "suspended":
            await asyncio.sleep(0.01)
        if part == "finish":
            await engine.send("go", to=handle)
            print(await handle.result(timeout=20))

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""
AS_SCRIPT = ["hello.py"]
AS_MODULE = ["-c", "import asyncio, sys, hello; asyncio.run(hello.main(*sys.argv[1:]))"]


def in_a_process(directory: Path, how: list[str], *arguments: str) -> str:
    command = [sys.executable, *how, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("first", "second"), [(AS_SCRIPT, AS_MODULE), (AS_MODULE, AS_SCRIPT)])
def test_g8_a_script_and_a_worker_that_imports_it_agree_on_its_exceptions(
    sqlite_url: str, tmp_path: Path, first: list[str], second: list[str]
) -> None:
    """What one has recorded under `__main__` the other replays under the module's name, and the other way round."""
    (tmp_path / "hello.py").write_text(SCRIPT)
    in_a_process(tmp_path, first, sqlite_url, "begin")
    assert in_a_process(tmp_path, second, sqlite_url, "finish") == "caught no"


LAZY_SCRIPT = """
import asyncio
import sys

import holdfast as hf

@hf.action
async def read(text: str) -> None:
    import tomllib
    tomllib.loads(text)

@hf.action(retry=hf.Retry(attempts=2, base=0.01))
async def read_again(text: str) -> None:
    from lazy_errors import Unreadable
    raise Unreadable(text, 5)

@hf.action
async def read_strangely(text: str) -> None:
    class Strange(KeyError):
        pass
    raise Strange(text)

@hf.workflow
async def reads_below() -> None:
    await read_again("below")

@hf.workflow
async def reads() -> list[str]:
    took = []
    for call in (read, read_again, read_strangely):
        try:
            await call("no toml")
        except hf.HoldfastError as error:
            took.append(f"ours: {error}")
        except (ValueError, OSError, LookupError) as error:
            took.append(f"{error!r} {error}")
    try:
        await reads_below()
    except hf.RunFailed as failed:
        took.append(f"{isinstance(failed.cause, OSError)} {failed.cause!r} {failed.attempts!r}")
    print(*took, sep=chr(10))
    await hf.wait_for("go")
    return took

async def main(url: str, part: str) -> None:
    async with hf.Engine(url) as engine, engine.worker():
        handle = await engine.start(reads, key="one")
        while part == "begin" and not any("go" in str(wait) for wait in await handle.waits()):
            await asyncio.sleep(0.01)
        if part == "finish":
            assert not {"tomllib", "lazy_errors"} & set(sys.modules)
            await engine.send("go", to=handle)
            print(*await handle.result(timeout=20), sep=chr(10))

asyncio.run(main(*sys.argv[1:]))
"""
LAZY_ERRORS = """
class Unreadable(OSError):
    def __init__(self, text: str, line: int) -> None:
        super().__init__(f"{text} in line {line}")
        self.line = line
"""
TAKEN = """TOMLDecodeError("Expected '=' after a key in a key/value pair (at line 1, column 4)") \
Expected '=' after a key in a key/value pair (at line 1, column 4)
Unreadable('no toml in line 5') no toml in line 5
Strange('no toml') 'no toml'
True Unreadable('below in line 5') (Unreadable('below in line 5'), Unreadable('below in line 5'))"""


def test_g8_a_replay_catches_alike_where_the_class_is_not_loaded_yet(sqlite_url: str, tmp_path: Path) -> None:
    """G8: what an action imports in its body, or defines there, is missing in the process that replays its failure."""
    (tmp_path / "lazy.py").write_text(LAZY_SCRIPT)
    (tmp_path / "lazy_errors.py").write_text(LAZY_ERRORS)
    assert in_a_process(tmp_path, ["lazy.py"], sqlite_url, "begin") == TAKEN
    assert in_a_process(tmp_path, ["lazy.py"], sqlite_url, "finish") == f"{TAKEN}\n{TAKEN}"


async def test_i54_a_class_of_another_program_is_caught_by_what_is_known_of_it(sqlite_url: str) -> None:
    """I54: a worker without the workflow's code raises what the function need not have: RemoteError, and its bases."""
    ours, theirs = hf.Registry(), hf.Registry()

    @hf.action(registry=ours, name="train", queue="gpu")
    async def train() -> None:
        raise AssertionError("this is done elsewhere")

    @hf.action(registry=theirs, name="train", queue="gpu")
    async def train_elsewhere() -> None:
        raise type("LinkLost", (ConnectionError,), {"__module__": "gpu.errors"})("no link")

    @hf.workflow(registry=ours)
    async def trains() -> str:
        try:
            await train()
        except ConnectionError as error:
            return f"{error.type}: {error.message}" if isinstance(error, hf.RemoteError) else repr(error)
        return "?"

    async with (
        engine_on(sqlite_url, ours) as engine,
        engine_on(sqlite_url, theirs) as other,
        engine.worker(),
        other.worker(queues=["gpu"]),
    ):
        assert await engine.run(trains) == "LinkLost: no link"
