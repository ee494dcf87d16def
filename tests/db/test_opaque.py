"""Texts that callers hand back: what `pack` made is read, and everything else is refused by one error."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.each import with_each

from lastlight_state.db.lists.pages import pack, unpack
from lastlight_state.errors import InvalidValue


@with_each("value", [None, [], "", "a", "ab", "abc", "\xff\u2028?>", [1, "x", None], {"a": 2**53}])
def test_a_value_comes_back_from_its_text(value: Any) -> None:
    text = pack(value)
    assert unpack("cursor", text) == value
    assert text.replace("-", "").replace("_", "").isalnum()


def test_a_time_comes_back_as_its_text() -> None:
    assert unpack("cursor", pack(datetime(2026, 2, 3, tzinfo=UTC))) == "2026-02-03T00:00:00Z"


@with_each("text", ["a", "é", "!!!!", "bm8", " ", "e30=e30=", 5, b"e30", None, ["e30"]], ids=repr)
def test_any_other_text_is_called_damaged(text: Any) -> None:
    with pytest.raises(
        InvalidValue,
        match=r"^cursor: expected a token of an earlier call: this one is damaged, or made by something else$",
    ):
        unpack("cursor", text)
