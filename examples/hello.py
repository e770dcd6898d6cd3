"""Hello, durably: kill it while it sleeps, run it again, and it goes on where it was.

    python examples/hello.py Ada

State goes to holdfast.db in the current directory. A second run with the same name finds the result that is stored
there and runs nothing; another name is another run.
"""

from __future__ import annotations

import sys

import holdfast as hf


@hf.action
async def greet(name: str) -> str:
    """An action is where the world is touched. What it returns is recorded, and it is not called again."""
    print(f"  (greeting {name})", flush=True)
    return f"Hello, {name}!"


@hf.workflow
async def hello(name: str) -> str:
    """A workflow is an async function that goes on after a crash, because what it awaited is recorded."""
    first = await greet(name)
    await hf.sleep(seconds=1)  # a process that dies here changes nothing: the time is kept
    return first + " Welcome back."


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "Ada"
    print(hf.run(hello, name, key=f"hello-{name}"))
