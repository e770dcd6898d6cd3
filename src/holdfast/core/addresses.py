"""Addresses of databases as they may be shown: in logs, errors and listings."""

from __future__ import annotations

import re

_SECRET_OPTION = r"(?i)([?&](?:password|sslpassword)=)[^&]*"


def redacted(url: str) -> str:
    """The URL without its password, wherever the URL has it."""
    scheme, found, rest = url.partition("://")
    login, at, host = rest.rpartition("@")
    if found and at and ":" in login:
        url = f"{scheme}://{login.partition(':')[0]}:***@{host}"
    return re.sub(_SECRET_OPTION, r"\1***", url)
