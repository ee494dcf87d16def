"""What callers get: frozen pydantic models, built without validation from what our own columns hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")

_set = object.__setattr__


class Record(BaseModel):
    """Base of all records: immutable, compared by value, JSON in and out with ``model_dump_json`` and its inverse."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    _every_field: ClassVar[set[str]] = set()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._every_field = set(cls.model_fields)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """The record of values that are known to be right, and complete. Takes the dict over.

        The same as ``model_construct`` without its walk over the fields, which costs more than the query.
        """
        record = cls.__new__(cls)
        _set(record, "__dict__", values)
        _set(record, "__pydantic_fields_set__", cls._every_field)
        _set(record, "__pydantic_extra__", None)
        _set(record, "__pydantic_private__", None)
        return record


class Page(Record, Generic[T]):
    """Some of a list, in its order. ``next_page_token`` is None at the end."""

    items: tuple[T, ...]
    next_page_token: str | None = None

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
