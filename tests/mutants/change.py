"""A change of one place of the library, and the tests that should notice it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Change:
    """``old`` stands once in the file; ``new`` takes its place. ``tests`` are paths below ``tests``.

    ``on``: the database on which it can be noticed; ``both`` runs on each, ``each`` on SQLite first.
    ``accepted`` says why it may stay unnoticed.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str
    on: str = "sqlite"
    accepted: str = ""
    kind: str = ""

    @property
    def package(self) -> str:
        """The package that it changes."""
        parts = Path(self.file).parts
        return parts[1] if parts[0] == "lastlight_state" and len(parts) > 2 else parts[0]

    @property
    def difference(self) -> str:
        """The lines that go and the lines that come instead."""
        lines = difflib.ndiff(self.old.splitlines(), self.new.splitlines())
        return "\n".join(f"       {line}" for line in lines if line[0] in "-+")

    def applied(self, text: str) -> str:
        """The file's text with the change. Raises ValueError unless the place is there once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has the place {text.count(self.old)} times")
        return text.replace(self.old, self.new)
