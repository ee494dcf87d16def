"""Keyset pages: each page costs the same, however far from the start it is. Page tokens are opaque.

A token has the key of the last row of its page, and a digest of the list and filters. So another list refuses the
token, and so does the same list with other filters. There is no offset and no total.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from types import UnionType
from typing import Any, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

import orjson
import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.rows.records import DamagedRow, Page
from lastlight_state.db.rows.statements import RowT, has_damage
from lastlight_state.db.schema.columns import key_type, parse_time
from lastlight_state.db.units.unit import FoundRows
from lastlight_state.errors import Conflict, CorruptData, InvalidValue

# Opaque texts that callers hand back: cursors and page tokens.


def pack(value: Any) -> str:
    """Encode a JSON value as an opaque text. Times in the value become texts."""
    return base64.urlsafe_b64encode(orjson.dumps(value, option=orjson.OPT_UTC_Z)).decode().rstrip("=")


#: Makes the characters of the standard Base64 alphabet invalid. Python before 3.15 accepts them as well.
_OTHER_ALPHABET = str.maketrans("+/", "!!")


def unpack(where: str, text: str) -> Any:
    """Return the value that `pack` encoded. Raises `InvalidValue` for any other text."""
    try:
        padded = (text + "=" * (-len(text) % 4)).translate(_OTHER_ALPHABET)
        return orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError):
        raise token_error(where) from None


def token_error(where: str) -> InvalidValue:
    """Return the error for a text that `pack` did not produce, or that was changed afterwards."""
    return InvalidValue(where, "expected a token of an earlier call: this one is damaged, or made by something else")


# All pages of a list, one item after the other.
#
# If a list is not ordered by its keys, its pages can lead back to a page that was already read. Reading on would never
# end, so it stops with an error.

T = TypeVar("T")
P = ParamSpec("P")

_log = logging.getLogger("lastlight_state.db")


def iterate(listing: Callable[P, Page[T]], /, *args: P.args, **given: P.kwargs) -> Iterator[T]:
    """Yield the items of all pages of a list: ``iterate(store.workflows.runs.list, statuses=["running"])``.

    Takes the list method and its arguments. ``limit`` is the size of a page. A page is read when its first item is
    needed. Rows that are added or removed meanwhile may or may not be among the items. No row is yielded twice, unless
    its place in the order changed. Rows that cannot be read are logged and skipped. Raises `Conflict` ``walk_repeats``
    if the next page is one that was read before.
    """
    for page in pages_of(listing, *args, **given):
        yield from _sound(page)


def pages_of(listing: Callable[P, Page[T]], /, *args: P.args, **given: P.kwargs) -> Iterator[Page[T]]:
    """Yield the pages of a list, under the same rules as `iterate`."""
    read: Callable[..., Page[T]] = listing
    asked: dict[str, Any] = dict(given)
    walk = _Walk()
    while True:
        page = read(*args, **asked)
        yield page
        if page.next_page_token is None:
            return
        asked["page_token"] = walk.further(page.next_page_token)


async def aiterate(listing: Callable[P, Awaitable[Page[T]]], /, *args: P.args, **given: P.kwargs) -> AsyncIterator[T]:
    """Yield the items of all pages of a list of an `AsyncStateStore`, under the same rules as `iterate`."""
    read: Callable[..., Awaitable[Page[T]]] = listing
    asked: dict[str, Any] = dict(given)
    walk = _Walk()
    while True:
        page = await read(*args, **asked)
        for item in _sound(page):
            yield item
        if page.next_page_token is None:
            return
        asked["page_token"] = walk.further(page.next_page_token)


class _Walk:
    """Detects a page token that repeats, however many pages later, while it remembers only one token.

    The remembered token is replaced after 1, 2, 4, 8 … pages. So if the pages run in a cycle, one of the remembered
    tokens lies in it.
    """

    def __init__(self) -> None:
        self._remembered: str | None = None
        self._pages, self._until = 0, 1

    def further(self, token: str) -> str:
        """Return the token of the next page. Raises `Conflict` if it equals the remembered token."""
        if token == self._remembered:
            raise Conflict(
                "the list leads back to a page that was read before: the order of its rows is not that of their keys; "
                "`lastlight-state doctor --deep` names values that are not in the form of their column",
                code="walk_repeats",
                page_token=token,
            )
        self._pages += 1
        if self._pages == self._until:
            self._remembered, self._until = token, 2 * self._until
        return token


def _sound(page: Page[T]) -> tuple[T, ...]:
    for row in page.damaged:
        _log.error("passed over a row that cannot be read: %s", row.problem)
    return page.items


# Rows of an ordered list, some of which cannot be read, and the key after which the next page begins.
#
# A damaged row keeps its place in a list. If its key is damaged as well, a page token cannot name it. The next page
# then begins after the last key that can be read.

#: A row without a declared type, or the error that says why the row cannot be read.
Row: TypeAlias = "dict[str, Any] | CorruptData"


class KeyedRows(NamedTuple, Generic[RowT]):
    """Rows in order, and a function that returns a row's key, None if it is damaged. An unreadable row is an error."""

    rows: Sequence[RowT | CorruptData]
    key: Callable[[int], list[Any] | None]


class Window(NamedTuple, Generic[RowT]):
    """The rows of a page, and the key after which the next page begins. The key is None at the end of the list."""

    rows: Sequence[RowT | CorruptData]
    last: list[Any] | None

    def page(self, asked: Any) -> Page[RowT]:
        """Return these rows as a page of the list ``asked``; rows that cannot be read are named in ``damaged``."""
        items, damaged = split_damaged(self.rows)
        token = None if self.last is None else encode_token(asked, self.last)
        return Page.of({"items": items, "next_page_token": token, "damaged": damaged})


def keyed_rows(found: FoundRows[RowT], key: Sequence[str]) -> KeyedRows[RowT]:
    """Return the rows that a statement found, with their keys taken from these columns."""
    return KeyedRows(found.rows, lambda at: found.columns(at, key))


def window(read: Callable[[int], KeyedRows[RowT]], limit: int) -> Window[RowT]:
    """Return the next ``limit`` rows of a list. ``read(size)`` returns at most ``size`` of them, from the first on.

    If none of these rows has a readable key, more rows are read until one has, so that damaged keys do not end a list.
    """
    while True:
        rows, key = read(limit + 1)
        if len(rows) <= limit:
            return Window(rows, None)
        for at in range(limit - 1, -1, -1):
            last = key(at)
            if last is not None:
                return Window(rows[:limit], last)
        limit *= 2


def split_damaged(rows: Sequence[RowT | CorruptData]) -> tuple[tuple[RowT, ...], tuple[DamagedRow, ...]]:
    """Separate readable rows from damaged ones. Return both; a damaged row is described by a `DamagedRow`."""
    if not has_damage(rows):
        return tuple(cast("Sequence[RowT]", rows)), ()
    items = tuple(row for row in rows if not isinstance(row, CorruptData))
    return items, tuple(damaged_row(row) for row in rows if isinstance(row, CorruptData))


def map_page(page: Page[RowT], make: Callable[[RowT], T]) -> Page[T]:
    """Return the same page with ``make`` applied to each item."""
    items = tuple(map(make, page.items))
    return Page.of({"items": items, "next_page_token": page.next_page_token, "damaged": page.damaged})


def damaged_row(error: CorruptData) -> DamagedRow:
    """Return the entry of a page for a damaged row."""
    return DamagedRow(table=error.table, key=error.key, column=error.column, problem=str(error))


__all__ = ["LONGEST", "Page", "after", "after_values", "check_key", "decode_token", "encode_token", "key"]

#: The longest text in a key, in bytes. No database indexes a longer one.
LONGEST = 4096

#: The type that a part of a key must have, or its range of whole numbers.
Kind: TypeAlias = type | UnionType | range


def encode_token(asked: Any, key: Sequence[Any]) -> str:
    """Return the token of the page that follows ``key``. ``asked`` describes the list and its filters."""
    return pack([_digest(asked), list(key)])


def decode_token(asked: Any, token: str | None) -> list[Any] | None:
    """Decode a token and return its key, not yet checked. Return None without a token.

    Raises `InvalidValue` for a damaged token, and for a token of another list or other filters.
    """
    if token is None:
        return None
    match unpack("page_token", token):
        case [str(found), list(key)]:
            if found != _digest(asked):
                raise InvalidValue(
                    "page_token",
                    "expected a token of this list with these filters: it was made for another list or another filter",
                )
            return key
        case _:
            raise token_error("page_token")


def key(asked: Any, token: str | None, kinds: Sequence[Kind]) -> list[Any] | None:
    """Decode a token and return its key after checking the type of each part. Return None without a token.

    Raises `InvalidValue` for a damaged token, and for a token of another list or other filters.
    """
    found = decode_token(asked, token)
    return None if found is None else check_key(found, kinds)


def check_key(key: Sequence[Any], kinds: Sequence[Kind], *, nullable: bool = False) -> list[Any]:
    """Check the parts of a token's key and return them as parameters of a statement. Times in texts become times.

    Anybody can forge a token, so a part of the wrong type raises `InvalidValue`. ``nullable`` permits None.
    """
    try:
        return [None if part is None and nullable else _part(part, kind) for part, kind in zip(key, kinds, strict=True)]
    except (InvalidValue, TypeError, ValueError, OverflowError):
        raise token_error("page_token") from None


def after(columns: Sequence[sa.ColumnElement[Any]], *, descending: bool = True) -> sa.ColumnElement[bool]:
    """Return the condition that a row comes after the key ``after_0``, ``after_1`` … in the order of these columns.

    If the first column is a function, a separate comparison of it is added. SQLite uses an index for that comparison,
    but for the comparison of tuples it would scan the index.
    """
    keys = [sa.bindparam(f"after_{i}", type_=key_type(column)) for i, column in enumerate(columns)]
    ours, theirs = sa.tuple_(*columns), sa.tuple_(*keys)
    beyond = ours < theirs if descending else ours > theirs
    if not isinstance(columns[0], sa.Function):
        return beyond
    return sa.and_(columns[0] <= keys[0] if descending else columns[0] >= keys[0], beyond)


def after_values(key: Sequence[Any]) -> dict[str, Any]:
    """Return the key as parameters of the condition that `after` makes."""
    return {f"after_{i}": part for i, part in enumerate(key)}


def _part(part: Any, kind: Kind) -> Any:
    if isinstance(kind, range):
        return valid.number("page_token", part, least=kind.start, most=kind.stop - 1)
    if kind is datetime:
        return parse_time(part)
    if kind is int:
        return valid.number("page_token", part, least=-(2**63))
    if not isinstance(part, kind) or (isinstance(part, bool) and kind is not bool):
        raise TypeError(part)
    return valid.content("page_token", part, LONGEST) if isinstance(part, str) else part


def _digest(asked: Any) -> str:
    return hashlib.sha256(orjson.dumps(asked, default=sorted, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
