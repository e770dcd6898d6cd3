"""Python's garbage collector in a process that serves runs.

Objects of a run live for as long as it is on its way, and few are in circles. With the interpreter's own settings the
collector looks at them again and again: a tenth of the processor time of a busy worker. A process that is all ours
(`holdfast worker`) is therefore told to look less often, and never again at what was imported. An application that has
an engine inside is left alone; it may call this itself.
"""

from __future__ import annotations

import gc

NEW_OBJECTS = 10_000


def collect_less_often() -> None:
    """To be called once, when all code is imported. Settings of the application's own that are as high are kept."""
    gc.collect()
    gc.freeze()
    new, *older = gc.get_threshold()
    if 0 < new < NEW_OBJECTS:  # nought: it was switched off
        gc.set_threshold(NEW_OBJECTS, *older)
