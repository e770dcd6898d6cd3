"""What an explanation is made of: a sentence, and commands that would help."""

from __future__ import annotations

import msgspec

from holdfast.explain.words import command


class Fix(msgspec.Struct, frozen=True):
    """A command that would help, and what for."""

    purpose: str
    command: str

    def __str__(self) -> str:
        return f"{self.purpose}:\n    {self.command}"


class Reason(msgspec.Struct, frozen=True):
    """One line of an explanation, with what to do about it."""

    text: str
    fixes: tuple[Fix, ...] = ()


def fix(purpose: str, *words: str) -> Fix:
    return Fix(purpose, command(*words))
