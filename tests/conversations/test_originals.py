"""What released versions of the original program give of their sessions comes back as they gave it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lastlight_state import StateStore
from lastlight_state.conversations import SessionTree
from lastlight_state.conversations.words import Mode

#: Made by ``originals.py`` beside them, which says how.
FILES = sorted((Path(__file__).parents[1] / "fixtures" / "lionagi").glob("*.json"))


def _told(value: Any) -> Any:
    """The value without keys that have none: they mean the same to the program."""
    if isinstance(value, dict):
        return {key: _told(inner) for key, inner in value.items() if inner is not None}
    return [_told(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_session_of_a_released_version_comes_back_in_each_mode_as_it_was(
    every_backend: StateStore, file: Path
) -> None:
    """conversations CV-28, CV-42: what is in a session has ``metadata`` in mode ``db``, too."""
    given = json.loads(file.read_text())
    trees = every_backend.conversations.trees
    trees.save(SessionTree.from_runtime(given["json"]))
    modes: tuple[Mode, ...] = ("db", "json", "python")
    for mode in modes:
        assert _told(trees.load(given["json"]["id"]).to_runtime(mode)) == _told(given[mode]), mode
