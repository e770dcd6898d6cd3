"""What goes wrong, by the world's dice: single calls of a store, and whole processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.reliability.simulation.faults import LEASE_SECONDS
from tests.reliability.simulation.store import for_ever, lost

if TYPE_CHECKING:
    from tests.reliability.simulation.host import Host
    from tests.reliability.simulation.world import World

COMMITS = frozenset({"flush", "transaction", "claim"})
MANY_HOSTS = 3


class Mischief:
    """Asked by every call of a store; and a task of the world that kills and freezes."""

    def __init__(self, world: World) -> None:
        self._world = world

    # -- calls of a store

    async def before(self, host: Host, name: str) -> None:
        faults, draw = self._world.faults, self._world.dice.random
        if faults.delay and draw() < faults.delay:
            await asyncio.sleep(draw() * 0.3)
        if name == "heartbeat" and self._world.loop.time() < host.heart_fails_until:
            raise self._told("heartbeat lost", "in a heartbeat")
        if faults.crash_at_commit and name in COMMITS and draw() < faults.crash_at_commit:
            await self._die(host, "died before a commit")
        if faults.error_before and draw() < faults.error_before:
            raise self._told("error before", "before anything was written")

    async def after(self, host: Host, name: str) -> None:
        faults, draw = self._world.faults, self._world.dice.random
        if faults.crash_at_commit and name in COMMITS and draw() < faults.crash_at_commit:
            await self._die(host, "died after a commit")
        if faults.delay and draw() < faults.delay:
            await asyncio.sleep(draw() * 0.3)
        if faults.error_after and draw() < faults.error_after:
            raise self._told("error after", "and nobody knows whether it was written")

    def is_full(self, host: Host) -> bool:
        faults, now = self._world.faults, self._world.loop.time()
        if faults.full_disk and now >= host.disk_full_until and self._world.dice.random() < faults.full_disk / 4:
            host.disk_full_until = now + self._world.dice.random()
            self._world.ledger.met["disk full"] += 1
        return now < host.disk_full_until and bool(faults.full_disk)

    def _told(self, fact: str, what: str) -> Exception:
        self._world.ledger.met[fact] += 1
        return lost(what)

    async def _die(self, host: Host, fact: str) -> None:
        self._world.ledger.met[fact] += 1
        self._world.kill(host)
        await for_ever()

    # -- processes

    async def rage(self, seconds: float, hosts: int) -> None:
        """Kill, freeze and restart for this long; there are as many processes afterwards as before."""
        world, dice = self._world, self._world.dice
        until = world.loop.time() + seconds
        while world.loop.time() < until:
            await asyncio.sleep(dice.expovariate(2.0 / LEASE_SECONDS))
            faults = world.faults
            for host in list(world.hosts):
                if host.lane.state == "alive":
                    self._strike(host, faults.crash / 3, faults.freeze / 3, faults.hurry / 3, faults.no_heartbeat)
            while len(world.hosts) < hosts and dice.random() < 0.6:
                world.begin_host()
        while len(world.hosts) < hosts:
            world.begin_host()

    def _strike(self, host: Host, crash: float, freeze: float, hurry: float, no_heartbeat: float) -> None:
        world, dice = self._world, self._world.dice
        drawn = dice.random()
        if drawn < crash:
            world.ledger.met["crash"] += 1
            world.kill(host)
        elif drawn < crash + freeze:
            world.ledger.met["frozen"] += 1
            world.note(host, "frozen", "")
            world.loop.freeze(host.lane)
            world.loop.call_later(LEASE_SECONDS * dice.uniform(0.2, 2.5), world.loop.thaw, host.lane)
        elif drawn < crash + freeze + hurry:
            host.stop()
        elif dice.random() < no_heartbeat:
            host.heart_fails_until = world.loop.time() + LEASE_SECONDS * dice.uniform(0.5, 2.0)
