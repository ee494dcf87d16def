"""Sentences of pages that people read from the beginning can be read at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from support.docs.pages import ROOT, name_of, pages
from support.each import with_each

MOST_WORDS = 44

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_END = re.compile(r"(?<=[.!?:;])\s")

#: The page of commands is looked up in, and decisions and behaviours are for who works on the library.
LOOKED_UP = ("docs/cli.md", "docs/behaviours/", "docs/decisions/", "CHANGELOG.md")

READ = [page for page in pages() if not name_of(page).startswith(LOOKED_UP)]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, and their parts between colons and semicolons. Not those of tables and examples."""
    for line in _FENCED.sub("", text).splitlines():
        if not line.startswith("|"):
            yield from _END.split(line)


@with_each("page", READ, ids=name_of)
def test_a_sentence_can_be_read_at_once(page: Path) -> None:
    """house H-98."""
    text = page.read_text("utf-8")
    assert [sentence for sentence in sentences(text) if len(sentence.split()) > MOST_WORDS] == []


def test_sentences_leave_out_tables_and_examples() -> None:
    """house H-98."""
    assert {ROOT / "README.md", ROOT / "docs" / "concepts.md"} <= set(READ)
    assert list(sentences("One. Two\n```python\nthree. four\n```\n| five |\n")) == ["One.", "Two", ""]
