"""Metadata that another program stored, into which something is merged."""

from __future__ import annotations

import pytest
from support.workflows.steps import Raw

from lastlight_state import InvalidValue, StateStore
from lastlight_state.conversations import NewSession

#: What this library would refuse to store: integers beyond 64 bits.
FOREIGN = f'{{"long": {2**70}, "deep": {{"low": {-(2**80)}, "kept": 1}}}}'
#: How they are found once something was merged into them.
MERGED = {"long": 2**70, "deep": {"low": -(2**80), "kept": 1, "new": [None]}, "a": 1}


def test_what_another_program_stored_stays_beside_what_is_merged(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-13: integers of any size, at any depth; a merge of one is still refused by name."""
    sessions = every_backend.conversations.sessions
    sessions.create(NewSession("x"))
    raw(f"UPDATE sessions SET node_metadata = '{FOREIGN}' WHERE id = 'x'")
    found = sessions.merge_metadata("x", {"a": 1, "deep": {"new": [None]}})
    assert found.node_metadata == sessions.get("x").node_metadata == MERGED
    with pytest.raises(InvalidValue, match="patch"):
        sessions.merge_metadata("x", {"a": 2**70})
    assert sessions.get("x").node_metadata == MERGED
