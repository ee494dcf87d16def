"""Metadata that another program stored, into which something is merged."""

from __future__ import annotations

from typing import Any

import pytest
from support.workflows.steps import Raw

from lastlight_state import InvalidValue, StateStore
from lastlight_state.conversations import NewBranch, NewSession

#: What this library would refuse to store: integers beyond 64 bits.
FOREIGN = f'{{"long": {2**70}, "deep": {{"low": {-(2**80)}, "kept": 1}}}}'
#: How they are found once something was merged into them.
MERGED = {"long": 2**70, "deep": {"low": -(2**80), "kept": 1, "new": [None]}, "a": 1}


@pytest.mark.parametrize("face", ["sessions", "branches"])
def test_what_another_program_stored_stays_beside_what_is_merged(
    every_backend: StateStore, raw: Raw, face: str
) -> None:
    """conversations CV-13: integers of any size, at any depth; a merge of one is still refused by name."""
    c = every_backend.conversations
    c.sessions.create(NewSession("x"))
    c.branches.create("x", NewBranch("x"))
    raw(f"UPDATE {face} SET node_metadata = '{FOREIGN}' WHERE id = 'x'")
    verbs: Any = getattr(c, face)
    found = verbs.merge_metadata("x", {"a": 1, "deep": {"new": [None]}})
    assert found.node_metadata == verbs.get("x").node_metadata == MERGED
    with pytest.raises(InvalidValue, match="patch"):
        verbs.merge_metadata("x", {"a": 2**70})
    assert verbs.get("x").node_metadata == MERGED
