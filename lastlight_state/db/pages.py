"""Keyset pages: lists that cost the same at any depth, with opaque tokens.

A token holds the key of the last row of its page and a digest of what was asked, so that it is refused by another list
and for other filters. There is no offset and no total.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from types import UnionType
from typing import Any, TypeAlias

import orjson
import sqlalchemy as sa

from lastlight_state.db import opaque, valid
from lastlight_state.db.columns import key_type, parse_time
from lastlight_state.db.records import Page
from lastlight_state.errors import InvalidValue

__all__ = ["LONGEST", "Page", "after", "after_values", "checked", "decode_token", "encode_token", "key"]

#: The longest text in a key, in bytes: no index entry is longer.
LONGEST = 4096

#: What a part of a key must be: a type, or a range of whole numbers.
Kind: TypeAlias = type | UnionType | range


def encode_token(asked: Any, key: Sequence[Any]) -> str:
    """The token for the page that follows ``key`` in the list that ``asked`` describes."""
    return opaque.pack([_digest(asked), list(key)])


def decode_token(asked: Any, token: str | None) -> list[Any] | None:
    """The unchecked key of a token, or None without a token.

    Raises `InvalidValue` for a damaged token, and for one of another list or other filters.
    """
    if token is None:
        return None
    match opaque.unpack("page_token", token):
        case [str(found), list(key)]:
            if found != _digest(asked):
                raise InvalidValue("page_token", "made for another list or another filter")
            return key
        case _:
            raise opaque.damaged("page_token")


def key(asked: Any, token: str | None, kinds: Sequence[Kind]) -> list[Any] | None:
    """The key of a token, each part checked to be of its kind, or None without a token.

    Raises `InvalidValue` for a damaged token, and for one of another list or other filters.
    """
    found = decode_token(asked, token)
    return None if found is None else checked(found, kinds)


def checked(key: Sequence[Any], kinds: Sequence[Kind], *, nullable: bool = False) -> list[Any]:
    """The parts of a key from a token as statements take them; texts that stand for times become times.

    Anybody can write a token, so a part of another kind is `InvalidValue`. ``nullable`` permits None.
    """
    try:
        return [None if part is None and nullable else _part(part, kind) for part, kind in zip(key, kinds, strict=True)]
    except (InvalidValue, TypeError, ValueError, OverflowError):
        raise opaque.damaged("page_token") from None


def after(columns: Sequence[sa.ColumnElement[Any]], *, descending: bool = True) -> sa.ColumnElement[bool]:
    """The condition that a row comes after the key ``after_0``, ``after_1`` … in this order of columns.

    A function that leads is compared alone, too: SQLite seeks in its index by that, and scans it by the tuple.
    """
    keys = [sa.bindparam(f"after_{i}", type_=key_type(column)) for i, column in enumerate(columns)]
    ours, theirs = sa.tuple_(*columns), sa.tuple_(*keys)
    beyond = ours < theirs if descending else ours > theirs
    if not isinstance(columns[0], sa.Function):
        return beyond
    return sa.and_(columns[0] <= keys[0] if descending else columns[0] >= keys[0], beyond)


def after_values(key: Sequence[Any]) -> dict[str, Any]:
    """The parameters of `after`."""
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
