"""The programs of pages about frameworks run."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from support.docs.pages import ROOT, blocks

from lastlight_state.testing import Database

PAGES = [
    ROOT / f"docs/guides/{name}.md"
    for name in ("a2a", "adk", "langgraph", "mcp", "openai-agents", "pydantic-ai", "from-shipped-stores")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_programs_of_pages_on_frameworks_run(
    page: Path, postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """packaging PT-20: in the order of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", postgres_database.url)
    main = ModuleType("__main__")
    for block in blocks(page, "python"):
        exec(compile(block.source, block.page, "exec", dont_inherit=True), main.__dict__)
