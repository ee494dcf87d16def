"""Metadata of LangGraph's checkpoints: the part by which lists can be filtered."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

#: The metadata key with a counter for each channel that is rebuilt from ancestors' writes.
REBUILT = "counters_since_delta_snapshot"
#: Lists are filtered by flags, numbers and texts: the most characters of a text, and the bound of a number.
_MOST_TEXT, _MOST_NUMBER = 1_024, 2**63


def filterable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata by which lists can be filtered, with the names of channels that are rebuilt from writes."""
    found = {name: value for name, value in metadata.items() if is_filterable(name) and is_filterable(value)}
    rebuilt = metadata.get(REBUILT)
    return {**found, REBUILT: sorted(rebuilt)} if rebuilt else found


def is_filterable(value: Any) -> bool:
    """True if a metadata value and its name can be stored in the columns by which lists are filtered."""
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT and "\0" not in value and value.encode(errors="ignore").decode() == value
    if isinstance(value, float):
        return isfinite(value)
    return value is None or (isinstance(value, int) and -_MOST_NUMBER <= value < _MOST_NUMBER)


def passes(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """True if the metadata contain all wanted names with equal values."""
    return all(name in metadata and metadata[name] == value for name, value in wanted.items())
