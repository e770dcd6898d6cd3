"""For users' own tests: an engine whose time you turn, contexts for actions, decisions of deciders, and a check that
every store agrees."""

from __future__ import annotations

from holdfast.testing.contexts import action_context
from holdfast.testing.engines import engine_in_memory
from holdfast.testing.given import Given, given
from holdfast.testing.parity import parity
from holdfast.testing.virtual_clock import VirtualClock

__all__ = ["Given", "VirtualClock", "action_context", "engine_in_memory", "given", "parity"]
