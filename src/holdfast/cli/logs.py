"""Logging for the command line: readable lines for a person, JSON lines for a collector.

Every record about user code carries run, workflow, node, attempt and worker; in JSON these keys are
always there, so that a collector needs no special case for records without a run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Final

import click

from holdfast.cli.output import is_terminal
from holdfast.runtime.telemetry import LOG_KEYS

LEVELS: Final = ("debug", "info", "warning", "error")
COLOURS: Final = {"DEBUG": "bright_black", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def show_warnings() -> None:
    """Warnings of the engine on stderr, for commands that are no servers."""
    logger = logging.getLogger("holdfast")
    if not logger.handlers and not logging.getLogger().handlers:
        _install(logger, ReadableFormatter(coloured=_coloured()), logging.WARNING)


def show_operations() -> None:
    """Also who did what on the page, for the command that serves it: the log `holdfast.web` names every operation."""
    show_warnings()
    logging.getLogger("holdfast.web").setLevel(logging.INFO)


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Everything that is logged in this process on stderr, the user's own loggers included."""
    formatter = JsonFormatter() if as_json else ReadableFormatter(coloured=_coloured())
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    _install(root, formatter, getattr(logging, level.upper()))


def _install(logger: logging.Logger, formatter: logging.Formatter, level: int) -> None:
    handler = _Stderr()
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    logger.setLevel(level)


class _Stderr(logging.StreamHandler[Any]):
    """Writes to whatever sys.stderr is at that moment, as `logging.lastResort` does."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def _coloured() -> bool:
    return is_terminal(sys.stderr) and not os.environ.get("NO_COLOR")


class ReadableFormatter(logging.Formatter):
    """`12:00:01 warning  message`, with the run at the end unless the message names it."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        run = getattr(record, "run", None)
        if run and str(run) not in message:
            workflow, node = getattr(record, "workflow", None), getattr(record, "node", None)
            where = str(workflow) if node in (None, workflow) else f"{workflow}.{node}"
            message += self._styled(f"  [{where} {run}]", "bright_black")
        level = record.levelname.lower().ljust(7)
        clock = self._styled(f"{datetime.fromtimestamp(record.created):%H:%M:%S}", "bright_black")
        line = f"{clock} {self._styled(level, COLOURS.get(record.levelname))} {message}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line

    def _styled(self, text: str, colour: str | None) -> str:
        return click.style(text, fg=colour) if self._coloured and colour else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the five keys of user code, and a traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({key: getattr(record, key, None) for key in LOG_KEYS})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
