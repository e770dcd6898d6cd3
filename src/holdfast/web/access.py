"""Who is asking, and what they may do: tokens, sessions of the page, roles.

Tokens are kept as digests only, and compared in constant time with every one that there is. A session is a random name
for a caller, in a cookie that scripts cannot read; it lives in this process and ends with it.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from holdfast.core.errors import UsageError

SESSION_SECONDS: Final = 12 * 3600
MOST_SESSIONS: Final = 1_000
SHORTEST_TOKEN: Final = 8


class Role(enum.IntEnum):
    """What somebody may do; each role includes those below it. PUBLIC needs nobody at all."""

    PUBLIC = 0
    READ = 1
    OPERATE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Caller(msgspec.Struct, frozen=True):
    """Somebody who was recognised. `name` is what a run's history will say, after "http:"."""

    name: str
    role: Role


LOCAL: Final = Caller("local", Role.ADMIN)


class Access:
    """Recognises callers by what a request carries. Without any token, whoever is on this machine may do everything."""

    def __init__(
        self,
        tokens: Mapping[str, str | Role | Caller],
        *,
        now: Callable[[], float],
        new_name: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self._known = [(_digest(_checked(token)), _caller(given)) for token, given in tokens.items()]
        self._now = now
        self._new_name = new_name
        self._sessions: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    @property
    def is_open(self) -> bool:
        """Whether no token is known, so that only the machine itself is let in."""
        return not self._known

    def by_token(self, token: str) -> Caller | None:
        """The caller whose token this is."""
        given, found = _digest(token), None
        for digest, caller in self._known:  # all of them, so that the time tells nothing
            if hmac.compare_digest(digest, given):
                found = caller
        return found

    def by_session(self, name: str) -> Caller | None:
        """The caller who opened this session, while it lasts."""
        session = self._sessions.get(_digest(name))
        return session[0] if session is not None and session[1] > self._now() else None

    def by_address(self, host: str | None) -> Caller | None:
        """Whoever is on this machine, if there is no token to ask for."""
        return LOCAL if self.is_open and host is not None and is_loopback(host) else None

    def open_session(self, caller: Caller) -> str:
        """A new session's name; the oldest one makes room."""
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)
        name = self._new_name()
        self._sessions[_digest(name)] = (caller, self._now() + SESSION_SECONDS)
        return name

    def close_session(self, name: str) -> None:
        self._sessions.pop(_digest(name), None)


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own and nobody else's."""
    bare = host.strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare.lower() == "localhost"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _checked(token: object) -> str:
    if not isinstance(token, str) or len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise UsageError(
            f"a token has fewer than {SHORTEST_TOKEN} characters, or some that a header cannot carry",
            hint="make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return token


def _caller(given: object) -> Caller:
    if isinstance(given, Caller):
        return given
    try:
        role = given if isinstance(given, Role) else Role[str(given).upper()]
    except KeyError:
        raise UsageError(
            f"there is no role {given!r:.40}", hint="give read, operate or admin, or a Caller with a name"
        ) from None
    if role is Role.PUBLIC:
        raise UsageError("a token cannot have the role public", hint="give read, operate or admin")
    return Caller(role.word, role)
