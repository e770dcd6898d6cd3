"""A history is recorded by one version of Python: the run keeps which, and `check` says so where another reads it."""

from __future__ import annotations

import logging

import pytest

import holdfast as hf
from holdfast.authoring.functions import PYTHON
from tests.functions.support import stores_of_functions  # noqa: F401


@hf.workflow
async def waits_for_word() -> str:
    return str(await hf.side_effect(lambda: "said")) + str(await hf.wait_for("word"))
