"""Writes the Python blocks of each page into a file, for type checkers: `make types` checks them as users would.

PYTHONPATH=tests python -P tests/support/docs/examples.py FOLDER
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from support.docs.pages import blocks, name_of, pages


def write_examples(folder: Path) -> None:
    """Write a file for each page that has Python blocks, with the blocks in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for page in pages():
        text = "\n\n".join(block.text for block in blocks(page, "python"))
        if text:
            (folder / (re.sub(r"\W", "_", name_of(page)) + ".py")).write_text(text, "utf-8")


if __name__ == "__main__":
    write_examples(Path(sys.argv[1]))
