"""The workflow that two processes race on: two parents and their child, as a class."""

from __future__ import annotations

import holdfast as hf

registry = hf.Registry()
PARENTS = ("mother", "father")


class Family(hf.Dag, registry=registry, on_failure="pause"):
    """Nobody runs these steps: the racers report what became of them."""

    @hf.step(depends_on=None)
    async def mother(self) -> None: ...

    @hf.step(depends_on=None)
    async def father(self) -> None: ...

    @hf.step(depends_on=["mother", "father"])
    async def child(self) -> None: ...
