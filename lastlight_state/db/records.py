"""What callers get: frozen pydantic models, built without validation from what our own columns hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
R = TypeVar("R", bound="Record")

_new = object.__new__
#: The four slots of a pydantic model, filled without a look-up by name for each record.
_set_values, _set_given, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def made(kind: type[R], values: dict[str, Any]) -> R:
    """The record of values that are known to be right, and complete. Takes the dict over.

    The same as ``model_construct`` without its walk over the fields, which costs more than the query.
    """
    record = _new(kind)
    _set_values(record, values)
    _set_given(record, kind._every_field)
    _set_extra(record, None)
    _set_private(record, None)
    return record


class Record(BaseModel):
    """Base of all records: immutable, compared by value, JSON in and out with ``model_dump_json`` and its inverse."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    _every_field: ClassVar[set[str]] = set()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._every_field = set(cls.model_fields)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """The record of a row's values, as `made`; a subclass may bring them into its shape first."""
        return made(cls, values)


class Page(Record, Generic[T]):
    """Some of a list, in its order. ``next_page_token`` is None at the end."""

    items: tuple[T, ...]
    next_page_token: str | None = None

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
