"""What the promises say about a decider (I12, I33 to I35, G6), for one that counts; written from them."""

from __future__ import annotations

from dataclasses import dataclass, field

BELL_SECONDS = 60.0
CLOSES_AT = 6  # events after which an instance is terminal


@dataclass
class Counter:
    """One instance: its events, and the times at which its bells ring."""

    events: list[str] = field(default_factory=list)
    bells: dict[str, float] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    broken: int = 0  # effects that gave up
    ignored: int = 0

    @property
    def closed(self) -> bool:
        return len([event for event in self.events if not event.startswith("cancelled")]) >= CLOSES_AT

    def give(self, input: str, key: str, now: float, id: str) -> None:
        """An input applies once; after the end it is accepted without effect (I34)."""
        if id in self.ids:
            return
        self.ids.add(id)
        self._apply(input, key, now)

    def _apply(self, input: str, key: str, now: float) -> None:
        if self.closed:
            self.ignored += 1
            return
        self.events.append(f"{input} {key}")
        # I33: events, effects, cancelled timers, new timers; so what is cancelled and set again is alive afterwards.
        if input in ("quiet", "again") and self.bells.pop(key, None) is not None:
            self.events.append(f"cancelled {key}")
        if input in ("ring", "again"):
            self.bells[key] = now + BELL_SECONDS
        if input == "work":
            self._apply("worked", key, now)  # the effect answers with an input, soon
        if input == "break":
            self.broken += 1

    def wait(self, now: float, until: float) -> None:
        """G6: bells ring in order of time, none early, each once."""
        while self.bells:
            key, at = min(self.bells.items(), key=lambda bell: (bell[1], bell[0]))
            if at > until:
                return
            del self.bells[key]
            self._apply("rang", key, max(now, at))
