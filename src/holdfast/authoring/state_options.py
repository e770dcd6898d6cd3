"""The options of a state graph, checked when the graph is made."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from holdfast.authoring.registry import validated_name
from holdfast.authoring.state_nodes import node_timeout
from holdfast.core.errors import GraphError

__all__ = ["GraphOptions"]

Redaction = str | re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """How a graph is run: how much at once, how long, and what is kept of it."""

    graph: str
    max_concurrent: int = 8
    queue_depth: int = 1024
    default_timeout: float | None = 30.0
    max_steps: int = 10_000
    backpressure_seconds: float | None = 60.0
    keep_checkpoints: int | None = None
    queue: str = "default"
    emitter: Any = None
    redact: tuple[Redaction, ...] = ()

    def __post_init__(self) -> None:
        self._check_count("max_concurrent", "how many nodes may run at once")
        self._check_count("queue_depth", "how many items the frontier may hold")
        self._check_count("max_steps", "after how many steps a run is taken for an endless one")
        if self.keep_checkpoints is not None:
            self._check_count("keep_checkpoints", "how many of the latest checkpoints are kept; None keeps all")
        owner = f"graph {self.graph!r}"
        object.__setattr__(self, "default_timeout", node_timeout(self.default_timeout, f"the nodes of {owner}"))
        waits: object = self.backpressure_seconds
        if waits is not None:
            if isinstance(waits, bool) or not isinstance(waits, int | float) or not math.isfinite(waits) or waits < 0:
                raise GraphError(
                    f"backpressure_seconds={waits!r:.80} of {owner} is not a number of seconds",
                    hint="give for how long items may wait for room, 0 or more; None waits without end",
                )
            object.__setattr__(self, "backpressure_seconds", float(waits))
        validated_name(self.queue, f"the queue of {owner}")
        if self.emitter is not None:
            from holdfast.emitters import checked_emitters  # for those who have one

            checked_emitters(self.emitter, f"emitter= of {owner}")
        self._check_redaction()

    def _check_count(self, option: str, meaning: str) -> None:
        value = getattr(self, option)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise GraphError(
                f"{option}={value!r:.80} of graph {self.graph!r} is not a whole number of 1 or more",
                hint=f"it says {meaning}",
            )

    def _check_redaction(self) -> None:
        rules: object = self.redact
        if isinstance(rules, str) or not isinstance(rules, tuple | list | set | frozenset):
            raise GraphError(
                f"redact={rules!r:.80} of graph {self.graph!r} is a {type(rules).__name__}",
                hint='give a list of rules: redact=["api_key"]',
            )
        for rule in rules:
            if not (isinstance(rule, re.Pattern) or (isinstance(rule, str) and rule)):
                raise GraphError(
                    f"redact of graph {self.graph!r} holds {rule!r:.80}, a {type(rule).__name__}",
                    hint="give names of keys whose values are secrets, or patterns: re.compile(…)",
                )
        object.__setattr__(self, "redact", tuple(rules))
