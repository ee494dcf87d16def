"""The programs of pages about frameworks run."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from support.docs.pages import ROOT, blocks

from lastlight_state.testing import Database

PAGE = ROOT / "docs/guides/langgraph.md"


@pytest.mark.parametrize("number", range(len(blocks(PAGE, "python"))))
def test_the_programs_of_the_page_on_langgraph_run(
    number: int, postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """packaging PT-20."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", postgres_database.url)
    block = blocks(PAGE, "python")[number]
    exec(compile(block.source, block.page, "exec", dont_inherit=True), ModuleType("__main__").__dict__)
