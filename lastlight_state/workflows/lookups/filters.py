"""What `lookups` accepts, checked before any statement, and the conditions of its filters of runs.

These queries have no order to keep, so a filter of several values is one condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any, TypeAlias

import sqlalchemy as sa

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.listing import MOST_VALUES
from lastlight_state.db.statements import AnyOf, Row, bind, padded, size_for
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import checks as shared, repos
from lastlight_state.workflows.arguments import RunFilter
from lastlight_state.workflows.tables import RUNS

_MOST = limits_of(RUNS)

#: The filters of a query, each with its number of parameters. There is one statement for each shape.
FilterShape: TypeAlias = tuple[tuple[str, int], ...]

#: The most runs that a count counts.
MOST_COUNTED = 1_000_000
#: The most ancestors of a run that are listed.
MOST_ANCESTORS = 1_000

_LONGEST_TEXT = 256
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_SEVERAL = {"statuses": RUNS.c.status, "workflow_names": RUNS.c.workflow_name}

_ONE: Mapping[str, sa.ColumnElement[bool]] = {
    "since": RUNS.c.started_at >= bind("since", RUNS.c.started_at),
    "trigger_id": RUNS.c.trigger_id == bind("trigger_id", RUNS.c.trigger_id),
    **repos.conditions(RUNS),
}


def conditions(shape: FilterShape) -> list[sa.ColumnElement[bool]]:
    """The conditions of a shape."""
    return [AnyOf(name, _SEVERAL[name], size).condition if size else _ONE[name] for name, size in shape]


def filled(given: Mapping[str, Any]) -> tuple[FilterShape, Row] | None:
    """Return the shape and the parameters of the given filters. None if an empty sequence makes the result empty."""
    shape: list[tuple[str, int]] = []
    values: Row = {}
    for name, value in given.items():
        if value is None:
            continue
        if name not in _SEVERAL:
            shape.append((name, 0))
            values |= value if isinstance(value, Mapping) else {name: value}
            continue
        if not value:
            return None
        valid.at_most(name, value, MOST_VALUES)
        size = size_for(len(value))
        shape.append((name, size))
        values |= padded(name, value, size)
    return tuple(shape), values


def of_trigger(trigger_id: str, workflow_names: Sequence[str] | None, statuses: Sequence[str] | None) -> Row:
    """Return the filters of runs of a trigger."""
    given = shared.list_filters(statuses, workflow_names, None, None)
    return {"trigger_id": valid.identifier("trigger_id", trigger_id, _MOST.trigger_id), **given}


def counted(which: RunFilter) -> Row:
    """Return the filters of a count."""
    valid.group("filter", which, RunFilter)
    given = shared.list_filters(which.statuses, which.workflow_names, which.repo, which.since)
    trigger_id = valid.optional("trigger_id", which.trigger_id, _MOST.trigger_id)
    return {"trigger_id": trigger_id, **given}


def search(text: str, since: datetime) -> Row:
    """Return the filters of a search: the text as a LIKE pattern without wildcards, its ASCII letters in lower case."""
    text = valid.content("text", text, _LONGEST_TEXT)
    if not text.strip():
        raise InvalidValue("text", "must not be blank")
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return {"since": aware_utc("since", since), "text": {"pattern": f"%{text.translate(_LOWER)}%"}}
