"""What `holdfast worker` tells the garbage collector, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.runtime.garbage import NEW_OBJECTS

PROGRAM = """
import gc
gc.set_threshold({before}, 7, 8)
from holdfast.runtime.garbage import collect_less_often
collect_less_often()
print(*gc.get_threshold()[:2], gc.get_freeze_count() > 1_000)
"""


@pytest.mark.parametrize(("before", "after"), [(700, NEW_OBJECTS), (0, 0), (50_000, 50_000)])
def test_new_objects_are_looked_at_less_often_and_imported_ones_never_again(before: int, after: int) -> None:
    """Unless the application has asked for the like, or for no collections at all."""
    program = PROGRAM.format(before=before)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(after), "7", "True"]
