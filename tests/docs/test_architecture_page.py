"""The map of the architecture page is the tree: what it names is there, and no part of the library is left out."""

from __future__ import annotations

import re

from support.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
LIBRARY = ROOT / "lastlight_state"
PATHS = sorted(set(re.findall(r"`([\w./]+(?:/|\.py))`", PAGE)))


def test_every_path_on_the_map_exists() -> None:
    assert PATHS
    assert [path for path in PATHS if not (ROOT / path).exists() and not (LIBRARY / path).exists()] == []


def test_every_part_of_the_library_is_on_the_map() -> None:
    folders = [f"{found.parent.name}/" for found in LIBRARY.glob("*/__init__.py")]
    modules = [found.name for found in LIBRARY.glob("*.py") if not found.name.startswith("__")]
    assert [part for part in sorted(folders + modules) if part not in PATHS] == []
