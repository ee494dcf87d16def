"""What an exception said, as every database can store it."""

from __future__ import annotations

from support.each import with_each

from lastlight_state.db.news.listeners import CUT, MESSAGE_CHARS, message_of


class Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def test_an_exception_that_cannot_say_anything_is_told_all_the_same() -> None:
    assert message_of(Mute()) == "(an exception without a text)"


def test_a_message_is_kept_to_the_last_character_of_its_limit_and_a_longer_one_is_marked() -> None:
    whole = "x" * MESSAGE_CHARS
    assert message_of(ValueError(whole)) == whole
    cut = message_of(ValueError(whole + "y"))
    assert cut == whole[: MESSAGE_CHARS - len(CUT)] + CUT


@with_each(
    ("said", "stored"),
    [
        ("a\0b", "a\ufffdb"),
        ("a\x1f\x0b\x08b", "a\ufffd\ufffd\ufffdb"),
        ("\ud83d", "?"),
        ("a\n\tb\r", "a\n\tb\r"),
        ("é😀", "é😀"),
    ],
    ids=ascii,
)
def test_what_no_database_stores_is_replaced(said: str, stored: str) -> None:
    assert message_of(ValueError(said)) == stored
