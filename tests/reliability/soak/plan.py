"""How long a soak lasts and how rough it is, and when what happens: by seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

LEASE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One soak. The numbers are what is aimed at; the report says what was reached.

    A busy machine gets through less of it in the time: the storm goes on until what is enough has happened, or until
    `limit_seconds` have passed.
    """

    seed: int
    seconds: float = 60.0
    kills: int = 22
    restarts: int = 5
    cuts: int = 300
    enough_kills: int = 20
    enough_restarts: int = 5
    enough_cuts: int = 200
    limit_seconds: float = 180.0
    stops: int = 4
    fillings: int = 1
    workers: int = 3
    clients: int = 20
    calm_seconds: float = 40.0

    @classmethod
    def for_minutes(cls, minutes: float, seed: int) -> Plan:
        """As rough as the short one, for longer."""
        return cls(
            seed=seed,
            seconds=60 * minutes,
            kills=round(10 * minutes),
            restarts=round(2 * minutes),
            cuts=round(200 * minutes),
            enough_kills=round(500 / 60 * minutes),
            enough_restarts=round(100 / 60 * minutes),
            enough_cuts=round(10_000 / 60 * minutes),
            limit_seconds=90 * minutes + 120,
            stops=round(4 * minutes),
            fillings=max(1, round(minutes / 2)),
            clients=40,
            calm_seconds=90.0,
        )

    @property
    def megabytes(self) -> int:
        """The disk that a server with all that needs, and a little more."""
        return round(min(4096.0, 300 + self.seconds))

    def schedule(self) -> list[tuple[float, str]]:
        """When to do what to the processes and the server, in order."""
        dice = random.Random(f"schedule {self.seed}")
        last = self.seconds - 2 * LEASE_SECONDS  # what is done to them last must have begun to hurt before the calm
        wishes = [("kill", self.kills), ("restart", self.restarts), ("stop", self.stops), ("fill", self.fillings)]
        # Spread evenly, each somewhere in its share: no seed has all of its restarts in one second.
        return sorted(
            (last * (place + dice.random()) / times, what) for what, times in wishes for place in range(times)
        )
