"""The public names, and the reference of all tables, as ``make record`` writes them down for tests to compare."""

from __future__ import annotations

import runpy
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = FIXTURES / "names.txt"
SCHEMA = FIXTURES / "schema.md"

PACKAGES: tuple[str, ...] = runpy.run_path(str(DOCS / "api.py"))["PACKAGES"]


def names() -> str:
    """Return what the packages export, one name a line."""
    exported = ((path, name) for path in PACKAGES for name in sorted(import_module(path).__all__, key=str.lower))
    return "".join(f"{path}.{name}\n" for path, name in exported)


def schema() -> str:
    """Return what the site says of the tables."""
    page: str = runpy.run_path(str(DOCS / "schema.py"))["page"]()
    return page


if __name__ == "__main__":
    NAMES.write_text(names(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
