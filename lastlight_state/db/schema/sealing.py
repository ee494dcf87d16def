"""Values of columns that a codec of the caller's seals, such as by encryption: what stands in the cell, and its types.

A sealed cell holds an *envelope*: the id of the key, and the bytes that the codec made. It is of the column's own type,
so a column needs no other one beside it, and a cell without an envelope is read as it is. Where no codec is, a value
that looks like an envelope stands in one without a key id, which everybody opens.

=========  ==================================================
column     envelope
=========  ==================================================
JSON       ``{"$sealed":["key id","base64"]}``
bytes      eight bytes that are no text, the key id, the data
=========  ==================================================
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import orjson
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from lastlight_state import codec as json
from lastlight_state.db.schema import columns
from lastlight_state.errors import InvalidValue, SealedValue
from lastlight_state.reprs import shown

#: The only member of an envelope in a column of JSON, and how its text begins.
MEMBER = "$sealed"
_TEXT = f'{{"{MEMBER}":'
#: How an envelope in a column of bytes begins. A byte follows that says how long the key id is.
_MAGIC = b"\xf5LLSEAL\x01"
_MOST_ID = 200
#: The key id of what is not sealed, and only looks as if it were.
_NO_KEY = ""


@runtime_checkable
class Codec(Protocol):
    """An object that turns values into bytes which only it can turn back.

    Called by threads at once, and often: be quick.

    ``encode`` returns the id of the key that it used, and the sealed bytes; ``decode`` gets both. Keys stay with the
    codec: the database has their ids alone. Ids are text of 1 to 200 bytes.
    """

    def encode(self, data: bytes, /) -> tuple[str, bytes]:
        """Return the id of the key, and the sealed data."""

    def decode(self, key_id: str, data: bytes, /) -> bytes:
        """Return what was sealed with this key. May raise anything for a key that it has not."""


class SealedTextJson(columns.TextJson):
    """JSON that may be an envelope, as text."""

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _plain_json_of_text


class SealedBinaryJson(columns.BinaryJson):
    """JSON that may be an envelope, as the driver reads it."""

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _plain_json


class SealedRawBytes(columns.RawBytes):
    """Bytes that may be an envelope."""

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _plain_bytes


SealedJson: TypeEngine[Any] = SealedBinaryJson().with_variant(SealedTextJson(), "sqlite")
SealedBytes: TypeEngine[bytes] = SealedRawBytes()
_JSON, _BYTES = (SealedTextJson, SealedBinaryJson), SealedRawBytes
#: What these types are where nobody asks for a codec.
PLAIN: dict[int, TypeEngine[Any]] = {id(SealedJson): columns.Json, id(SealedBytes): columns.Bytes}


def plain(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    """Return the type of a column as if no codec could seal it."""
    return PLAIN.get(id(kind), kind)


def is_sealable(kind: TypeEngine[Any]) -> bool:
    """True if a codec seals values of this type."""
    return id(kind) in PLAIN


def key_of(value: Any) -> str | None:
    """Return the id of the key of an envelope; None for what is none."""
    parts = envelope(value)
    return None if parts is None else parts[0]


def envelope(value: Any) -> tuple[str, bytes] | None:
    """Return the key id and the sealed data of a stored value; None for one without an envelope."""
    if isinstance(value, bytes):
        if not value.startswith(_MAGIC) or len(value) <= len(_MAGIC):
            return None
        end = len(_MAGIC) + 1 + value[len(_MAGIC)]
        return value[len(_MAGIC) + 1 : end].decode("utf-8", "replace"), value[end:]
    held = value.get(MEMBER) if value.__class__ is dict and len(value) == 1 else None
    if held.__class__ is not list or len(held) != 2:
        return None
    try:
        return str(held[0]), b64decode(held[1], validate=True)
    except (ValueError, TypeError):
        return None


class Sealing:
    """A codec, as converters of parameters and results use it."""

    __slots__ = ("_codec",)

    def __init__(self, codec: Codec) -> None:
        if not isinstance(codec, Codec):
            raise InvalidValue("codec", f"expected encode() and decode(), got {type(codec).__name__}")
        self._codec = codec

    def key_id(self) -> str:
        """Return the id of the key that seals what is written now."""
        return self._encoded(b"")[0]

    def writing(self, kind: TypeEngine[Any]) -> Callable[[Any], Any] | None:
        """Return what makes the cell of a parameter of this type; None where nothing is sealed."""
        return self.json_cell if isinstance(kind, _JSON) else self.bytes_cell if isinstance(kind, _BYTES) else None

    def reading(self, kind: TypeEngine[Any]) -> Callable[[Any], Any] | None:
        """Return what makes the value of a stored cell of this type; None where nothing is sealed."""
        if isinstance(kind, SealedTextJson):
            return lambda text: self.json_value(json.decode(text))
        return self.json_value if isinstance(kind, _JSON) else self.bytes_value if isinstance(kind, _BYTES) else None

    def json_cell(self, text: str) -> str:
        """Return the envelope of JSON, which is given as text, as text."""
        return _json_envelope(*self._encoded(text.encode()))

    def bytes_cell(self, value: bytes) -> bytes:
        """Return the envelope of bytes."""
        return _bytes_envelope(*self._encoded(value))

    def json_value(self, found: Any) -> Any:
        """Return what is in an envelope of JSON; what is no envelope as it is."""
        if found.__class__ is not dict or MEMBER not in found or (parts := envelope(found)) is None:
            return found
        return json.decode(self.opened(*parts))

    def bytes_value(self, found: bytes) -> bytes:
        """Return what is in an envelope of bytes; what is no envelope as it is."""
        parts = envelope(found)
        return found if parts is None else self.opened(*parts)

    def opened(self, key_id: str, data: bytes) -> bytes:
        """Return what was sealed. Raises `SealedValue` where the codec cannot open it."""
        if key_id == _NO_KEY:
            return data
        try:
            found = self._codec.decode(key_id, data)
        except Exception as error:  # the codec is the caller's, and raises what its library does
            raise _sealed(key_id, f"the codec cannot open it: {type(error).__name__}") from error
        if not isinstance(found, bytes):
            raise _sealed(key_id, f"decode() must return bytes, not {type(found).__name__}")
        return found

    def _encoded(self, data: bytes) -> tuple[str, bytes]:
        made: tuple[Any, Any] = self._codec.encode(data)
        key_id, sealed = made
        if not isinstance(key_id, str) or not isinstance(sealed, bytes) or not 1 <= len(key_id.encode()) <= _MOST_ID:
            raise InvalidValue("codec", f"encode() must return a key id of 1 to {_MOST_ID} bytes, and bytes")
        return key_id, sealed


def plain_writing(kind: TypeEngine[Any]) -> Callable[[Any], Any] | None:
    """Return what makes the cell of a parameter where no codec is; None for a type that no codec could seal."""
    return _plain_json_cell if isinstance(kind, _JSON) else _plain_bytes_cell if isinstance(kind, _BYTES) else None


def _plain_json_cell(text: str) -> str:
    if text.startswith(_TEXT) and envelope(json.decode(text)) is not None:
        return _json_envelope(_NO_KEY, text.encode())
    return text


def _plain_bytes_cell(value: bytes) -> bytes:
    return _bytes_envelope(_NO_KEY, value) if value.startswith(_MAGIC) else value


def _json_envelope(key_id: str, data: bytes) -> str:
    return orjson.dumps({MEMBER: [key_id, b64encode(data).decode()]}).decode()


def _bytes_envelope(key_id: str, data: bytes) -> bytes:
    name = key_id.encode()
    return b"".join((_MAGIC, bytes((len(name),)), name, data))


def _unsealed(value: Any) -> bytes | None:
    """Return what is in an envelope without a key id; None for what is no envelope. Raises `SealedValue`."""
    if (parts := envelope(value)) is None:
        return None
    key_id, data = parts
    if key_id != _NO_KEY:
        raise _sealed(key_id, "the store was opened without a codec")
    return data


def _sealed(key_id: str, problem: str) -> SealedValue:
    return SealedValue(f"sealed with the key {shown(key_id)}: {problem}", key_id=key_id)


def _plain_json_of_text(text: str | None) -> Any:
    if text is None:  # a session of SQLAlchemy asks for NULL, too
        return None
    found = json.decode(text)
    return _plain_json(found) if text.startswith(_TEXT) else found


def _plain_json(found: Any) -> Any:
    if found.__class__ is dict and MEMBER in found and (data := _unsealed(found)) is not None:
        return json.decode(data)
    return found


def _plain_bytes(found: bytes | None) -> bytes | None:
    if found is not None and found.startswith(_MAGIC) and (data := _unsealed(found)) is not None:
        return data
    return found
