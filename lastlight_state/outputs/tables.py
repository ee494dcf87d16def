"""The library's own tables of this domain, as statements name them."""

from __future__ import annotations

from lastlight_state.db.base import table_of
from lastlight_state.outputs.models import OutputCacheModel, OutputHistoryModel, OutputTableModel, RunInputModel

INPUTS = table_of(RunInputModel)
REGISTRY = table_of(OutputTableModel)
HISTORY = table_of(OutputHistoryModel)
CACHE = table_of(OutputCacheModel)
