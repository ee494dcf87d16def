"""The stored form of a sealed value: an envelope with a version, the id of the key, and the codec's bytes.

An envelope has the column's own type, so a sealed column needs no second column.

=========  =======================================================================
column     envelope
=========  =======================================================================
JSON       ``{"$sealed":[version,"key id","base64"]}``
bytes      ``F5 4C 4C 53 45 41 4C``, the version, the length of the key id, the key id, the data
=========  =======================================================================

Version 1 is sealed without a context. With an empty key id, it holds a plain value that looks like an envelope. Version
2 is bound to its row: the codec got a context as well. The context is a JSON array in UTF-8 without spaces: the
column's name and the values that the sealed value is bound to, such as ``["states.value","user/ana","address"]``. Any
other version was written by a later library.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, NamedTuple

import orjson

#: The only member of an envelope in a JSON column, and the beginning of the envelope's text.
MEMBER = "$sealed"
TEXT = f'{{"{MEMBER}":'
#: The beginning of an envelope in a bytes column. The next byte is the version, then the length of the key id.
MAGIC = b"\xf5LLSEAL"
#: The versions of envelopes: sealed without a context, and bound to a row.
ALONE, BOUND = 1, 2
#: The beginning of an envelope of bytes that is bound to a row, for statements.
BOUND_BYTES = MAGIC + bytes((BOUND,))
#: The key id of an envelope that holds a plain value, which only looks like an envelope.
NO_KEY = ""

_DAMAGED = "expected the envelope of a sealed value, found a damaged one"


class Envelope(NamedTuple):
    """The parts of a sealed cell. For a version newer than this library, only the version's number is known."""

    version: int
    key_id: str
    data: bytes


def envelope(value: Any) -> Envelope | None:
    """Parse the envelope in a stored value. Return None if the value is not sealed.

    Raises ValueError for a damaged envelope.
    """
    if isinstance(value, bytes):
        return _bytes_parts(value) if value.startswith(MAGIC) else None
    if value.__class__ is not dict or len(value) != 1 or MEMBER not in value:
        return None
    match value[MEMBER]:
        case [int(version), str(key_id), str(text)] if version in (ALONE, BOUND):
            return Envelope(version, key_id, b64decode(text, validate=True))
        case [int(version), *_] if version > BOUND:
            return Envelope(version, "", b"")
    raise ValueError(_DAMAGED)


def _bytes_parts(value: bytes) -> Envelope:
    version, start = value[len(MAGIC)] if len(value) > len(MAGIC) else 0, len(MAGIC) + 2
    if version > BOUND:
        return Envelope(version, "", b"")
    end = start + value[start - 1] if len(value) >= start else 0
    if version < ALONE or not start <= end <= len(value):
        raise ValueError(_DAMAGED)
    return Envelope(version, value[start:end].decode(), value[end:])


def json_envelope(version: int, key_id: str, data: bytes) -> str:
    """Return an envelope as the text that a JSON column stores."""
    return orjson.dumps({MEMBER: [version, key_id, b64encode(data).decode()]}).decode()


def bytes_envelope(version: int, key_id: str, data: bytes) -> bytes:
    """Return an envelope as the bytes that a bytes column stores."""
    name = key_id.encode()
    return b"".join((MAGIC, bytes((version, len(name))), name, data))
