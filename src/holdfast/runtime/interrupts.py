"""Whose a KeyboardInterrupt is that comes out of user code: the program's, for Ctrl-C, or the code's own."""

from __future__ import annotations

import functools
import signal
import threading
import traceback


def is_ctrl_c(error: KeyboardInterrupt) -> bool:
    """Whether it may have been raised for a signal, so that it is meant for the program and not for one action.

    Python's own handler raises it wherever the main thread is just then, and leaves no trace. One that is written in
    Python, as that of `asyncio.run`, is among the frames; and that of an event loop, as a worker has, raises nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True
    while isinstance(handler, functools.partial):
        handler = handler.func
    code = getattr(handler, "__code__", None)
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))
