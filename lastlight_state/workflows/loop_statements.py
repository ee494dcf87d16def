"""The statements of `loops`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.base import later_of, table_of
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Statement, prepared
from lastlight_state.workflows.models import RunLoopModel
from lastlight_state.workflows.run_rows import RUNS
from lastlight_state.workflows.run_writes import PERMITTED, PERMITTED_RUN

LOOPS = table_of(RunLoopModel)
_c = LOOPS.c
_COLUMNS = tuple(_c)
_KEY = (_c.run_id, _c.loop_id)


def _param(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=_c[name].type)


_at = sa.bindparam("at", type_=_c.updated_at.type)
_touched = {"updated_at": later_of(_c.updated_at, _at)}
_expected = sa.bindparam("expected", type_=_c.iteration.type)
_here = (_c.run_id == PERMITTED_RUN, _c.loop_id == _param("loop_id"))


def _upsert(row: dict[str, Any], *conditions: sa.ColumnElement[bool], **sets: Any) -> Statement:
    """Insert into a live run, or set where the conditions hold."""
    columns = {"run_id": RUNS.c.id, "loop_id": _param("loop_id"), **row, "updated_at": _at}
    permitted = sa.select(*columns.values()).where(PERMITTED).with_for_update(key_share=True)
    new = insert(LOOPS).from_select(list(columns), permitted, include_defaults=False)
    condition = sa.and_(*conditions) if conditions else None
    replaced = new.on_conflict_do_update(index_elements=_KEY, set_={**_touched, **sets}, where=condition)
    return prepared(replaced.returning(*_COLUMNS))


_given = {"iteration": _param("iteration"), "done": _param("done")}
PUT = _upsert(_given, **_given)

_advanceable = (_c.iteration == _expected, _c.done == sa.false())
ADVANCE_FIRST = _upsert(
    {"iteration": sa.literal_column("1"), "done": sa.false()}, *_advanceable, iteration=_c.iteration + 1
)
"""From iteration 0, where a loop stands also that has no row yet."""
ADVANCE = prepared(
    sa.update(LOOPS).where(*_here, *_advanceable).values(iteration=_c.iteration + 1, **_touched).returning(*_COLUMNS)
)
FINISH = _upsert(
    {"iteration": sa.literal_column("0"), "done": sa.true()},
    done=sa.true(),
    updated_at=sa.case((_c.done == sa.true(), _c.updated_at), else_=_touched["updated_at"]),
)

FIND = prepared(sa.select(*_COLUMNS).where(_c.run_id == _param("run_id"), _c.loop_id == _param("loop_id")))
LIST = Listing(
    "loops", _COLUMNS, order=(_c.loop_id,), descending=False, filters={"run_id": _c.run_id == _param("run_id")}
)
