"""The process that `holdfast dev` starts again at every change: a worker and the page on one engine.

It tells its supervisor over a pipe, a JSON document a line, what it has imported, where the page is, and why it could
not begin. Another pipe tells it that the supervisor lives: nobody writes to that one, and it ends with the supervisor,
however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.cli.dev_files import loaded_files
from holdfast.cli.failures import failure_of
from holdfast.cli.options import Options, opened

# Exit codes, for the supervisor alone.
NOT_IMPORTED: Final = 71
NOT_BEGUN: Final = 72
REPORT_SECONDS: Final = 1.0
POLITE_SECONDS: Final = 1.0
HURRIED_SECONDS: Final = 4.0


class Reports:
    """Tells the supervisor. Once that is gone nobody listens, and nothing is said any more."""

    def __init__(self, pipe: int) -> None:
        self._pipe = os.fdopen(pipe, "wb")
        self._files: list[str] = []

    def tell(self, **document: Any) -> None:
        with contextlib.suppress(OSError):
            self._pipe.write(json.dumps(document).encode() + b"\n")
            self._pipe.flush()

    def tell_files(self) -> None:
        """What has been imported, if that is more than was told before."""
        files = loaded_files(Path.cwd())
        if files != self._files:
            self._files = files
            self.tell(files=files)


class Life:
    """Whether the supervisor lives. Without it this process ends, in five seconds whatever user code does."""

    def __init__(self, pipe: int, postmaster: Path | None) -> None:
        self._pipe = pipe
        self._postmaster = postmaster
        self._orphaned = False
        # A thread, because user code may hold the loop up.
        threading.Thread(target=self._listen, name="holdfast-orphan", daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(self._pipe, 1):
                pass
        self._orphaned = True
        with contextlib.suppress(OSError):  # nor may there be a terminal any more
            print("holdfast dev is gone, so its worker and its page stop", file=sys.stderr, flush=True)
        for seconds in (POLITE_SECONDS, HURRIED_SECONDS):  # as the supervisor would have done it
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(seconds)
        self.clear_up()
        os._exit(1)

    def clear_up(self) -> None:
        """Stop the PostgreSQL that the supervisor has started and cannot stop any more. SIGINT is its fast shutdown."""
        if self._orphaned and self._postmaster is not None:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(self._postmaster.read_text(encoding="utf-8").split()[0]), signal.SIGINT)


async def run_child(
    options: Options,
    modules: Sequence[str],
    pipes: tuple[int, int],
    *,
    port: int,
    queues: tuple[str, ...],
    concurrency: int,
    postmaster: Path | None,
) -> int:
    """Work and serve until told to stop, or until the supervisor is gone; the exit code.

    `pipes` are the one to report into and the one that ends with the supervisor; `postmaster` is the file with the
    process id of a PostgreSQL that is the supervisor's own.
    """
    from holdfast.cli.logs import log_to_stderr

    # A terminal tells the whole group of a Ctrl-C; the supervisor decides what it means, and says so with SIGTERM.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    reports, life = Reports(pipes[0]), Life(pipes[1], postmaster)
    log_to_stderr("info", as_json=options.as_json)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # the supervisor says where the page is
    imported = False
    try:
        _import(modules, reports)
        imported = True
        await _work_and_serve(options, reports, port=port, queues=queues, concurrency=concurrency)
    except Exception as error:
        if options.debug:
            traceback.print_exception(error)
        failure = failure_of(error)
        # Told and not printed: the supervisor knows whether it can go on.
        reports.tell(failed={"message": failure.message, "hint": failure.hint, "exit_code": failure.code})
        return NOT_IMPORTED if not imported else NOT_BEGUN
    finally:
        life.clear_up()
    return 0


def _import(modules: Sequence[str], reports: Reports) -> None:
    from holdfast.cli.loading import load_modules
    from holdfast.cli.work import refuse_nothing_to_do

    try:
        load_modules(modules)
    finally:
        reports.tell_files()
    refuse_nothing_to_do(tuple(modules))


async def _work_and_serve(
    options: Options, reports: Reports, *, port: int, queues: tuple[str, ...], concurrency: int
) -> None:
    from holdfast.web import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    async with (
        opened(options, create=True) as engine,
        engine.worker(queues=queues, concurrency=concurrency) as worker,
    ):
        hurrying: list[asyncio.Task[None]] = []

        def asked() -> None:
            if stop.is_set() and not hurrying:  # asked twice: what is running is given back
                hurrying.append(loop.create_task(worker.hurry()))
            stop.set()

        def ready(address: str) -> None:
            reports.tell(address=address, workflows=engine.definitions.known_workflows())

        loop.add_signal_handler(signal.SIGTERM, asked)
        telling = loop.create_task(_tell_files(reports))
        try:
            await serve(engine, port=port, ready=ready, stop=stop)
        finally:
            telling.cancel()
            reports.tell_files()


async def _tell_files(reports: Reports) -> None:
    """Modules that are imported while work is done count too."""
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        reports.tell_files()


__all__ = ["NOT_BEGUN", "NOT_IMPORTED", "run_child"]
