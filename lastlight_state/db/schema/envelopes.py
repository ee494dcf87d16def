"""What stands in a cell whose value is sealed: its version, the id of the key, and the bytes that the codec made.

An envelope is of the column's own type, so a column needs no other one beside it.

=========  =======================================================================
column     envelope
=========  =======================================================================
JSON       ``{"$sealed":[version,"key id","base64"]}``
bytes      ``F5 4C 4C 53 45 41 4C``, the version, the length of the key id, the key id, the data
=========  =======================================================================

Version 1 is sealed by itself; with an empty key id it holds a plain value that looks like an envelope. Version 2 is
bound to its row: the codec got the context as well, the JSON array of the column's name and the values that the value
is bound to, such as ``["states.value","user/ana","address"]``, in UTF-8 and without spaces. Another version is of a
later library.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, NamedTuple

import orjson

#: The only member of an envelope in a column of JSON, and how its text begins.
MEMBER = "$sealed"
TEXT = f'{{"{MEMBER}":'
#: How an envelope in a column of bytes begins. A byte follows with the version, one with the length of the key id.
MAGIC = b"\xf5LLSEAL"
#: The versions of envelopes: sealed by itself, and bound to its row.
ALONE, BOUND = 1, 2
#: The beginning of the bytes that are bound to a row, for statements.
BOUND_BYTES = MAGIC + bytes((BOUND,))
#: The key id of what is not sealed, and only looks as if it were.
NO_KEY = ""

_DAMAGED = "expected the envelope of a sealed value, found a damaged one"


class Envelope(NamedTuple):
    """The parts of a sealed cell. Of a newer version only its number is known."""

    version: int
    key_id: str
    data: bytes


def envelope(value: Any) -> Envelope | None:
    """Return the envelope in a stored value, None if the value is not sealed. Raises ValueError for a damaged one."""
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
    """Return the text of an envelope in a column of JSON."""
    return orjson.dumps({MEMBER: [version, key_id, b64encode(data).decode()]}).decode()


def bytes_envelope(version: int, key_id: str, data: bytes) -> bytes:
    """Return an envelope in a column of bytes."""
    name = key_id.encode()
    return b"".join((MAGIC, bytes((version, len(name))), name, data))
