"""Records that callers receive: frozen pydantic models, built from the library's columns without validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from pydantic import VERSION, BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.codec import exact_text

T = TypeVar("T")
R = TypeVar("R", bound="Record")

#: The fields that a record's repr shows if it has them: those that identify it, and its status. Never contents.
TELLING = frozenset(
    "id run_id fire_id execution_id session_id name workflow_name cron_name skill gate node_id iteration loop_id slug "
    "kind role status outcome state source owner epoch seq phase current_phase created created_at started_at at "
    "lease_expires_at".split()
)
#: The most characters of a text in a repr.
_SHORT = 80
_NUMBERS = (int, float, Decimal)
_SCALARS = (str, *_NUMBERS, datetime)

_new, _new_tuple = object.__new__, tuple.__new__
#: The four slots of a pydantic model. Setting them by their descriptors saves a look-up by name for each record.
_set_values, _set_given, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def make_record(kind: type[R], values: Any, private: dict[str, Any] | None = None) -> R:
    """Return a record of values that are known to be valid and complete. It keeps the given dicts without copying them.

    The result equals that of ``model_construct``, but without its loop over the fields, which costs more than the
    query.
    """
    record = _new(kind)
    _set_values(record, values)
    _set_given(record, kind._every_field)
    _set_extra(record, None)
    _set_private(record, private)
    return record


def with_values(record: R, **values: Any) -> R:
    """Return a record like this one, with other values in these fields."""
    return make_record(type(record), {**record.__dict__, **values})


def _make_built(kind: type[R], values: Any, private: dict[str, Any] | None = None) -> R:
    """Return the same as `make_record`, for a record class that pydantic has already built."""
    if not kind.__pydantic_complete__:
        kind.model_rebuild()
    return _make_plain(kind, values, private)


if tuple(map(int, VERSION.split(".")[:2])) < (2, 14):
    # These classes cannot serialize a record inside another one if its own class was never used by itself.
    _make_plain, make_record = make_record, _make_built


def _time_text(moment: datetime) -> str:
    return iso_text(aware_utc("time", moment))


#: The serializers of values that JSON does not have, by the type of their schema.
_WRITTEN = {
    "timedelta": core_schema.plain_serializer_function_ser_schema(timedelta.total_seconds, when_used="json"),
    "datetime": core_schema.plain_serializer_function_ser_schema(_time_text, when_used="json"),
    "decimal": core_schema.plain_serializer_function_ser_schema(exact_text, when_used="json"),
}


class Record(BaseModel):
    """Base of all records: immutable, compared by value, written as JSON by ``model_dump_json`` and read back.

    The JSON has times in the spelling of the database (``2026-02-03T12:34:56.789Z``), durations in seconds, and exact
    amounts as text. The repr shows the record's identity and status, never contents.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True, ser_json_timedelta="float")

    _every_field: ClassVar[set[str]] = set()
    #: Fields that `of` computes, and columns that it needs for that.
    _computed: ClassVar[frozenset[str]] = frozenset()
    _consumed: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._every_field = set(cls.model_fields)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _write_alike(schema, handler, set())
        return schema

    @classmethod
    def of(cls, values: Any) -> Self:
        """Return the record of a row's values by column, as `make_record`. A subclass may convert them first."""
        return make_record(cls, values)

    def __hash__(self) -> int:
        """Return a hash of the record's type, texts, numbers and times, so that records can be members of sets."""
        values = self.__dict__
        return hash((type(self), *(values.get(name) for name in type(self).model_fields if _hashes(values.get(name)))))

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        values = self.__dict__
        telling = [(name, _repr_value(value)) for name, value in values.items() if _tells(name, value)]
        yield from telling or ((name, value) for name, value in values.items() if isinstance(value, _NUMBERS))


def needed_columns(record: type[Record]) -> set[str]:
    """Return the names of the columns that ``record.of`` needs."""
    return (record._every_field - record._computed) | record._consumed


def row_maker(kind: Any) -> Callable[[dict[str, Any]], Any] | None:
    """Return the function that makes a row of this type from a dict of its columns, or None if the dict is the row."""
    if issubclass(kind or dict, tuple):
        return lambda values: _new_tuple(kind, values.values())
    of: Any = getattr(kind, "of", None)
    return partial(make_record, kind) if getattr(of, "__func__", None) is vars(Record)["of"].__func__ else of


def make_rows(kind: Any, make: Callable[[dict[str, Any]], Any] | None, rows: list[Any]) -> list[Any]:
    """Return the rows of a type, made from dicts of their columns by ``make``, its `row_maker`."""
    if make is None:
        return rows
    if issubclass(kind, tuple):  # without a call of Python for each row
        return [*map(_new_tuple, repeat(kind), map(dict.values, rows))]
    return [*map(make, rows)]


class DamagedRow(Record):
    """An unreadable row of a list: its table and key, and the damaged column. `get` of this row raises."""

    table: str
    key: Any
    column: str
    problem: str


class Page(Record, Generic[T]):
    """A page of a list, in its order. ``next_page_token`` is None on the last page.

    ``damaged`` are the unreadable rows of this part of the list. They do not hide any other row.
    """

    items: tuple[T, ...]
    next_page_token: str | None = None
    damaged: tuple[DamagedRow, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        return make_record(cls, {"damaged": (), **values})

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "items", len(self.items)
        yield "more", self.next_page_token is not None
        if self.damaged:
            yield "damaged", len(self.damaged)


def _hashes(value: Any) -> bool:
    return isinstance(value, _SCALARS)


def _tells(name: str, value: Any) -> bool:
    return isinstance(value, Record) or (name in TELLING and isinstance(value, _SCALARS))


def _repr_value(value: Any) -> Any:
    """Return a value as it appears in a repr: a time as in JSON, a long text cut off."""
    if isinstance(value, datetime):
        return iso_text(value)
    return value[:_SHORT] + "…" if isinstance(value, str) and len(value) > _SHORT else value


def _write_alike(schema: Any, handler: GetCoreSchemaHandler, seen: set[str]) -> None:
    """Give every time and amount in a schema the same serializer, also inside dataclasses."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _write_alike(part, handler, seen)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "definition-ref" and schema["schema_ref"] not in seen:
            seen.add(schema["schema_ref"])
            _write_alike(handler.resolve_ref_schema(cast(CoreSchema, schema)), handler, seen)
        elif isinstance(kind, str) and kind in _WRITTEN:  # a dict of fields may contain a field called type
            schema["serialization"] = _WRITTEN[kind]
        for part in schema.values():
            _write_alike(part, handler, seen)
