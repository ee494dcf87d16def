"""Which keys differ between two tables."""

from __future__ import annotations

from hypothesis import given, strategies as st

from lastlight_state.maintenance.copy.differences import _differing

TABLES = st.dictionaries(st.integers(0, 9), st.sampled_from([b"a", b"b"]))


@given(mine=TABLES, theirs=TABLES)
def test_exactly_the_keys_that_differ_are_found_in_their_order(
    mine: dict[int, bytes], theirs: dict[int, bytes]
) -> None:
    """maintenance OP-54: rows of either side alone, and rows that are not equal."""
    found = _differing(*(iter([([key], form) for key, form in sorted(table.items())]) for table in (mine, theirs)))
    wanted = [[key] for key in sorted(mine | theirs) if mine.get(key) != theirs.get(key)]
    assert list(found) == wanted
