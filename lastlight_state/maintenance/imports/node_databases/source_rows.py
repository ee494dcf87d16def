"""Reads one row of the source. Each value is checked like a new value, and a refusal names the value."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.cells import Check, Row
from lastlight_state.maintenance.imports.lenient import ADAPTED, as_text, decode_json
from lastlight_state.settings import Limits

T = TypeVar("T")

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
#: The suffix of columns that hold JSON.
_JSON = "_json"
#: The most bytes of an id that is made here.
_ID = 256


class Terms:
    """The options for reading the rows of one unit, and counts for ``noticed``."""

    def __init__(self, limits: Limits, *, lenient: bool) -> None:
        self.limits = limits
        self.lenient = lenient
        self.noticed: Counter[str] = Counter()


class SourceRow:
    """A row of a table of the source.

    ``adapts`` says that the row made from it has a place for texts. A lenient import keeps refused values there.
    """

    def __init__(self, terms: Terms, table: str, row: Row, key: str, *, adapts: bool = False) -> None:
        self.row = row
        self.terms = terms
        self._where = f"{table} {row.get(key)!s:.80}"
        self._adapts = adapts and terms.lenient
        self._texts: dict[str, str] = {}

    def must(self, name: str, check: Check) -> Any:
        """Return the checked value of a column that must not be NULL. It is never adapted."""
        value = self.row.get(name)
        if value is None:
            raise InvalidValue(f"{self._where}.{name}", "must not be NULL")
        return check(f"{self._where}.{name}", value)

    def may(self, name: str, check: Check) -> Any:
        """Return a column's checked value, None for NULL, a missing column and an adapted value."""
        value = self.row.get(name)
        if value is None:
            return None
        try:
            return check(f"{self._where}.{name}", value)
        except InvalidValue:
            if not self._adapts:
                raise
            self._texts[name] = as_text(value)
            self.terms.noticed[ADAPTED] += 1
            return None

    def json(self, name: str, max_bytes: int, kind: type | tuple[type, ...] = object) -> Any:
        """Return the decoded value of a JSON column, None for NULL."""

        def check(where: str, value: Any) -> Any:
            found = decode_json(where, value, self.terms.noticed if self.terms.lenient else None)
            if not isinstance(found, kind):
                raise InvalidValue(where, f"a value of type {type(found).__name__} has no place")
            codec.encode(where, found, max_bytes=max_bytes)
            return found

        return self.may(name, check)

    def other_values(self, placed: Collection[str], max_bytes: int) -> Row | None:
        """Return the values of columns that have no column here, with adapted values; None if there are none."""
        found: Row = {}
        for name, value in self.row.items():
            if name in placed or value is None:
                continue
            is_json = name.endswith(_JSON)
            read = self.json(name, max_bytes) if is_json else self.may(name, _plain)
            found[name.removesuffix(_JSON) if is_json else name] = read
        return self.add_adapted({name: value for name, value in found.items() if value is not None}, max_bytes)

    def add_adapted(self, found: Mapping[str, Any], max_bytes: int) -> Row | None:
        """Return ``found`` with the texts of adapted values; None if there is neither."""
        whole = {**found, ADAPTED: self._texts} if self._texts else dict(found)
        codec.encode(self._where, whole, max_bytes=max_bytes)
        return whole or None


def moment(where: str, value: Any) -> datetime:
    """Convert whole milliseconds since 1970 to a time."""
    if not isinstance(value, int | float) or value != value // 1:
        raise InvalidValue(where, "expected a whole number of milliseconds")
    try:
        return aware_utc(where, _BEGIN + timedelta(milliseconds=value))
    except OverflowError:
        raise InvalidValue(where, "must be a time within the years 1 to 9999") from None


def map_word(words: Mapping[str, T], where: str, value: Any) -> T:
    """Return the library's word for a word of the source."""
    if not isinstance(value, str) or value not in words:
        raise InvalidValue(where, f"expected a known word, got {value!r:.80}", permitted=sorted(words))
    return words[value]


def id_of(run_id: str, *parts: Any) -> str:
    """Return an id for a row without an id: its parts joined, or their SHA-256 if that is too long or ambiguous."""
    plain = ":".join(map(str, (run_id, *parts)))
    if ":" not in run_id and len(plain.encode()) <= _ID:
        return plain
    return hashlib.sha256(codec.encode_sound([run_id, *parts])).hexdigest()


def fit_text(text: str, max_bytes: int) -> str:
    """Return the text, or its SHA-256 if it is too long."""
    data = text.encode()
    return text if len(data) <= max_bytes else hashlib.sha256(data).hexdigest()


def _plain(where: str, value: Any) -> Any:
    codec.encode_bytes(where, value)
    return value
