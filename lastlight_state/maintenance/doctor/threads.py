"""What the checks look for in threads of checkpoints: values that cannot be rebuilt."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.checkpoints.tables import VALUES
from lastlight_state.db.statements import constant, number
from lastlight_state.maintenance.doctor.check import Fault

_SEQUENCE = "DOC-12"

_c, _base = VALUES.c, VALUES.alias("base")
#: How far a value is behind the whole one. The lowest bit cleared, it is that of its base.
_behind = _c.number - _c.anchor


def _missing(at: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    line = (_base.c[name] == _c[name] for name in ("thread_id", "namespace", "channel"))
    there = sa.select(number(1)).where(*line, _base.c.number == at, _base.c.encoding != constant("same"))
    return sa.not_(sa.exists(there))


def _fault(encoding: str, at: sa.ColumnElement[int], message: str) -> Fault:
    find = sa.select(*VALUES.primary_key).where(_c.encoding == constant(encoding), _missing(at))
    return Fault(_SEQUENCE, "error", VALUES, message, find)


SEQUENCES = (
    _fault(
        "change",
        _c.anchor + _behind.op("&")(_behind - number(1)),
        "a value is a change since one that is not there",
    ),
    _fault("same", _c.number, "a value is the same as one that is not there"),
)
