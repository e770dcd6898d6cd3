"""Arrays as PostgreSQL writes them: one text for a column of a batch, which the server takes apart.

The driver asks each element of an array whether it is an array itself, which takes longer than all the rest of sending
it: a tenth of a step's processor time in a crowd. One text it passes on as it is. JSON is nearly what the server reads
(`{1,null,"a"}` for `[1,null,"a"]`), and msgspec writes it faster than anything else here. Bytes stay arrays of the
driver's: as text they would have twice their length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

_PARAMETER = re.compile(r"\$\?::(\w+)\[\]")
_BYTES = "bytea"


def array_types(sql: str) -> tuple[str, ...]:
    """The types of the arrays that a part of a statement takes, in their order."""
    return tuple(_PARAMETER.findall(sql))


def of_texts(sql: str) -> str:
    """The part of a statement, with its arrays read from what `array` makes of them."""
    return _PARAMETER.sub(lambda found: found[0] if found[1] == _BYTES else f"$?::text::{found[1]}[]", sql)


def array(kind: str, column: Sequence[Any]) -> str | Sequence[Any] | None:
    """The argument for a column. None if there is nothing in it: `unnest` fills short arrays up with NULL."""
    if column[0] is None and column.count(None) == len(column):
        return None
    if kind == _BYTES:
        return column
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
