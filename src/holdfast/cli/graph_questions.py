"""How a question of a state graph's node is answered from a shell."""

from __future__ import annotations

from typing import Any, Final

ANSWER: Final = "ANSWER"  # stands in a command for what only a person can know


def answering(run: str, node: str) -> str:
    """The command that answers; ANSWER is for the person to write."""
    from holdfast.explain.words import command

    return command("resume", run, "--answer", ANSWER, "--node", node)


def read_answer(word: str) -> Any:
    """JSON if it parses as JSON, otherwise the text itself: `true`, `7`, `'{"by": "Ada"}'`, `yes`."""
    from holdfast.cli.arguments import parse_word

    return parse_word(word, Any, "--answer")


__all__ = ["answering", "read_answer"]
