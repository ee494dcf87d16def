"""LangGraph channels whose values are rebuilt from tasks' writes: reads the writes before a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lastlight_state.checkpoints import ChannelHistory
from lastlight_state.db import valid

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory

#: Most bytes of a channel's name.
_MOST_NAME = 512


def histories(saver: Any, config: Mapping[str, Any], channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
    """Return, by channel, the tasks' writes before the config's checkpoint, and the value before these writes."""
    asked = config["configurable"]
    thread, space, one = str(asked["thread_id"]), asked.get("checkpoint_ns") or "", asked.get("checkpoint_id") or None
    found: Mapping[str, ChannelHistory] = {}
    known = [name for name in channels if valid.is_identifier(name, _MOST_NAME)]
    if known and valid.are_storable(thread, space, one):
        found = saver._checkpoints.channel_histories(thread, known, one, namespace=space, scope=saver._scope)
    return {channel: _history(saver.serde.loads_typed, found.get(channel)) for channel in channels}


def _history(load: Any, found: ChannelHistory | None) -> DeltaChannelHistory:
    if found is None:
        return {"writes": []}
    made: DeltaChannelHistory = {"writes": [(one.task, one.channel, load(one.content)) for one in found.writes]}
    if found.value is not None:
        made["seed"] = load(found.value)
    return made
