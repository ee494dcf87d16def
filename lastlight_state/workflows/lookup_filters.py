"""Filters of runs where no order is asked for, so that several values are one condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import sqlalchemy as sa

from lastlight_state.db.listing import MOST_VALUES
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import repo_conditions
from lastlight_state.workflows.run_rows import RUNS
from lastlight_state.workflows.transitions import bind

Shape: TypeAlias = tuple[tuple[str, int], ...]
"""The filters used, each with its number of parameters: statements that differ in nothing else are compiled once."""

_SIZES = (1, 2, 4, 8, 20, MOST_VALUES)
_SEVERAL = {"statuses": RUNS.c.status, "workflow_names": RUNS.c.workflow_name}
_ONE: Mapping[str, sa.ColumnElement[bool]] = {
    "since": RUNS.c.started_at >= bind("since", RUNS.c.started_at),
    "trigger_id": RUNS.c.trigger_id == bind("trigger_id", RUNS.c.trigger_id),
    **repo_conditions.conditions(RUNS),
}


def conditions(shape: Shape) -> list[sa.ColumnElement[bool]]:
    """The conditions of a shape."""
    return [
        _SEVERAL[name].in_([bind(f"{name}_{i}", _SEVERAL[name]) for i in range(size)]) if size else _ONE[name]
        for name, size in shape
    ]


def filled(given: Mapping[str, Any]) -> tuple[Shape, dict[str, Any]] | None:
    """The shape and the parameters of the filters given; None where an empty sequence admits nothing."""
    shape: list[tuple[str, int]] = []
    values: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name not in _SEVERAL:
            shape.append((name, 0))
            values |= value if isinstance(value, Mapping) else {name: value}
            continue
        if not value:
            return None
        if len(value) > MOST_VALUES:
            raise InvalidValue(name, f"{len(value)} values, more than the limit of {MOST_VALUES}")
        size = next(size for size in _SIZES if size >= len(value))
        shape.append((name, size))
        values |= {f"{name}_{i}": value[min(i, len(value) - 1)] for i in range(size)}
    return tuple(shape), values
