"""Classes by the names that stored data gives them: found among what is loaded, never imported for it."""

from __future__ import annotations

import sys


def loaded_class(qualified: str) -> type | None:
    """The class of this qualified name if its module is loaded; nothing is imported for it."""
    parts = qualified.split(".")
    for end in range(len(parts) - 1, 0, -1):
        found: object = sys.modules.get(".".join(parts[:end]))
        if found is not None:
            for name in parts[end:]:
                found = getattr(found, name, None)
            return found if isinstance(found, type) else None
    return None


def known_exception(qualified: str) -> type[BaseException] | None:
    """The exception class of this qualified name, if its module is loaded."""
    found = loaded_class(qualified)
    return found if found is not None and issubclass(found, BaseException) else None
