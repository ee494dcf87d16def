"""Column types whose values a caller's codec seals, such as by encryption, and the code that opens sealed values.

A sealed cell holds an *envelope* (`lastlight_state.db.schema.envelopes`). A cell without an envelope is read as it is.
Without a codec, a plain value that looks like an envelope is stored in an envelope without a key id, which every store
opens.

If a value is bound to its row, the codec gets a *context* as well: a JSON array of the column's name and the values of
the columns that the column's `Binding` names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import orjson
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from lastlight_state import codec as json
from lastlight_state.db import valid
from lastlight_state.db.schema import columns, envelopes
from lastlight_state.db.schema.envelopes import ALONE, BOUND, MAGIC, NO_KEY, TEXT, Envelope
from lastlight_state.errors import InvalidValue, PayloadTooLarge, SealedValue
from lastlight_state.reprs import repr_of

#: The names of envelopes, for other modules.
MEMBER, BOUND_BYTES, envelope = envelopes.MEMBER, envelopes.BOUND_BYTES, envelopes.envelope
#: The most bytes of a key id, and of one value that a codec has sealed.
MOST_ID, MOST_DATA = 200, 128 * 1024 * 1024
#: The ways to treat a value stored in plain: read it, or refuse it.
Plain = Literal["read", "refuse"]
PLAINS = valid.words(Plain)


@runtime_checkable
class Codec(Protocol):
    """An object that converts values to bytes that only it can convert back.

    Several threads call it at once, and often, so it must be fast. ``encode`` returns the id of the key that it used,
    and the sealed bytes; ``decode`` gets both. Keys stay with the codec: the database stores only their ids. Ids are
    names of 1 to 200 bytes; sealed bytes are at most 128 MiB.
    """

    def encode(self, data: bytes, /) -> tuple[str, bytes]:
        """Seal the data. Return the id of the key that was used, and the sealed data."""

    def decode(self, key_id: str, data: bytes, /) -> bytes:
        """Open data that was sealed with the key of this id. May raise any exception if the key is missing."""


@runtime_checkable
class ContextCodec(Protocol):
    """A `Codec` whose methods also take a ``context``: bytes that are different for each row.

    An authenticated cipher takes the context as associated data, so that a value moved to another row cannot be opened.
    It is empty for a value that was sealed without a context.
    """

    def encode(self, data: bytes, /, *, context: bytes) -> tuple[str, bytes]:
        """Seal the data for this context. Return the id of the key that was used, and the sealed data."""

    def decode(self, key_id: str, data: bytes, /, *, context: bytes) -> bytes:
        """Open data that was sealed with the key of this id for this context. May raise any exception."""


class Binding(NamedTuple):
    """The context of a sealed column: its name, and columns of the row that change only together with the value.

    ``stays_plain`` is true for values that are never sealed. The names are part of the stored format, so they never
    change.
    """

    name: str
    keys: tuple[str, ...]
    stays_plain: Callable[[Any], bool] = lambda _: False

    def context(self, key: Sequence[Any]) -> bytes:
        """Return the context of the row whose ``keys`` columns have these values."""
        return orjson.dumps([self.name, *key])


class SealedTextJson(columns.TextJson):
    """JSON as text, which may be an envelope."""

    cache_ok = True

    def __init__(self, binding: Binding) -> None:
        super().__init__()
        self.binding = binding

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _plain_json_of_text


class SealedBinaryJson(columns.BinaryJson):
    """JSON as the driver decodes it. The value may be an envelope."""

    cache_ok = True

    def __init__(self, binding: Binding) -> None:
        super().__init__()
        self.binding = binding

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _plain_json


class SealedRawBytes(columns.RawBytes):
    """Bytes that may be an envelope."""

    cache_ok = True

    def __init__(self, binding: Binding) -> None:
        super().__init__()
        self.binding = binding

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _plain_bytes


_JSON, _BYTES = (SealedTextJson, SealedBinaryJson), SealedRawBytes


def sealed_json(binding: Binding) -> TypeEngine[Any]:
    """Return the type of a JSON column that may be sealed."""
    return SealedBinaryJson(binding).with_variant(SealedTextJson(binding), "sqlite")


def sealed_bytes(binding: Binding) -> TypeEngine[bytes]:
    """Return the type of a bytes column that may be sealed."""
    return SealedRawBytes(binding)


def plain(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    """Return the column type that stores the same values without sealing."""
    return columns.Json if isinstance(kind, _JSON) else columns.Bytes if isinstance(kind, _BYTES) else kind


def binding_of(kind: TypeEngine[Any]) -> Binding | None:
    """Return the `Binding` of a column type; None if no codec seals the type."""
    return kind.binding if isinstance(kind, (*_JSON, _BYTES)) else None


class Keyed(NamedTuple):
    """A converter that also needs the row's values in the columns ``keys``: ``convert(value, key)``."""

    keys: tuple[str, ...]
    convert: Callable[[Any, Sequence[Any]], Any]


class Sealing:
    """Makes converters of parameters and results from a caller's codec.

    ``binds`` is true if the codec takes a context, so that each sealed value is bound to its row.
    """

    __slots__ = ("_codec", "_refuses", "binds")

    def __init__(self, codec: Codec | ContextCodec, plain: Plain = "read") -> None:
        if not isinstance(codec, Codec):
            raise InvalidValue("codec", f"expected encode() and decode(), got {type(codec).__name__}")
        self._codec: Any = codec
        self._refuses = valid.word("plain", plain, PLAINS) == "refuse"
        takes = [_takes_context(codec.encode), _takes_context(codec.decode)]
        if len({*takes}) == 2:
            raise InvalidValue("codec", "both of encode() and decode() must take a context, or neither")
        self.binds = takes[0]

    def __eq__(self, other: object) -> bool:
        """Return True for the same codec object and setting, so that a reopened store compiles nothing anew."""
        return isinstance(other, Sealing) and self._codec is other._codec and self._refuses == other._refuses

    def __hash__(self) -> int:
        return hash((id(self._codec), self._refuses))

    def key_id(self) -> str:
        """Return the id of the key with which the codec currently seals."""
        return self._seal_data(b"", b"")[0]

    def is_current(self, found: Any, key_id: str) -> bool:
        """True if a stored value is sealed with the key of this id, and in the version that this codec writes."""
        parts = envelope(found)
        return parts is not None and parts.key_id == key_id and parts.version == (BOUND if self.binds else ALONE)

    def sealer_of(self, kind: TypeEngine[Any]) -> Callable[[Any], Any] | Keyed | None:
        """Return the converter that seals a parameter of this type; None if the type is not sealed."""
        binding = binding_of(kind)
        if binding is None:
            return None
        cell = self._json_cell if isinstance(kind, _JSON) else self._bytes_cell
        if not self.binds:
            return lambda value: cell(value, b"")
        return Keyed(binding.keys, lambda value, key: cell(value, binding.context(key)))

    def opener_of(self, kind: TypeEngine[Any]) -> Callable[[Any], Any] | Keyed | None:
        """Return the converter that opens a stored value of this type; None if the type is not sealed."""
        binding = binding_of(kind)
        if binding is None:
            return None
        is_text = isinstance(kind, SealedTextJson)

        def read(found: Any, key: Sequence[Any] = ()) -> Any:
            return self.value(json.decode(found) if is_text else found, binding, key)

        return Keyed(binding.keys, read) if self.binds else read

    def value(self, found: Any, binding: Binding, key: Sequence[Any]) -> Any:
        """Open the value in a cell of the row with this key. Raises `SealedValue`, and ValueError for damage."""
        parts = envelope(found)
        if parts is None:
            if self._refuses and not binding.stays_plain(found):
                raise SealedValue("stands in plain, where a sealed value is expected", key_id=NO_KEY)
            return found
        data = self._open_envelope(parts, binding, key)
        return data if isinstance(found, bytes) else json.decode(data)

    def _open_envelope(self, parts: Envelope, binding: Binding, key: Sequence[Any]) -> bytes:
        version, key_id, data = parts
        if key_id == NO_KEY and version == ALONE:
            if self._refuses:
                raise SealedValue("stands in plain, where a sealed value is expected", key_id=NO_KEY)
            return data
        _refuse_version(version)
        if version == BOUND and not self.binds:
            raise _sealed_error(key_id, "it is bound to its row, and the codec takes no context")
        if version == ALONE and self.binds and self._refuses:
            raise _sealed_error(key_id, "it is not bound to its row")
        context = {"context": binding.context(key) if version == BOUND else b""} if self.binds else {}
        try:
            found = self._codec.decode(key_id, data, **context)
        except Exception as error:  # the caller's codec may raise anything
            raise _sealed_error(key_id, f"the codec cannot open it: {type(error).__name__}") from error
        if not isinstance(found, bytes):
            raise _sealed_error(key_id, f"decode() must return bytes, got {type(found).__name__}")
        return bytes(found)

    def _json_cell(self, text: str, context: bytes) -> str:
        return envelopes.json_envelope(self._version, *self._seal_data(text.encode(), context))

    def _bytes_cell(self, value: bytes, context: bytes) -> bytes:
        return envelopes.bytes_envelope(self._version, *self._seal_data(value, context))

    @property
    def _version(self) -> int:
        return BOUND if self.binds else ALONE

    def _seal_data(self, data: bytes, context: bytes) -> tuple[str, bytes]:
        """Seal data with the codec. Return the key id and bytes.

        Raises `InvalidValue` if they do not fit in an envelope.
        """
        made: Any = self._codec.encode(data, context=context) if self.binds else self._codec.encode(data)
        if not isinstance(made, tuple) or len(made) != 2:
            raise InvalidValue("codec", f"encode() must return a key id and bytes, got {type(made).__name__}")
        key_id, sealed = made
        if not isinstance(key_id, str):
            raise InvalidValue("codec", f"encode() must return a text as key id, got {type(key_id).__name__}")
        if not isinstance(sealed, bytes):
            raise InvalidValue("codec", f"encode() must return bytes behind the key id, got {type(sealed).__name__}")
        if len(sealed) > MOST_DATA:
            raise PayloadTooLarge("codec", limit=MOST_DATA, actual=len(sealed))
        return valid.identifier("codec: the key id of encode()", str.__str__(key_id), MOST_ID), bytes(sealed)


def sealing_of(codec: Codec | ContextCodec | None, plain: Plain) -> Sealing | None:
    """Return the `Sealing` of a store; None without a codec. Raises `InvalidValue`."""
    if codec is not None:
        return Sealing(codec, plain)
    if valid.word("plain", plain, PLAINS) == "refuse":
        raise InvalidValue("plain", "expected a codec beside refuse: without one all contents are plain")
    return None


def _takes_context(method: Callable[..., Any]) -> bool:
    try:
        return "context" in inspect.signature(method).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def plain_writing(kind: TypeEngine[Any]) -> Callable[[Any], Any] | None:
    """Return the converter that a parameter of this type needs without a codec.

    Return None for a type that is never sealed.
    """
    return _plain_json_cell if isinstance(kind, _JSON) else _plain_bytes_cell if isinstance(kind, _BYTES) else None


def _plain_json_cell(text: str) -> str:
    if text.startswith(TEXT) and len(json.decode(text)) == 1:
        return envelopes.json_envelope(ALONE, NO_KEY, text.encode())
    return text


def _plain_bytes_cell(value: bytes) -> bytes:
    return envelopes.bytes_envelope(ALONE, NO_KEY, value) if value.startswith(MAGIC) else value


def _plain_data(value: Any) -> bytes | None:
    """Return the data in an envelope that has no key id. Return None if the value is no envelope.

    Raises `SealedValue`.
    """
    if (parts := envelope(value)) is None:
        return None
    if parts.key_id == NO_KEY and parts.version == ALONE:
        return parts.data
    _refuse_version(parts.version)
    raise _sealed_error(parts.key_id, "the store was opened without a codec")


def _refuse_version(version: int) -> None:
    if version > BOUND:
        raise SealedValue(
            f"is sealed in an envelope of version {version}: this library knows those up to {BOUND}", key_id=NO_KEY
        )


def _sealed_error(key_id: str, problem: str) -> SealedValue:
    return SealedValue(f"is sealed with the key {repr_of(key_id)}: {problem}", key_id=key_id)


def _plain_json_of_text(text: str | None) -> Any:
    if text is None:  # SQLAlchemy sessions convert NULL, too
        return None
    found = json.decode(text)
    return _plain_json(found) if text.startswith(TEXT) else found


def _plain_json(found: Any) -> Any:
    if found.__class__ is dict and MEMBER in found and (data := _plain_data(found)) is not None:
        return json.decode(data)
    return found


def _plain_bytes(found: bytes | None) -> bytes | None:
    if found is not None and found.startswith(MAGIC) and (data := _plain_data(found)) is not None:
        return data
    return found
