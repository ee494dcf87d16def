"""Every behaviour that a text cites is defined on a page of ``docs/behaviours``, and every one there is tested."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from support.docs.citations import (
    PAGES,
    Citation,
    behaviour_pages,
    citations,
    defined,
    definitions,
    lines,
    texts,
    uncited,
)
from support.docs.pages import ROOT, name_of
from support.each import with_each

#: Of a behaviour. A condition that does not fit stands in the docstring of the call, or of the test.
MOST_WORDS = 12

FOLDERS = ("tests", "lastlight_state", "alembic", "benchmarks", "examples", "docs")


@with_each("page", behaviour_pages(), ids=name_of)
def test_every_item_of_a_page_defines_one_behaviour(page: Path) -> None:
    assert [line for line, known in definitions(page) if known is None] == []


@with_each("page", behaviour_pages(), ids=name_of)
def test_a_behaviour_is_one_short_sentence(page: Path) -> None:
    """The promise is the docstring: here is what a test cites."""
    said = [line.partition("** ")[2] for line, known in definitions(page) if known]
    assert [line for line in said if len(line.split()) > MOST_WORDS] == []


def test_an_id_stands_once_on_its_page() -> None:
    assert [known for known, times in Counter(defined()).items() if times > 1] == []


def test_every_citation_is_defined() -> None:
    known = set(defined())
    everywhere = [*texts(*FOLDERS), *lines(ROOT / "README.md"), *lines(ROOT / "CHANGELOG.md")]
    unknown = [(text.name, cited) for text in everywhere for cited in citations(text.words) if cited not in known]
    assert unknown == []


def test_nothing_looks_like_a_citation_and_is_none() -> None:
    """Ids without their page, ranges, and sections."""
    assert [(text.name, found) for text in texts(*FOLDERS) if (found := uncited(text.words))] == []


def test_every_behaviour_is_cited_by_a_test() -> None:
    cited = {citation for text in texts("tests") for citation in citations(text.words)}
    assert [behaviour for behaviour in defined() if behaviour not in cited] == []


def test_the_index_names_every_page() -> None:
    index = (PAGES / "README.md").read_text("utf-8")
    assert [page.name for page in behaviour_pages() if f"({page.name})" not in index] == []


@with_each(
    ("words", "expected"),
    [
        ("page A-1.", [("page", "A-1")]),
        ("page A-1, A-12, case 3: and so on", [("page", "A-1"), ("page", "A-12"), ("page", "case 3")]),
        ("a-page A-1, page case 3", [("a-page", "A-1"), ("page", "case 3")]),
        ("as it is (page A-1), page AB-2", [("page", "A-1"), ("page", "AB-2")]),
        ("page A-1 to A-3", [("page", "A-1"), ("to", "A-3")]),  # "to" is no page, so this one is not defined
        ("UTF-8 and SHA-256, in this case 'three'", []),
    ],
)
def test_a_citation_is_a_page_and_its_ids(words: str, expected: list[tuple[str, str]]) -> None:
    assert citations(words) == [Citation(*one) for one in expected]
    assert uncited(words) == []


@with_each("words", ["A-1", "page A-1; case 2", "page cases 1-3", "page §4"])
def test_anything_else_is_found_as_no_citation(words: str) -> None:
    assert uncited(words) != []
