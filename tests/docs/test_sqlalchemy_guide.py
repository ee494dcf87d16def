"""The pages about a caller's own SQLAlchemy hold on Postgres as they are written for SQLite."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import sqlalchemy as sa
from support.docs.pages import ROOT, blocks

from lastlight_state import StateStore

GUIDES = ROOT / "docs" / "guides"


@pytest.mark.parametrize("name", ["sqlalchemy.md", "your-own-queries.md"])
def test_the_programs_of_a_page_run_on_postgres(
    name: str, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """packaging PT-20, backends B-116, B-117, B-118."""
    monkeypatch.chdir(tmp_path)
    StateStore.open(postgres_url, migrate=True).close()
    url = sa.make_url(postgres_url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    page = ModuleType("__main__")
    for block in blocks(GUIDES / name, "python"):
        text = block.source
        for written in ("sqlite+aiosqlite:///service.db", "sqlite:///service.db", "sqlite:///orders.db"):
            text = text.replace(written, url)
        text = text.replace('"service.db"', repr(postgres_url))
        lines = [line for line in text.splitlines() if not line.startswith("event.listen")]
        exec(compile("\n".join(lines), block.page, "exec", dont_inherit=True), page.__dict__)
    assert not list(tmp_path.glob("*.db*"))
