"""From the setting `codec` to codecs, also where it only names one: an environment variable holds no objects."""

from __future__ import annotations

import importlib
import operator

from holdfast.core.codec import Codec, Codecs, codecs_for
from holdfast.core.errors import UsageError


def open_codecs(codec: str | Codec | Codecs) -> Codecs:
    """The codecs that an engine writes and reads with; `module:name` is imported."""
    if not isinstance(codec, str) or ":" not in codec:
        return codecs_for(codec)
    module, _, path = codec.partition(":")
    try:
        found = operator.attrgetter(path)(importlib.import_module(module))
    except Exception as trouble:
        raise UsageError(
            f"codec is {codec!r}, and that cannot be loaded: {trouble!r}",
            hint="write module:name, where the module can be imported here and has that name",
        ) from trouble
    if isinstance(found, str):
        raise UsageError(f"codec is {codec!r}, which is the text {found!r:.80}", hint="name a codec, see hf.Codec")
    return codecs_for(found)
