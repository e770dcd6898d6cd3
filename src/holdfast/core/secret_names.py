"""Names of fields whose values are secrets: left out of recorded calls, and not shown by the server and its page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

SECRETS: Final = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "cookie",
    "authorization",
    "api_?key",
    "private_?key",
)
"""Regular expressions, for names whose words have underscores between them."""

# Secrets wherever they stand in a name: aws_secret_access_key, passwordHash. A token's name says so with its last word:
# max_tokens and token_count are no secrets, and tell one request to a model from another.
_ANYWHERE: Final = re.compile("(?i)authorization|api_?key|password|passwd|secret|access_?token|private_?key")


def spread(name: str) -> str:
    """The words of a name with underscores between them: dbPassword and db-password are db_Password and db_password."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_")


def ending_with(words: Iterable[str], plural: str = "") -> re.Pattern[str]:
    """What matches a spread name whose last words are one of these: db_password, and not passwordless."""
    return re.compile(rf"(?:^|.*[_\-. ])(?:{'|'.join(words) or '(?!)'}){plural}", re.IGNORECASE)


_LAST: Final = ending_with(SECRETS)


def is_secret(name: str) -> bool:
    """Whether what is under this name is never stored with a recorded call."""
    return bool(_ANYWHERE.search(name.replace("-", "_")) or _LAST.fullmatch(spread(name)))
