"""What `lookups` accepts, checked before any statement.

Filters of runs where no order is asked for, so that several values are one condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any, TypeAlias

import sqlalchemy as sa

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.listing import MOST_VALUES
from lastlight_state.db.statements import bind
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import checks as shared, repos as repo_conditions, words
from lastlight_state.workflows.arguments import RunFilter
from lastlight_state.workflows.tables import RUNS

#: The filters used, each with its number of parameters: statements that differ in nothing else are compiled once.
Shape: TypeAlias = tuple[tuple[str, int], ...]

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


MOST_COUNTED = 1_000_000

MOST_ANCESTORS = 1_000

_TEXT = 256

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def of_trigger(trigger_id: str, workflow_names: Sequence[str] | None, statuses: Sequence[str] | None) -> dict[str, Any]:
    """The filters of runs of a trigger."""
    given = shared.list_filters(statuses, workflow_names, None, None)
    return {"trigger_id": valid.identifier("trigger_id", trigger_id, words.TRIGGER_ID), **given}


def counted(which: RunFilter) -> dict[str, Any]:
    """The filters of a count."""
    valid.group("filter", which, RunFilter)
    given = shared.list_filters(which.statuses, which.workflow_names, which.repo, which.since)
    trigger_id = valid.optional("trigger_id", which.trigger_id, words.TRIGGER_ID)
    return {"trigger_id": trigger_id, **given}


def search(text: str, since: datetime) -> dict[str, Any]:
    """The filters of a search: the text as a pattern that means itself, in lower case as far as it is ASCII."""
    text = valid.content("text", text, _TEXT)
    if not text.strip():
        raise InvalidValue("text", "blank")
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return {"since": aware_utc("since", since), "text": {"pattern": f"%{text.translate(_LOWER)}%"}}
