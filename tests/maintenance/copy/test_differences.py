"""Which keys differ between two tables."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from lastlight_state.maintenance import copy
from lastlight_state.maintenance.copy import _compare_forms

TABLES = st.dictionaries(st.integers(0, 9), st.sampled_from([b"a", b"b"]))


@given(mine=TABLES, theirs=TABLES)
def test_exactly_the_keys_that_differ_are_found_in_their_order(
    mine: dict[int, bytes], theirs: dict[int, bytes]
) -> None:
    """maintenance OP-54: rows of either side alone, and rows that are not equal."""
    found = _compare_forms(*(iter([([key], form) for key, form in sorted(table.items())]) for table in (mine, theirs)))
    wanted = [[key] for key in sorted(mine | theirs) if mine.get(key) != theirs.get(key)]
    assert list(found) == wanted


def test_of_many_that_differ_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-54: and no more are read."""
    read: list[int] = []

    def rows(_: object, __: object) -> Any:
        for key in range(100):
            read.append(key)
            yield [key], b"a"

    monkeypatch.setattr(copy, "forms", lambda unit, _: rows(unit, _) if unit == "source" else iter(()))
    named = copy.differing_keys(cast(Any, "source"), cast(Any, "target"), cast(Any, None), without="r")
    assert (named, len(read)) == ([str(key) for key in range(20)], 20)
