"""Settings of an engine: one frozen value with documented defaults.

Each can be given as a keyword argument of `Engine` or as an environment variable `HOLDFAST_…`; the
argument wins. An unknown one is an error that names the nearest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from holdfast.core.codec_formats import Codec
from holdfast.core.codec_payload import Codecs, codecs_for
from holdfast.core.errors import UsageError

NOT_SETTINGS = {
    *("HOLDFAST_URL", "HOLDFAST_TRACE", "HOLDFAST_FAILPOINT", "HOLDFAST_FAILPOINT_FILE", "HOLDFAST_APP"),
    "HOLDFAST_UI_TOKEN",
}

WITHOUT_VARIABLE = {"registry"}  # no text can name one

OBSERVED = ("off", "type", "payload")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an engine behaves. All times are seconds."""

    lease_seconds: float = 30.0
    """How long a silent worker keeps its work; it sends a heartbeat every third of it."""
    poll_seconds: float = 0.5
    """How often an idle worker looks for work when nothing has woken it."""
    sweep_seconds: float = 1.0
    """How often a worker looks for dead workers and compares what it runs with what it holds."""
    store_timeout_seconds: float = 30.0
    """How long an operation keeps trying to reach the store before it gives up."""
    shutdown_seconds: float = 30.0
    """How long a stopping worker waits for what is running."""
    lost_limit: int = 10
    """How many leases in a row an item may lose before it becomes a dead letter."""
    unknown_after_seconds: float = 3600.0
    """How long work that no worker knows stays ready before it becomes a dead letter."""
    payload_limit_bytes: int = 2 * 1024 * 1024
    """The largest payload that is accepted."""
    retention: float | timedelta | None = None
    """How long ended runs are kept, in seconds or as a timedelta; None keeps them until `holdfast prune`."""
    batch_limit: int = 200
    """How many operations one commit may serve."""
    cache_rows: int = 200_000
    """How many rows of live runs are remembered."""
    threads: int = 32
    """How many plain `def` actions run at once in threads."""
    processes: int = 4
    """How many `isolation="process"` actions run at once."""
    notify: bool = True
    """Whether PostgreSQL's NOTIFY is used to wake other processes; polling alone suffices."""
    codec: str | Codec | Codecs = "json"
    """How payloads are written: "json", "msgpack", a codec of your own, or `hf.Codecs` with more to read."""
    resident_functions: int = 10_000
    """How many waiting functions stay in memory; the others are replayed when they are woken."""
    resident_seconds: float = 60.0
    """How long a waiting function stays in memory."""
    child_depth: int = 100
    """How many levels of children a run may have below it; a workflow that starts itself for ever is stopped there."""
    observe_inputs: str = "off"
    """What is kept of each input that a decider is given: "off", "type", or "payload" with the whole of it."""
    hand_over: bool = True
    """Whether newly ready work may be leased to this process in the commit that makes it ready."""
    registry: object = None
    """Which definitions the engine knows: an `hf.Registry`; None for the one that all decorators enter by default."""

    def __new__(cls, *args: object, **given: object) -> Self:
        # Before Python refuses an unknown name, with the nearest one.
        for name in given:
            if name not in cls.__dataclass_fields__:
                raise UsageError(f"there is no setting {name!r}", hint=_nearest(name, cls.__dataclass_fields__, ""))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            if field.name == "codec":
                if not (isinstance(value, str) and ":" in value):  # what that names is looked up by the engine
                    codecs_for(value)
                continue
            if field.name == "registry":  # its class is above this layer
                if value is not None and not hasattr(value, "known_workflows"):
                    raise UsageError(f"registry is {value!r:.80}", hint="use an hf.Registry(), or None for the default")
                continue
            if field.name == "observe_inputs":
                if value not in OBSERVED:
                    raise UsageError(f"observe_inputs is {value!r}", hint=f"use one of {', '.join(OBSERVED)}")
                continue
            if kind == "bool":
                if not isinstance(value, bool):
                    raise UsageError(f"{field.name} is {value!r}", hint=f"{field.name} must be True or False")
                continue
            if value is None and kind.endswith("None"):
                continue
            number = value.total_seconds() if isinstance(value, timedelta) and "timedelta" in kind else value
            wanted, shown = (int, "a whole number") if kind == "int" else (int | float, "a number")
            if isinstance(number, bool) or not isinstance(number, wanted) or not 0 < number < math.inf:
                raise UsageError(f"{field.name} is {value!r}", hint=f"{field.name} must be {shown} greater than 0")

    @property
    def retention_seconds(self) -> float | None:
        return self.retention.total_seconds() if isinstance(self.retention, timedelta) else self.retention


_KINDS = {"float": float, "int": int, "float | timedelta | None": float}


def make_settings(given: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Settings from keyword arguments and the environment; unknown names are refused."""
    known = {field.name: field for field in dataclasses.fields(Settings) if field.name not in WITHOUT_VARIABLE}
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith("HOLDFAST_") or variable in NOT_SETTINGS:
            continue
        name = variable.removeprefix("HOLDFAST_").lower()
        if name not in known:
            raise UsageError(f"there is no setting {variable}", hint=_nearest(name, known, "HOLDFAST_"))
        values[name] = _parsed(variable, text, str(known[name].type))
    return Settings(**(values | dict(given)))


def _parsed(variable: str, text: str, kind: str) -> Any:
    if kind == "bool":
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise UsageError(f"{variable} is {text!r}", hint="use on or off")
    if kind == "str":
        return text
    if "Codec" in kind:
        if text in ("json", "msgpack") or ":" in text:
            return text
        raise UsageError(f"{variable} is {text!r}", hint="use json, msgpack, or the module:name of a codec of your own")
    try:
        return _KINDS[kind](text)
    except ValueError:
        raise UsageError(f"{variable} is {text!r}, which is not a number", hint="give a number") from None


def _nearest(name: str, known: Mapping[str, Any], prefix: str) -> str:
    import difflib  # for those who made a mistake

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    shown = ", ".join(f"{prefix}{n.upper() if prefix else n}" for n in sorted(known))
    return (f"did you mean {prefix}{close[0].upper() if prefix else close[0]}? " if close else "") + f"known: {shown}"
