"""Hello, durably: stop it at any moment, run it again, and it goes on where it was.

    python examples/hello.py Ada

State goes to holdfast.db in the current directory. A second run with the same name finds the results that are stored
there and runs nothing; another name is another run.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf


@hf.action
async def greet(name: str) -> str:
    """An action is a function with side effects. On its own it is a run of one node."""
    print(f"  (greeting {name})")
    return f"Hello, {name}!"


class Breakfast(hf.Dag):
    """A class is a graph: a step follows the one above it, a task waits for what it names."""

    guest: str

    @hf.step
    async def boil_water(self) -> None:
        await self.do("boiling water")

    @hf.step
    async def brew_tea(self) -> None:
        await self.do("brewing tea")

    @hf.task(depends_on=None)
    async def toast_bread(self) -> None:
        await self.do("toasting bread")

    @hf.step(also_depends_on="toast_bread")
    async def serve(self) -> None:
        await self.do(f"serving {self.guest}")

    async def do(self, what: str) -> None:
        print(f"  {what} …", flush=True)
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "Ada"
    print(hf.run(greet, name, key=f"greet-{name}"))
    hf.run(Breakfast(guest=name), key=f"breakfast-{name}")
    print("Breakfast is served.")
