"""What the promises say about runs, leases and tokens, in few lines; written from them, and not from our code.

A graph of nodes with parents. Everything is a plain value; a wrong answer of the engine shows as a difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OPEN, PAUSED, COMPLETED, FAILED, CANCELLED = "open", "paused", "completed", "failed", "cancelled"
READY, DELAYED, LEASED, BLOCKED = "ready", "delayed", "leased", "blocked"
RECORDED, REPEATED, STALE = "recorded", "repeated", "stale"
LOST_LIMIT = 3
RETRY_SECONDS = 1.0


@dataclass
class Attempt:
    """One attempt of one node."""

    status: str
    due: float = 0.0
    lease: int = 0  # which claim holds it; 0: none
    failures: int = 0
    losses: int = 0
    settled_by: int = 0  # the claim that settled it
    settled_as: str = ""


@dataclass
class ModelRun:
    """One run."""

    parents: dict[str, tuple[str, ...]]
    status: str = OPEN
    nodes: dict[str, list[Attempt]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node, parents in self.parents.items():
            if not parents:
                self.nodes[node] = [Attempt(READY)]

    # -- what can be seen

    @property
    def ended(self) -> bool:
        return self.status in (COMPLETED, FAILED, CANCELLED)

    def latest(self, node: str) -> Attempt | None:
        return self.nodes[node][-1] if node in self.nodes else None

    def seen(self) -> dict[str, list[str]]:
        """Every attempt of every node that has begun or could: waiting for a time is being ready."""
        shown = {DELAYED: READY}
        return {node: [shown.get(each.status, each.status) for each in found] for node, found in self.nodes.items()}

    def claimable(self, now: float) -> list[str]:
        if self.status != OPEN:
            return []
        return [
            node for node, found in self.nodes.items() if found[-1].status in (READY, DELAYED) and found[-1].due <= now
        ]

    # -- what workers do

    def claim(self, node: str, lease: int) -> None:
        attempt = self.nodes[node][-1]
        attempt.status, attempt.lease = LEASED, lease

    def _held(self, node: str, number: int, lease: int, outcome: str) -> Attempt | str:
        """The attempt that this lease still holds; or what its report is worth."""
        attempt = self.nodes[node][number]
        if attempt.status == LEASED and attempt.lease == lease and not self.ended:
            return attempt
        if attempt.settled_by == lease and attempt.settled_as == outcome:
            return REPEATED
        return STALE

    def complete(self, node: str, number: int, lease: int) -> str:
        held = self._held(node, number, lease, "completed")
        if isinstance(held, str):
            return held
        self._settle(held, "completed", lease)
        self._advance()
        return RECORDED

    def fail(self, node: str, number: int, lease: int, now: float, *, attempts: int) -> str:
        held = self._held(node, number, lease, "failed")
        if isinstance(held, str):
            return held
        self._settle(held, "failed", lease)
        if held.failures + 1 < attempts:
            self._again(node, DELAYED, now + RETRY_SECONDS, held.failures + 1, 0)
        self._advance()
        return RECORDED

    def lapse(self, node: str, number: int, lease: int) -> str:
        held = self._held(node, number, lease, "lost")
        if isinstance(held, str):
            return held
        if held.losses + 1 >= LOST_LIMIT:  # I6: it kills its workers
            self._settle(held, "dead", lease)
        else:
            self._settle(held, "lost", lease)
            self._again(node, READY, held.due, held.failures, held.losses + 1)
        self._advance()
        return RECORDED

    def release(self, node: str, number: int, lease: int) -> str:
        held = self._held(node, number, lease, "released")
        if isinstance(held, str):
            return held
        held.status, held.lease, held.settled_by, held.settled_as = READY, 0, lease, "released"
        return RECORDED

    # -- what operators do

    def cancel(self) -> bool:
        if self.status in (COMPLETED, CANCELLED):
            return False
        if self.status == FAILED:
            return False
        for found in self.nodes.values():
            if found[-1].status in (READY, DELAYED, LEASED, BLOCKED):
                found[-1].status = "cancelled"
        self.status = CANCELLED
        return True

    def pause(self) -> bool:
        if self.ended or self.status == PAUSED:
            return False
        self.status = PAUSED
        return True

    def resume(self) -> bool:
        if self.status != PAUSED:
            return False
        self.status = OPEN
        self._advance()
        return True

    def retry(self) -> list[str]:
        if self.status in (COMPLETED, CANCELLED):
            return []
        given_up = self.given_up()
        for node in given_up:
            self.nodes[node][-1].status = "failed"  # I9: a dead letter that was replayed is none any more
            self._again(node, READY, 0.0, 0, 0)
        if given_up and self.status == FAILED:  # I11: a pause that was asked for lasts until the resume
            self.status = OPEN
        return given_up

    def skip(self, node: str) -> bool:
        """A node that gave up or has not started counts as done; False if it is too late for that."""
        latest = self.latest(node)
        if self.status in (COMPLETED, CANCELLED) or (latest and latest.status in ("completed", "skipped", LEASED)):
            return False
        if latest is None:
            self.nodes[node] = [Attempt("skipped")]
        else:
            latest.status = "skipped"
        if self.status == FAILED:
            self.status = OPEN
        self._advance()
        return True

    def given_up(self) -> list[str]:
        return [node for node, found in self.nodes.items() if found[-1].status in ("failed", "dead")]

    # -- what follows

    def _settle(self, attempt: Attempt, status: str, lease: int) -> None:
        attempt.status, attempt.settled_by, attempt.settled_as = status, lease, status

    def _again(self, node: str, status: str, due: float, failures: int, losses: int) -> None:
        self.nodes[node].append(Attempt(status, due, failures=failures, losses=losses))

    def _advance(self) -> None:
        """G4: a node is ready when all its parents are satisfied. I30: who gave up is told when nothing else runs."""
        satisfied = {node for node, found in self.nodes.items() if found[-1].status in ("completed", "skipped")}
        for node, parents in self.parents.items():
            if node not in self.nodes and set(parents) <= satisfied:
                self.nodes[node] = [Attempt(READY)]
        if satisfied == set(self.parents):
            self.status = COMPLETED
        elif self.given_up() and not any(found[-1].status in (READY, DELAYED, LEASED) for found in self.nodes.values()):
            self.status = FAILED
