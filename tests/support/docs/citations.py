"""The numbered behaviours as tests see them: what the pages define, and what texts cite.

The format of both is described in ``docs/behaviours/README.md``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support.docs.pages import ROOT, name_of

PAGES = ROOT / "docs" / "behaviours"

_ID = r"(?:[A-Z]{1,2}-\d+|case \d+)"
_DEFINITION = re.compile(rf"- \*\*({_ID})\*\* [A-Z`0-9].*\.")
_CITATION = re.compile(rf"(?<![\w-])([a-z]+(?:-[a-z]+)*) ({_ID}(?:, {_ID})*)")
#: In every text with a citation, and quickly found to be missing in most others.
_NUMBER = re.compile(r"[A-Z]-\d|case \d")
_COMMENT = re.compile(r"(?:^|\s)#.*")
#: In every file with a citation, or with what looks like one.
_ANY = re.compile(r"[A-Z]-\d|[Cc]ases? \d|§")
_LOOKS_LIKE_ONE = re.compile(r"\b(?!UTF-|SHA-|ISO-|CRC-|DOC-)[A-Z]{1,3}-\d+|\b[Cc]ases? \d+|§ ?\d*")


class Citation(NamedTuple):
    """A behaviour, as a text names it."""

    page: str
    id: str


class Text(NamedTuple):
    """A docstring, a comment, or a line of a page, and where it stands."""

    file: Path
    line: int
    words: str

    @property
    def name(self) -> str:
        """Where it stands, for a person who looks for it."""
        return f"{name_of(self.file)}:{self.line}"


def behaviour_pages() -> list[Path]:
    """The pages that define behaviours."""
    return [page for page in sorted(PAGES.glob("*.md")) if page.name != "README.md"]


def definitions(page: Path) -> Iterator[tuple[str, str | None]]:
    """Each item of the page, and the id that it defines: None for an item that is not in the format."""
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("- "):
            found = _DEFINITION.fullmatch(line)
            yield line, found and found[1]


def defined() -> list[Citation]:
    """All behaviours, page by page."""
    return [Citation(page.stem, known) for page in behaviour_pages() for _, known in definitions(page) if known]


def citations(words: str) -> list[Citation]:
    """The behaviours that a text names."""
    if not _NUMBER.search(words):
        return []
    return [Citation(page, known) for page, ids in _CITATION.findall(words) for known in ids.split(", ")]


def uncited(words: str) -> list[str]:
    """What looks like a reference to a behaviour, and is no citation."""
    return _LOOKS_LIKE_ONE.findall(_CITATION.sub("", words))


def texts(*folders: str) -> Iterator[Text]:
    """The docstrings and comments of the Python files, and the lines of the pages, below these folders."""
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix == ".py":
                yield from _python(file)
            elif file.suffix == ".md":
                yield from lines(file)


def lines(page: Path) -> Iterator[Text]:
    """The lines of a page, without the ids that they define."""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        yield Text(page, number, re.sub(rf"^- \*\*{_ID}\*\* ", "", line))


@cache
def _python(file: Path) -> tuple[Text, ...]:
    return tuple(_said_in(file))


def _said_in(file: Path) -> Iterator[Text]:
    source = file.read_text("utf-8")
    if not _ANY.search(source):  # half of the files need not be parsed
        return
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Text(file, node.lineno, " ".join(node.value.value.split()))
    for number, line in enumerate(source.splitlines(), 1):
        if found := _COMMENT.search(line):
            yield Text(file, number, found[0])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node. Their expressions are most of a tree, and hold no docstring."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)
