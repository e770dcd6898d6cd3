"""What the code of flows logs, written when the completion that ran it is committed, and never for one undone."""

from __future__ import annotations

import logging

from holdfast.coordinator import Commit
from holdfast.core.operations import Changed, Settled, Started

_MAY_HAVE_LOGGED = (Settled, Started, Changed)  # looked at with every operation: a union would be made each time
_ITS_OWN_FRAME = frozenset({"exc_info", "stack_info", "stacklevel"})
"""Keywords about the frame that logs, which is not the author's."""


def write_flow_log(commit: Commit) -> None:
    """Make the calls of loggers that the committed operations ran into."""
    for _, result in commit.pairs:
        if isinstance(result, _MAY_HAVE_LOGGED) and result.logged:
            for each in result.logged:
                kwargs = {name: value for name, value in each.kwargs.items() if name not in _ITS_OWN_FRAME}
                level = "error" if each.level == "exception" else each.level
                getattr(logging.getLogger(each.logger or None), level)(*each.args, **kwargs)
