"""What callers of LangGraph's checkpointers may give besides what its graphs give."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from lastlight_state.errors import InvalidValue
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.testing import Database

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def checkpoint(name: str, values: dict[str, Any], versions: dict[str, Any]) -> Any:
    return {**empty_checkpoint(), "id": name, "channel_values": values, "channel_versions": versions}


@pytest.mark.parametrize("strategy", ["keep_latest", "delete"])
def test_one_text_as_ids_of_threads_is_refused(database: Database, strategy: str) -> None:
    """checkpoints CK-59: its letters are no ids of threads or runs, and nothing is removed."""
    with database.open() as store:
        saver = LangGraphSaver(store)
        saver.put(THREAD, checkpoint("1", {}, {}), {}, {})
        with pytest.raises(InvalidValue, match="expected a list"):
            saver.prune("t", strategy=strategy)
        with pytest.raises(InvalidValue, match="expected a list"):
            saver.delete_for_runs("t")
        assert saver.get_tuple(THREAD) is not None


def test_the_first_checkpoint_keeps_all_its_values(database: Database) -> None:
    """checkpoints CK-60: with a version that is not called new, as quickstarts store it, and without any version."""
    with database.open() as store:
        saver = LangGraphSaver(store)
        first = saver.put(THREAD, checkpoint("1", {"a": [1], "b": [2]}, {"a": 1}), {}, {})
        found = saver.get(first) or checkpoint("none", {}, {})
        assert (found["channel_values"], found["channel_versions"]) == ({"a": [1], "b": [2]}, {"a": 1})


def test_a_value_without_a_version_is_that_of_its_checkpoint(database: Database) -> None:
    """checkpoints CK-60: the next checkpoint brings its own, or none."""
    with database.open() as store:
        saver = LangGraphSaver(store)
        first = saver.put(THREAD, checkpoint("1", {"a": "old"}, {}), {}, {})
        second = saver.put(first, checkpoint("2", {"a": "new"}, {}), {}, {})
        third = saver.put(second, checkpoint("3", {}, {}), {}, {})
        found = [saver.get_tuple(one) for one in (first, second, third)]
        values = [one and one.checkpoint["channel_values"] for one in found]
        assert values == [{"a": "old"}, {"a": "new"}, {}]
