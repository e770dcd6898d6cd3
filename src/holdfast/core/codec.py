"""Everything about payloads under one name: import from here, the parts are an arrangement of files.

codec_faithful   would this value come back as itself?
codec_order      sets need an order before they are bytes
codec_hooks      pydantic models and subclasses of plain types
codec_unset      which fields of a pydantic model were given
codec_shape      from an annotation to the way its values travel
codec_formats    JSON and MessagePack
codec_payload    Codecs: values in, bytes out, and back
codec_call       a function's arguments and result
codec_label      results that say themselves how they are written
codec_failure    exceptions as data
codec_failure_parts  what of an exception can be kept
"""

from __future__ import annotations

from holdfast.core.codec_call import CallCodec
from holdfast.core.codec_failure import ErrorRecord, decode_error, encode_error, encode_record
from holdfast.core.codec_faithful import MAX_INT, MAX_NESTING, MIN_INT
from holdfast.core.codec_formats import JSON, MSGPACK, Codec
from holdfast.core.codec_label import (
    ResultCodec,
    decode_stored_result,
    encode_stored_result,
    is_labelled,
    labelled,
    unlabelled,
)
from holdfast.core.codec_payload import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, Codecs, Encoded, codecs_for, digest
from holdfast.core.codec_shape import UNTYPED

__all__ = [
    "DEFAULT_CODECS",
    "DEFAULT_LIMIT_BYTES",
    "JSON",
    "MAX_INT",
    "MAX_NESTING",
    "MIN_INT",
    "MSGPACK",
    "UNTYPED",
    "CallCodec",
    "Codec",
    "Codecs",
    "Encoded",
    "ErrorRecord",
    "ResultCodec",
    "codecs_for",
    "decode_error",
    "decode_stored_result",
    "digest",
    "encode_error",
    "encode_record",
    "encode_stored_result",
    "is_labelled",
    "labelled",
    "unlabelled",
]
