"""The display cap of tool results."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st
from support.each import with_each

from lastlight_state.files.agent_log.writer.session import CAP_UNITS, cut_for_display


@with_each("whole", ["", "x" * CAP_UNITS, "é" * CAP_UNITS, "😀" * (CAP_UNITS // 2), "x" * 65_535 + "\ud83d"])
def test_a_text_of_the_cap_stays(whole: str) -> None:
    """agent-log L-70, case 24."""
    assert cut_for_display(whole) is None


@with_each(
    ("whole", "kept", "left_out"),
    [
        ("x" * 65_537, "x" * 65_536, 1),
        ("é" * 65_536 + "ab", "é" * 65_536, 2),
        ("x" * 65_535 + "😀", "x" * 65_535, 2),
        ("x" * 65_535 + "\U00010000", "x" * 65_535, 2),
        ("x" * 65_535 + "\U0010ffff", "x" * 65_535, 2),
        ("x" * 65_534 + "😀!", "x" * 65_534 + "😀", 1),
        ("😀" * 40_000, "😀" * 32_768, 14_464),
        ("x" * 65_535 + "\ud83dyz", "x" * 65_535 + "\ud83d", 2),
        *(
            ("x" * 65_535 + first + second, "x" * 65_535 + first, 1)  # two that are no character together
            for first, second in ("\ud7ff\udc00", "\udc00\udc00", "\udfff\udc00", "\ud83d\udbff", "\ud83d\ue000")
        ),
        ("x" * 65_535 + "\ud800\udfff", "x" * 65_535, 2),
    ],
)
def test_a_longer_text_is_cut_at_the_cap_and_never_inside_a_character(whole: str, kept: str, left_out: int) -> None:
    """agent-log L-70, case 24."""
    cut = cut_for_display(whole)
    assert cut is not None
    assert cut.shown == f"{kept}\n…[truncated {left_out} chars]"
    assert cut.units == len(whole.encode("utf-16-le", "surrogatepass")) // 2


@settings(max_examples=30)
@given(st.integers(65_530, 65_540), st.text("a😀é", max_size=12))
def test_shown_and_left_out_add_up_to_the_whole(padding: int, end: str) -> None:
    """agent-log L-70."""
    whole = "x" * padding + end
    cut = cut_for_display(whole)
    if cut is None:
        assert len(whole.encode("utf-16-le")) // 2 <= CAP_UNITS
        return
    kept, _, marker = cut.shown.rpartition("\n")
    assert whole.startswith(kept)
    assert len(kept.encode("utf-16-le")) // 2 + int(marker.split()[1]) == cut.units
