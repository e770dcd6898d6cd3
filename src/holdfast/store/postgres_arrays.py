"""The columns of a batch, each as one value that the server takes apart.

The driver asks each element of an array whether it is an array itself, which takes longer than all the rest of sending
it: a tenth of a step's processor time in a crowd. A text it passes on as it is, and bytes too. JSON is nearly how the
server writes arrays (`{1,null,"a"}` for `[1,null,"a"]`), and msgspec writes it faster than anything else here. Bytes
are put together into one long value, with the places and sizes of its parts: as text they would be twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from holdfast.store.statements import statements

_ARRAY = re.compile(r"\$\?::(\w+)\[\]")
_BYTES = "bytea"


def array_types(sql: str) -> tuple[str, ...]:
    """The types of the arrays that a part of a statement takes, in their order."""
    return tuple(_ARRAY.findall(sql))


def taking_arguments(sql: str) -> str:
    """The part of a statement, with its arrays made from what `array_arguments` says."""
    of_bytes = statements("postgres")["array_of_bytes"]
    return _ARRAY.sub(lambda found: of_bytes if found[1] == _BYTES else f"$?::text::{found[1]}[]", sql)


def array_arguments(kind: str, column: Sequence[Any]) -> Sequence[Any]:
    """What to send for a column of this type. Nothing, if nothing is in it: `unnest` fills up with NULL."""
    if column[0] is None and column.count(None) == len(column):
        return (None,) * (3 if kind == _BYTES else 1)
    if kind == _BYTES:
        sizes = [None if value is None else len(value) for value in column]
        places = list(accumulate([size or 0 for size in sizes[:-1]], initial=1))
        return b"".join(filter(None, column)), _text(places), _text(sizes)
    return (_text(column),)


def _text(column: Sequence[Any]) -> str:
    written = _encode(column)
    if b"\\" in written:
        # JSON has escapes that an array does not know: `\n` would be an n there.
        return "{" + ",".join(map(_quoted, column)) + "}"
    return "{" + written[1:-1].decode() + "}"


def _quoted(value: str | None) -> str:
    return "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(value: Any) -> str | int:
    """Texts and numbers of classes of the user's own, as a key or a queue may be."""
    return str.__str__(value) if isinstance(value, str) else int(value)


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
