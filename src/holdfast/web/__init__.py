"""The HTTP interface and the page: `create_app` for an ASGI server of one's own, `serve` for one that comes along.

Needs the extra `holdfast[ui]`; nothing else of Holdfast imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.web.access import Caller, Role
    from holdfast.web.app import create_app
    from holdfast.web.serving import serve

__all__ = ["Caller", "Role", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    """Loaded when it is used: whoever mounts the application needs no server of ours."""
    if name in ("Caller", "Role"):
        from holdfast.web import access

        return getattr(access, name)
    if name == "create_app":
        from holdfast.web.app import create_app

        return create_app
    if name == "serve":
        from holdfast.web.serving import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
