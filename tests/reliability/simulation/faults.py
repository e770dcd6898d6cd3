"""Which faults a seed has, and how often: every seed switches each kind on or off, so that some meet alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

LEASE_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Chances, between 0 and 1. Those of the store are per call; those of processes per moment of mischief."""

    # gentle: nothing runs twice because of them
    delay: float = 0.0  # a call of the store takes a while, before or after it has had its effect
    deaf: float = 0.0  # an announcement is lost
    forget: float = 0.0  # all that a process remembers is forgotten (K5)
    repeat: float = 0.0  # an operation is submitted a second time, at once or a little later (K8)
    skew: float = 0.0  # the clock of a process is hours off (K12)
    # rough
    error_before: float = 0.0  # the store fails, and nothing was written
    error_after: float = 0.0  # the answer of a commit is lost
    crash_at_commit: float = 0.0  # the process dies before or after a commit
    no_heartbeat: float = 0.0  # heartbeats fail for longer than a lease
    full_disk: float = 0.0  # SQLite says so, in the middle of a write
    crash: float = 0.0
    freeze: float = 0.0
    hurry: float = 0.0  # a worker is stopped politely and another one started

    @property
    def rough(self) -> bool:
        return any(getattr(self, name) for name in ROUGH)

    def calmed(self) -> Faults:
        """What is left when the storm is over: skewed clocks stay."""
        return Faults(skew=self.skew)


GENTLE = {"delay": 0.3, "deaf": 0.5, "forget": 0.02, "repeat": 0.15, "skew": 0.5}
ROUGH = {
    "error_before": 0.06,
    "error_after": 0.06,
    "crash_at_commit": 0.02,
    "no_heartbeat": 0.25,
    "full_disk": 0.06,
    "crash": 0.6,
    "freeze": 0.6,
    "hurry": 0.3,
}


def faults_of(dice: random.Random) -> Faults:
    """One seed in six is without rough faults; the others have about half of them."""
    rough = dice.random() > 1 / 6
    chosen = {name: most * dice.random() for name, most in GENTLE.items() if dice.random() < 0.5}
    for name, most in ROUGH.items():
        drawn, much = dice.random(), dice.random()
        if rough and drawn < 0.5:
            chosen[name] = most * much
    return replace(Faults(), **chosen)


def late_answers(dice: random.Random) -> Faults:
    """Gentle faults only, and calls that often take long: whatever is executed twice then breaks G3."""
    return Faults(
        delay=0.3 * dice.random(), deaf=0.5 * dice.random(), repeat=0.1 * dice.random(), forget=0.02, skew=0.1
    )


def shown(faults: Faults) -> str:
    """The faults that are on, for a report."""
    values = {field.name: getattr(faults, field.name) for field in fields(faults)}
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items() if value) or "none"
