"""Metadata of LangGraph's checkpoints: what lists can be filtered by."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

#: The channels that are rebuilt from writes of ancestors, as metadata count them.
REBUILT = "counters_since_delta_snapshot"
#: Of metadata, what lists can be filtered by: flags, numbers, and texts of at most so many characters.
_MOST_TEXT, _MOST_NUMBER = 1_024, 2**63


def filterable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return of metadata what lists can be filtered by, and the names of channels that are rebuilt."""
    found = {name: value for name, value in metadata.items() if is_filterable(name) and is_filterable(value)}
    rebuilt = metadata.get(REBUILT)
    return {**found, REBUILT: sorted(rebuilt)} if rebuilt else found


def is_filterable(value: Any) -> bool:
    """True if databases can hold a value, or the name of one, among what lists are filtered by."""
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT and "\0" not in value and value.encode(errors="ignore").decode() == value
    if isinstance(value, float):
        return isfinite(value)
    return value is None or (isinstance(value, int) and -_MOST_NUMBER <= value < _MOST_NUMBER)


def passes(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """True if metadata have all these members."""
    return all(name in metadata and metadata[name] == value for name, value in wanted.items())
