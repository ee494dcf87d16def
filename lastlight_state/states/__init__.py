"""States: a key-value store of JSON or bytes, by scope and key, with versions for compare-and-set."""

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
