"""The documents as tests see them: pages, and the fenced blocks in each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]

_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block: the page it stands on, its first line there, and its text."""

    page: Path
    line: int
    text: str

    @property
    def name(self) -> str:
        """Where it stands, for a person who looks for it."""
        return f"{name_of(self.page)}:{self.line}"

    @property
    def source(self) -> str:
        """The text with its own line numbers, so that a traceback points into the page."""
        return "\n" * (self.line - 1) + self.text


def pages() -> list[Path]:
    """README, the changelog, and every page of ``docs/``."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """The page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[Block]:
    """The blocks of one language, in their order."""
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, found.start("text")) + 1, found["text"])
        for found in _BLOCK.finditer(text)
        if found["language"] == language
    ]


def links(page: Path) -> Iterator[str]:
    """The targets of the page's links that lead to other files."""
    for found in _LINK.finditer(_BLOCK.sub("", page.read_text("utf-8"))):
        target = found["target"].partition("#")[0]
        if target and "://" not in target:
            yield target
