from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lastlight_state import InvalidValue
from lastlight_state.messaging.message_statements import LEAST, PREFIX, clip_tail, units

TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from("\U0001f600\U0001f468"), max_size=60)


def test_a_text_within_the_limit_stays_as_it_is() -> None:
    assert clip_tail("x" * 20, 20) == "x" * 20


def test_a_longer_text_keeps_its_tail_behind_the_prefix() -> None:
    """messaging M-45."""
    assert clip_tail("abcdefghijklmnopqrst", 18) == "…(truncated)…\nqrst"


def test_a_surrogate_pair_is_never_split() -> None:
    """messaging M-45: one unit less instead."""
    assert clip_tail("\U0001f600" * 20, 18) == PREFIX + "\U0001f600" * 2
    assert clip_tail("\U0001f600" * 20, 17) == PREFIX + "\U0001f600"


def test_a_limit_without_room_for_a_tail_is_refused() -> None:
    with pytest.raises(InvalidValue, match="limit"):
        clip_tail("x" * 20, LEAST - 1)


@given(TEXTS, st.integers(LEAST, 40))
def test_a_clipped_text_fills_its_limit_with_the_end_of_the_text(text: str, limit: int) -> None:
    """messaging M-45: for any text and limit."""
    clipped = clip_tail(text, limit)
    assert units(text) == len(text.encode("utf-16-le")) // 2
    if units(text) <= limit:
        assert clipped == text
        return
    tail = clipped.removeprefix(PREFIX)
    assert clipped == PREFIX + tail
    assert text.endswith(tail)
    assert units(clipped) == limit or (units(clipped) == limit - 1 and units(text[-len(tail) - 1]) == 2)
