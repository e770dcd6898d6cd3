"""The command line. Commands live in modules of their own, loaded when they are asked for.

Only click is imported here: the engine, a driver and rich come with the command that needs them, so
that `holdfast --help` answers at once.
"""

from __future__ import annotations

from holdfast.cli.program import program


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its code."""
    program()


__all__ = ["main", "program"]
