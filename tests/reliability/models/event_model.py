"""What the promises say about events and waits (G5, I50, I51, I52), written from them and not from our code."""

from __future__ import annotations

from dataclasses import dataclass, field

LATE = "late"


@dataclass
class Listener:
    """A run that waits for one of some names, then for one of some others, and so on; each wait may have a deadline."""

    stages: list[list[str]]
    patience: float | None
    since: float
    heard: list[int | str] = field(default_factory=list)
    mailbox: list[tuple[str, int]] = field(default_factory=list)
    status: str = "open"

    @property
    def awaits(self) -> list[str]:
        return self.stages[len(self.heard)] if self.status == "open" else []

    @property
    def deadline(self) -> float | None:
        return None if self.patience is None or self.status != "open" else self.since + self.patience


@dataclass
class Post:
    """Everybody who listens, and everything that was sent and nobody took."""

    now: float = 0.0
    listeners: list[Listener] = field(default_factory=list)
    broadcasts: list[tuple[str, int]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def listen(self, stages: list[list[str]], patience: float | None) -> None:
        self.listeners.append(Listener(stages, patience, self.now))
        self._settle(self.listeners[-1])

    def send(self, to: int, name: str, value: int, id: str) -> str:
        """To one run: it takes the event if it waits for it, else keeps it until it does."""
        listener = self.listeners[to]
        if id in self.ids:
            return ""  # applied before: nothing happens, and what is answered is a courtesy
        if listener.status != "open":
            return "TargetEnded"
        self.ids.add(id)
        waits = name in listener.awaits
        listener.mailbox.append((name, value))
        self._settle(listener)
        return "Delivered" if waits else "Queued"

    def broadcast(self, name: str, value: int, id: str, *, to_all: bool) -> str:
        """To the one who has waited longest, or to all who wait; kept if nobody does."""
        if id in self.ids:
            return ""
        self.ids.add(id)
        waiting = sorted((each for each in self.listeners if name in each.awaits), key=lambda each: each.since)
        if not waiting:
            self.broadcasts.append((name, value))
            return "Queued"
        for listener in waiting if to_all else waiting[:1]:
            self._hear(listener, value)
            self._settle(listener)
        return "Delivered"

    def cancel(self, to: int) -> bool:
        listener = self.listeners[to]
        if listener.status != "open":
            return False
        self._end(listener, "cancelled")
        return True

    def wait(self, seconds: float) -> None:
        """Deadlines come in order of time, each with what follows from it."""
        until = self.now + seconds
        while True:
            due = [each for each in self.listeners if each.deadline is not None and each.deadline <= until]
            if not due:
                break
            first = min(due, key=lambda each: each.deadline or 0.0)
            self.now = max(self.now, first.deadline or 0.0)
            self._hear(first, LATE)
            self._settle(first)
        self.now = until

    def _hear(self, listener: Listener, value: int | str) -> None:
        listener.heard.append(value)
        listener.since = self.now
        if len(listener.heard) == len(listener.stages):
            self._end(listener, "completed")

    def _settle(self, listener: Listener) -> None:
        """I51: a new wait looks at what was sent to it first, then at broadcasts; in each, at the oldest."""
        while listener.status == "open":
            for queue in (listener.mailbox, self.broadcasts):
                found = next((each for each in queue if each[0] in listener.awaits), None)
                if found is not None:
                    queue.remove(found)
                    self._hear(listener, found[1])
                    break
            else:
                return

    def _end(self, listener: Listener, status: str) -> None:
        listener.status = status
        listener.mailbox.clear()
