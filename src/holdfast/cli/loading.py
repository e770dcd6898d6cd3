"""Importing a user's modules, all or none, and saying exactly which line is at fault when one does not import."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from holdfast.cli.failures import NOT_FOUND, USAGE, Failure

BELOW_MAIN: Final = 'put what the script does below `if __name__ == "__main__":`'


def load_modules(names: Sequence[str]) -> list[ModuleType]:
    """The imported modules, found in the current directory first. The first that fails ends the command."""
    # What Holdfast itself needs of Python is loaded first: a file `queue.py` here must not take its place.
    importlib.import_module("holdfast.engine")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    return [_load(name) for name in names]


def _load(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name or "\\" in name:
        dotted = name.removesuffix(".py").strip("./\\").replace("/", ".").replace("\\", ".")
        raise Failure(f"{name!r} is a file, and a module's name is wanted", hint=f"write {dotted} instead", code=USAGE)
    if not all(part.isidentifier() for part in name.split(".")):
        raise Failure(
            f"{name!r} is not a module's name", hint="write it as in an import, for example app.workflows", code=USAGE
        )
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _not_found(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error
    _refuse_shadowed(name, module)
    return module


def _not_found(name: str, error: ModuleNotFoundError) -> Failure:
    missing = error.name or name
    if name != missing and not name.startswith(f"{missing}."):
        return Failure(
            f"module {name} could not be imported: it needs {missing!r}, which is not installed ({_place(error)})",
            hint=f"install {missing.partition('.')[0]} in the environment of this program ({sys.prefix})",
            code=USAGE,
        )
    near = difflib.get_close_matches(name, _modules_here(name), n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    return Failure(
        f"there is no module {name!r}",
        hint=f"{guess}modules are looked for in the current directory ({os.getcwd()}) and among installed packages",
        code=NOT_FOUND,
    )


def _modules_here(name: str) -> list[str]:
    parent, dot, _ = name.rpartition(".")
    folder = Path.cwd().joinpath(*parent.split(".")) if parent else Path.cwd()
    found = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    found |= {path.parent.name for path in folder.glob("*/__init__.py")}
    return sorted(f"{parent}{dot}{stem}" for stem in found)


def _broken(name: str, error: BaseException) -> Failure:
    hint = getattr(error, "hint", None)  # our own errors know the way out
    if isinstance(error, SystemExit):
        what = f"it ends the program with exit code {error.code}"
        hint = BELOW_MAIN
    elif _called_run(error):
        what = "it calls hf.run while it is imported"
        hint = BELOW_MAIN
    else:
        what = getattr(error, "message", "") if hint else ""
        last = traceback.format_exception_only(type(error), error)[-1].strip()
        what = f"{type(error).__name__}: {what}" if what else last
    return Failure(
        f"module {name} could not be imported: {what} ({_place(error)})",
        hint=hint or f"correct that line; `python -c 'import {name}'` shows the whole traceback",
        code=USAGE,
    )


def _called_run(error: BaseException) -> bool:
    """Whether the module itself called hf.run, which refuses to be called where a loop is running."""
    from holdfast.core.errors import UsageError
    from holdfast.script import run

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, UsageError) and bool(frames) and frames[-1].f_code is run.__code__


def _place(error: BaseException) -> str:
    """file:line of the innermost frame that is neither Python's import machinery nor ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename)}:{error.lineno}"
    package = str(Path(__file__).resolve().parents[1])
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and not frame.filename.startswith((package, importlib.__file__))
    ]
    return f"{_shown(frames[-1].filename)}:{frames[-1].lineno}" if frames else "no line of it ran"


def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename


def _refuse_shadowed(name: str, module: ModuleType) -> None:
    """Python's own modules are loaded already, so a file `queue.py` would never be looked at."""
    mine = Path.cwd().joinpath(*name.split(".")).with_suffix(".py")
    loaded = getattr(module, "__file__", None)
    if mine.is_file() and (loaded is None or not mine.samefile(loaded)):
        raise Failure(
            f"{name} is the name of another module, so {_shown(str(mine))} was not imported",
            hint=f"rename the file: Python has {loaded or 'one that is built in'} under that name",
            code=USAGE,
        )
