"""Where in somebody's own code an exception comes from, in a few words for a message.

Of the frames that an exception went through, ours say nothing to an author, and those of libraries little. The first
one outside this package is the function that we called; the innermost one of the same package is what is to be mended.
"""

from __future__ import annotations

from types import TracebackType

OURS = "holdfast"


def is_ours(trace: TracebackType) -> bool:
    """Whether a frame belongs to this package."""
    return _package(trace) == OURS


def authors_line(error: BaseException) -> str:
    """` (shop.py:17, in decide)` for an error of an author's code, with a space before it; nothing for one of ours."""
    trace, package, found = error.__traceback__, None, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_ours(trace) and not code.co_filename.startswith("<"):  # what dataclasses generate is in no file
            package = _package(trace) if package is None else package
            if _package(trace) == package:
                file = code.co_filename.replace("\\", "/").rpartition("/")[2]
                found = f" ({file}:{trace.tb_lineno}, in {code.co_name})"
        trace = trace.tb_next
    return found


def _package(trace: TracebackType) -> str:
    return str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


__all__ = ["authors_line", "is_ours"]
