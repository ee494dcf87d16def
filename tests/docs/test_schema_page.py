"""The schema reference is what the models declare."""

from __future__ import annotations

import runpy

from support.docs.pages import ROOT


def test_the_schema_page_is_current() -> None:
    """packaging PT-23."""
    generated = runpy.run_path(str(ROOT / "docs" / "schema.py"))["page"]()
    written = (ROOT / "docs" / "schema.md").read_text("utf-8")
    assert written == generated, "run `make docs`"
