"""What is not shown: values of fields whose names say that they are secrets.

Only names are looked at, in payloads and, where a text of the engine's or an exception's quotes one (`password='x'`),
in texts. A secret in a field called `note` is shown: the rules are for what authors forgot, not a reason to put secrets
into payloads. The fields of our own answers are no payloads: a rule for `name` leaves a workflow its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec

from holdfast.core.errors import UsageError
from holdfast.core.secret_names import SECRETS, ending_with, spread

HIDDEN: Final = "[redacted]"
# Ours, and written for people: they quote values that user code returned or raised.
TEXTS: Final = frozenset({"returned", "message", "traceback", "reason", "text", "headline", "error"})
_NAMED: Final = re.compile(
    r"""(?P<before>(?P<quote>["']?)(?P<name>[A-Za-z][\w\-]*)(?P=quote)\s*[:=]\s*)"""
    r"""(?P<value>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,;(){}\[\]'"]+)"""
)


class Redaction:
    """Hides values by the names of their fields: whole words of a name, in any case and any style of writing."""

    def __init__(self, patterns: Iterable[str] = SECRETS) -> None:
        words = list(patterns)
        try:
            parts = [f"(?:{re.compile(word).pattern})" for word in words]
        except (re.error, TypeError) as error:
            raise UsageError(
                f"a redaction rule is no regular expression: {error}", hint='give texts, such as redact=["iban", "ssn"]'
            ) from error
        self.is_active = bool(parts)
        # password, db_password, dbPassword, passwords, X-Api-Key; not "tokenizer".
        self._name = ending_with(parts, plural="s?")

    def hides(self, name: str) -> bool:
        """Whether the value of a field of this name is hidden."""
        return self._name.fullmatch(spread(name)) is not None

    def shown(self, value: Any) -> Any:
        """An answer of ours, or a value, as it may be shown: in JSON's types."""
        if not self.is_active:
            return msgspec.to_builtins(value)
        if isinstance(value, dict):
            return {name: self._field(name, each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.shown(each) for each in value]
        if isinstance(value, msgspec.Struct) and type(value).__module__.startswith("holdfast."):
            return {
                shown: getattr(value, name) if is_count else self._named(name, getattr(value, name))
                for name, shown, is_count in _own_fields(type(value))
            }
        plain = msgspec.to_builtins(value)
        return self.shown(plain) if isinstance(plain, dict | list) else plain

    def _field(self, name: Any, value: Any) -> Any:
        if value is not None and isinstance(name, str) and self.hides(name):
            return HIDDEN
        return self._named(name, value)

    def _named(self, name: Any, value: Any) -> Any:
        if isinstance(value, str) and name in TEXTS:
            return _NAMED.sub(self._quoted, value)
        return self.shown(value)

    def _quoted(self, found: re.Match[str]) -> str:
        return f"{found['before']}{HIDDEN}" if self.hides(found["name"]) else found[0]


@cache
def _own_fields(answer: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """The fields of an answer: the name, how it is written, and whether it counts things by names that are ours too."""
    fields = msgspec.structs.fields(answer)
    return tuple((field.name, field.encode_name, field.type == dict[str, int]) for field in fields)


def pattern_of(name: str) -> str:
    """The rule that hides fields of this name, in which a star stands for any text."""
    return ".*".join(re.escape(part) for part in spread(name).split("*"))


def redaction_of(rules: Iterable[str] | bool | None) -> Redaction:
    """What `redact=` means: None and True the default rules, False none, else these."""
    if rules is None or rules is True:
        return Redaction()
    if rules is False:
        return Redaction(())
    if isinstance(rules, str):
        raise UsageError(f"redact is the text {rules!r:.40}", hint=f"give a list: redact=[{rules!r:.40}]")
    return Redaction(rules)
