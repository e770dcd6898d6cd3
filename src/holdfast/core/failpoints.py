"""Named places where a crash, a pause or an interleaving could matter.

Free when off: callers write `if failpoints.armed: failpoints.hit("flush.before_commit")`. A test, the
simulation or `holdfast.runtime.killswitch` arms them with a hook that may raise, kill the process, or
(at points reached from async code) return something to await.

Every name is registered here, so that the crash programme can enumerate them and a test can complain
about one that is never hit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Hook = Callable[[str], Awaitable[None] | None]

NAMES: frozenset[str] = frozenset(
    {
        "batch.taken",
        "load.after_topics",
        "load.after_locks",
        "load.after_rows",
        "flush.before",
        "flush.between",
        "flush.before_commit",
        "flush.after_commit",
        "claim.before",
        "claim.before_commit",
        "claim.after",
        "enroll.after",
        "due.let_in",
        "heartbeat.before",
        "heartbeat.after",
        "handover.received",
        "takeover.before",
        "takeover.retired",
        "takeover.after",
        "action.before",
        "action.after",
        "action.tx.before_commit",
        "action.tx.after_commit",
        "timer.before",
        "inbox.before",
        "flow.before",
        "record.before",
        "record.after",
        "projection.before_commit",
        "projection.after_commit",
        "announce.before",
        "announce.after",
        "migrate.before",
        "migrate.between",
        "migrate.after",
        "prune.between",
        "cancel.requested",
        "cancel.recorded",
        "release.before",
    }
)

armed: bool = False
_hook: Hook | None = None


def arm(hook: Hook) -> None:
    """Call `hook` with the name of every failpoint that is reached from now on."""
    global armed, _hook
    _hook = hook
    armed = True


def disarm() -> None:
    global armed, _hook
    armed = False
    _hook = None


def _check(name: str) -> None:
    if name not in NAMES:
        raise LookupError(f"failpoint {name} is not registered in {__name__}")


def hit(name: str) -> None:
    """Reach a failpoint from code that cannot await."""
    if _hook is not None:
        _check(name)
        _hook(name)


async def reach(name: str) -> None:
    """Reach a failpoint from async code; the hook may make us wait, which forces an interleaving."""
    if _hook is not None:
        _check(name)
        waiting = _hook(name)
        if waiting is not None:
            await waiting
