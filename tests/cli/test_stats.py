"""``stats`` from the command line."""

from __future__ import annotations

from support.each import with_each

from lastlight_state.cli.commands.stats import size


@with_each(
    ("count", "text"),
    [
        (None, None),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1024.0 KiB"),
        (1024**2, "1.0 MiB"),
        (1024**3, "1.0 GiB"),
        (1024**4, "1.0 TiB"),
        (1024**5, "1024.0 TiB"),
    ],
)
def test_a_size_is_told_in_the_unit_that_suits_it(count: int | None, text: str | None) -> None:
    """maintenance OP-10."""
    assert size(count) == text
