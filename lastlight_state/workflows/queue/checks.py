"""What `queue` accepts, checked before any statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import checks as shared


def caps(given: Any) -> dict[str, int]:
    """How many runs of each workflow may run; at most 50 workflows."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidValue("workflow_caps", f"expected a mapping of names to numbers, got {type(given).__name__}")
    names = shared.several_workflows(list(given))
    return {name: valid.number(f"workflow_caps[{name!r}]", given[name]) for name in names}
