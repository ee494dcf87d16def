"""What reaches the disk, and in which order: the files and directories that are synced, linked, renamed and removed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

#: What differs from run to run in the names of unfinished files.
_CHANCE = re.compile(r"\.[0-9a-f]{8}(?=\.)|[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


class ToDisk:
    """Notes of the calls since it was made. They are made all the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self._root = root
        self.calls: list[str] = []
        notes: dict[str, Callable[..., None]] = {
            "fsync": self._synced,
            "fdatasync": self._synced,
            "unlink": self._removed,
        }
        for name, note in notes.items():
            monkeypatch.setattr(os, name, self._noting(note, getattr(os, name)))
        for name in ("link", "rename"):
            monkeypatch.setattr(os, name, self._noting(self._named, getattr(os, name)))

    def _noting(self, note: Callable[..., None], real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            done = real(*arguments, **options)
            note(*arguments, **options)
            return done

        return call

    def _synced(self, descriptor: Any, **_: object) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._note(f"sync {path.relative_to(self._root)}" if path.is_relative_to(self._root) else f"sync {path}")

    def _removed(self, name: Any, **options: object) -> None:
        if options:  # those of the library name the directory
            self._note(f"remove {Path(str(name)).name}")

    def _named(self, _: Any, name: Any, **options: object) -> None:
        self._note(f"name {Path(str(name)).name}")

    def _note(self, text: str) -> None:
        self.calls.append(_CHANCE.sub("*", text))
