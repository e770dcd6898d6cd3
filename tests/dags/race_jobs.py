"""The workflows that two processes race on: parents and their child, as classes."""

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


class LargeFamily(hf.Dag, registry=registry, on_failure="pause"):
    """The same with an aunt who is done before the race begins: the child's row exists then, and is counted in."""

    @hf.step(depends_on=None)
    async def mother(self) -> None: ...

    @hf.step(depends_on=None)
    async def father(self) -> None: ...

    @hf.step(depends_on=None)
    async def aunt(self) -> None: ...

    @hf.step(depends_on=["mother", "father", "aunt"])
    async def child(self) -> None: ...
