"""What every request meets before it is looked at: the right host, the right origin, and headers on the way back.

A page of another site can make a browser send requests here, with the cookie or from this very machine. Two things
stop it. A name that was pointed at this machine (DNS rebinding) is not among the hosts that are allowed. And what
changes anything must come from this very origin, as JSON, which a browser lets no other site send unasked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from holdfast.web.refusals import Refused

if TYPE_CHECKING:
    from starlette.types import Receive

BODY_LIMIT_BYTES: Final = 4 * 1024 * 1024
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS: Final = "*addresses"  # any numeric address, and no name: a rebinding needs a name
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

SECURITY_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"worker-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def check_host(host: str, allowed: Collection[str]) -> None:
    """Refuse a request that was sent to another name than ours."""
    name = _host_name(host)
    if name in allowed or (ANY_ADDRESS in allowed and _is_address(name)):
        return
    raise Refused(
        421,
        "WrongHost",
        f"this server is not {host[:80]!r}",
        "use an address that it was started with, or allow the name with allowed_hosts=[…]",
    )


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Refuse what another site makes a browser send."""
    site = headers.get("sec-fetch-site", "")
    if method in SAFE_METHODS:
        # A link from elsewhere may open the page; nothing of ours is for other sites to embed.
        if site == "cross-site" and headers.get("sec-fetch-mode") not in ("navigate", None):
            raise _foreign("another site")
        return
    if site not in ("", "same-origin", "none"):
        raise _foreign("another site")
    origin = headers.get("origin")
    if origin is not None and _origin_host(origin) != headers.get("host", "").lower():
        raise _foreign(origin[:80])


def check_json(headers: Mapping[str, str]) -> None:
    """Refuse a body that is not called JSON, even if it is empty: a form of another site cannot call it so."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Refused(
            415,
            "NotJson",
            f"the content type is {media[:60] or 'not given'}",
            "send the header Content-Type: application/json, also without a body",
        )


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int = BODY_LIMIT_BYTES) -> bytes:
    """The body, if it is not larger than it may be."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "Gone", "the client went away", "send it again")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limit: int) -> Refused:
    return Refused(
        413, "TooLarge", f"the body has more than {limit:,} bytes", "store the data elsewhere and send a reference"
    )


def _foreign(who: str) -> Refused:
    return Refused(
        403,
        "WrongOrigin",
        f"{who} asked for this, and only this server's own page and programs may",
        "open the page itself; a program sends no Origin",
    )


def _host_name(host: str) -> str:
    """The name without the port, in lower case, an IPv6 address without its brackets."""
    lowered = host.strip().lower()
    if lowered.startswith("["):
        return lowered[1:].partition("]")[0]
    name, colon, port = lowered.rpartition(":")
    return name if colon and port.isdecimal() else lowered


def _origin_host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
