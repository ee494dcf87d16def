"""The tables of this domain, as statements name them."""

from __future__ import annotations

from lastlight_state.db.base import table_of
from lastlight_state.journal.models import (
    RunEventModel,
    RunFrameModel,
    RunSequenceModel,
    RunSignalModel,
    SandboxModel,
    ScoreModel,
    ToolCallModel,
)

SEQUENCES = table_of(RunSequenceModel)

EVENTS = table_of(RunEventModel)

SIGNALS = table_of(RunSignalModel)

FRAMES = table_of(RunFrameModel)

TOOL_CALLS = table_of(ToolCallModel)

SANDBOXES = table_of(SandboxModel)

SCORES = table_of(ScoreModel)
