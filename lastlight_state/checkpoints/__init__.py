"""Checkpoints: saved states of an agent's threads, as opaque bytes that only the caller can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.checkpoints.checks import (
        Content as Content,
        NewCheckpoint as NewCheckpoint,
        NewWrite as NewWrite,
    )
    from lastlight_state.checkpoints.face import Checkpoints as Checkpoints
    from lastlight_state.checkpoints.records import (
        ChannelHistory as ChannelHistory,
        Checkpoint as Checkpoint,
        CheckpointSummary as CheckpointSummary,
        CheckpointThread as CheckpointThread,
        CheckpointWrite as CheckpointWrite,
    )

public(
    globals(),
    {
        "checks": "Content NewCheckpoint NewWrite",
        "face": "Checkpoints",
        "records": "ChannelHistory Checkpoint CheckpointSummary CheckpointThread CheckpointWrite",
    },
)
