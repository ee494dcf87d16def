"""The pages hang together: links lead somewhere, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path

from support.docs.pages import ROOT, links, name_of, pages
from support.each import with_each

from lastlight_state.settings import PREFIX, Limits, Settings

_VARIABLE = re.compile(r"\bLASTLIGHT_(?!TEST_|CI_)\w*")
_WORDS = {"schema_name": "SCHEMA"}  # a setting whose variable has another name
VARIABLES = {PREFIX + _WORDS.get(name, name.upper()) for name in Settings.model_fields}
VARIABLES |= {f"{PREFIX}LIMITS__{name.upper()}" for name in Limits.model_fields}


@with_each("page", pages(), ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    missing = [target for target in links(page) if not (page.parent / target).exists()]
    assert missing == []


def test_every_page_can_be_reached_from_readme() -> None:
    start = ROOT / "README.md"
    reached, ahead = {start}, [start]
    while ahead:
        page = ahead.pop()
        found = {(page.parent / target).resolve() for target in links(page)}.intersection(pages()) - reached
        reached |= found
        ahead += found
    assert [name_of(page) for page in pages() if page not in reached] == []


def test_every_page_stands_once_in_the_navigation_of_the_site() -> None:
    """packaging PT-36: decisions and behaviours have indexes."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    docs = ROOT / "docs"
    found = {page.relative_to(docs).as_posix() for page in pages() if page.is_relative_to(docs)}
    indexed = {page for page in found if page.startswith(("behaviours/", "decisions/")) and "README" not in page}
    assert sorted(named) == sorted(found - indexed)


@with_each("page", pages(), ids=name_of)
def test_a_variable_that_a_page_names_is_that_of_a_setting(page: Path) -> None:
    """backends B-1."""
    named = set(_VARIABLE.findall(page.read_text())) - {PREFIX}  # the prefix alone stands for all of them
    assert named <= VARIABLES
