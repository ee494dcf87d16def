"""Stores for other frameworks where those are not installed."""

from __future__ import annotations

import pytest

from lastlight_state.errors import MisuseError
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.testing import Database


def test_a_saver_without_its_framework_names_the_extra(database: Database) -> None:
    """checkpoints CK-45: what the environment of `make frameworks` has, this one has not."""
    with pytest.raises(MisuseError, match=r"lastlight-state\[langgraph\]"):
        LangGraphSaver(database.open())
