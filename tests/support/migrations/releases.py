"""Released revisions never change: their digests stand in ``docs/schema-history.md``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from lastlight_state.migrations import scripts

HISTORY = Path(__file__).parents[3] / "docs" / "schema-history.md"
UNRELEASED = "unreleased"


def digests(history: str) -> dict[str, str]:
    """The digest of each revision that the page lists, or ``unreleased``."""
    return dict(re.findall(r"^\| (\d{4}\w*) \|.*\| (\S+) \|$", history, re.MULTILINE))


def released(history: str) -> set[str]:
    """The revisions that may never change again."""
    return {revision for revision, digest in digests(history).items() if digest != UNRELEASED}


def digest_of(file: Path) -> str:
    """The digest of a revision's file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def problems(history: str, folder: Path) -> Iterator[str]:
    """What is wrong between the page and the files of the revisions; nothing when they agree."""
    found = sorted(folder.glob("[0-9][0-9][0-9][0-9]*.py"))
    files = {scripts.FIRST if file.stem.startswith(scripts.FIRST) else file.stem: file for file in found}
    known = digests(history)
    for revision in sorted(files.keys() | known.keys()):
        if revision not in known:
            yield f"{revision} has no line"
        elif revision not in files:
            yield f"{revision} has a line and no file"
        elif known[revision] not in (UNRELEASED, digest_of(files[revision])):
            yield f"{revision} was released and has changed"
    open_ones = [revision for revision in sorted(known) if known[revision] == UNRELEASED]
    yield from (
        f"{revision} was released before {open_ones[0]}"
        for revision in released(history)
        if open_ones and revision > open_ones[0]
    )
