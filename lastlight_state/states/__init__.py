"""States: values by scope and key, JSON or bytes, each with a version to compare and set by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.states.face import States as States
    from lastlight_state.states.records import REMOVED as REMOVED, State as State, StateSummary as StateSummary

public(
    globals(),
    {
        "face": "States",
        "records": "REMOVED State StateSummary",
    },
)
