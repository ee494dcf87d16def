"""Keyset pages: lists that cost the same at any depth, with opaque tokens.

A token names the last key of its page and carries a digest of what was asked, so that it cannot be used with another
list or another filter. There is no offset and no total.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from lastlight_state.db import opaque
from lastlight_state.db.records import Page
from lastlight_state.errors import InvalidValue

__all__ = ["LONGEST", "Page", "after", "after_values", "decode_token", "encode_token"]

#: Bytes of a text in a key: no index entry is longer.
LONGEST = 4096


def encode_token(asked: Any, key: Sequence[Any]) -> str:
    """The token that goes on after ``key`` in the list that ``asked`` describes."""
    return opaque.pack([_digest(asked), list(key)])


def decode_token(asked: Any, token: str | None) -> list[Any] | None:
    """The key of a token, None for none. Raises `InvalidValue` for a damaged one, or one of another list or filter."""
    if token is None:
        return None
    match opaque.unpack("page_token", token):
        case [str(found), list(key)]:
            if found != _digest(asked):
                raise InvalidValue("page_token", "made for another list or another filter")
            return key
        case _:
            raise InvalidValue("page_token", "damaged, or made by something else")


def after(columns: Sequence[sa.ColumnElement[Any]], *, descending: bool = True) -> sa.ColumnElement[bool]:
    """The condition that a row comes after the key ``after_0``, ``after_1`` … in this order of columns."""
    ours = sa.tuple_(*columns)
    theirs = sa.tuple_(*(sa.bindparam(f"after_{i}", type_=column.type) for i, column in enumerate(columns)))
    return ours < theirs if descending else ours > theirs


def after_values(key: Sequence[Any]) -> dict[str, Any]:
    """The parameters of `after`."""
    return {f"after_{i}": part for i, part in enumerate(key)}


def _digest(asked: Any) -> str:
    return hashlib.sha256(orjson.dumps(asked, default=sorted, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
