"""The pages hang together: links lead somewhere, and every page can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.docs.pages import ROOT, links, name_of, pages


@pytest.mark.parametrize("page", pages(), ids=name_of)
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
