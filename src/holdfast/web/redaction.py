"""What is not shown: values of fields whose names say that they are secrets.

Only names are looked at, in payloads and, where a text of the engine's or an exception's quotes one (`password='x'`),
in texts. A secret in a field called `note` is shown: the rules are for what authors forgot, not a reason to put secrets
into payloads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from holdfast.core.errors import UsageError

DEFAULT_PATTERNS: Final = ("password", "passwd", "secret", "token", "authorization", "api_?key", "private_?key")
HIDDEN: Final = "[redacted]"
# Ours, and written for people: they quote values that user code returned or raised.
TEXTS: Final = frozenset({"returned", "message", "traceback", "reason", "text", "headline", "error"})
_NAMED: Final = re.compile(
    r"""(?P<before>(?P<quote>["']?)(?P<name>[A-Za-z][\w\-]*)(?P=quote)\s*[:=]\s*)"""
    r"""(?P<value>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,;(){}\[\]'"]+)"""
)


class Redaction:
    """Hides values by the names of their fields: whole words of a name, in any case and any style of writing."""

    def __init__(self, patterns: Iterable[str] = DEFAULT_PATTERNS) -> None:
        words = list(patterns)
        try:
            parts = [f"(?:{re.compile(word).pattern})" for word in words]
        except (re.error, TypeError) as error:
            raise UsageError(
                f"a redaction rule is no regular expression: {error}", hint='give texts, such as redact=["iban", "ssn"]'
            ) from error
        self.is_active = bool(parts)
        # password, db_password, dbPassword, passwords, X-Api-Key; not "tokenizer".
        self._name = re.compile(rf"(?:^|.*[_\-. ])(?:{'|'.join(parts) or '(?!)'})s?", re.IGNORECASE)

    def hides(self, name: str) -> bool:
        """Whether the value of a field of this name is hidden."""
        spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
        return self._name.fullmatch(spread.replace("-", "_")) is not None

    def shown(self, value: Any) -> Any:
        """A value of JSON's types as it may be shown."""
        if not self.is_active:
            return value
        if isinstance(value, dict):
            return {name: self._field(name, each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.shown(each) for each in value]
        return value

    def _field(self, name: Any, value: Any) -> Any:
        if value is not None and isinstance(name, str) and self.hides(name):
            return HIDDEN
        if isinstance(value, str) and name in TEXTS:
            return _NAMED.sub(self._quoted, value)
        return self.shown(value)

    def _quoted(self, found: re.Match[str]) -> str:
        return f"{found['before']}{HIDDEN}" if self.hides(found["name"]) else found[0]


def redaction_of(rules: Iterable[str] | bool | None) -> Redaction:
    """What `redact=` means: None and True the default rules, False none, else these."""
    if rules is None or rules is True:
        return Redaction()
    if rules is False:
        return Redaction(())
    if isinstance(rules, str):
        raise UsageError(f"redact is the text {rules!r:.40}", hint=f"give a list: redact=[{rules!r:.40}]")
    return Redaction(rules)
