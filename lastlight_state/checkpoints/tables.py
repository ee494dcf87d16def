"""The tables of this domain, as statements name them."""

from __future__ import annotations

from lastlight_state.checkpoints.models import (
    CheckpointModel,
    CheckpointThreadModel,
    CheckpointValueModel,
    CheckpointWriteModel,
)
from lastlight_state.db.base import table_of

THREADS = table_of(CheckpointThreadModel)
CHECKPOINTS = table_of(CheckpointModel)
VALUES = table_of(CheckpointValueModel)
WRITES = table_of(CheckpointWriteModel)
