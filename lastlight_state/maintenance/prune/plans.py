"""What a prune looks at, and what it would remove."""

from __future__ import annotations

from collections import Counter

from lastlight_state.db import valid
from lastlight_state.db.columns import parse_time
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.prune import statements as sql, walk
from lastlight_state.maintenance.prune.checks import Terms
from lastlight_state.maintenance.prune.kinds import KINDS
from lastlight_state.maintenance.prune.records import PrunePlan
from lastlight_state.maintenance.prune.walk import START, Range

#: How many of the records that would go a plan names.
SAMPLES = 20


def range_of(unit: Unit, terms: Terms) -> Range:
    """The records that are old enough and not among the newest. Raises `NotFound` for a key that is not there."""
    kind = KINDS[terms["kind"]]
    keys = None if terms["ids"] is None else tuple(terms["ids"])
    _refuse_unknown(unit, kind.name, keys or ())
    until = (parse_time(terms["cutoff"]), "")
    if terms["keep_n"]:
        last_kept = unit.row(sql.STATEMENTS[kind.name].boundary, {"kept": terms["keep_n"] - 1})
        until = START if last_kept is None else min(until, (last_kept["age"], last_kept["key"]))
    return Range(kind, until, keys)


def planned(unit: Unit, found: Range, terms: Terms) -> PrunePlan:
    """The plan for these records."""
    kind = found.kind
    cutoff = parse_time(terms["cutoff"])
    counts: Counter[str] = Counter()
    protected = Counter({"not_ended": unit.value(found.statements.open, {"cutoff": cutoff})})
    victims: list[str] = []
    records = 0
    used, outputs = walk.in_use(unit, kind), walk.outputs_of(unit, kind)
    for places in walk.walk(unit, found):
        keys = [key for _, key in places]
        kept = walk.protected(unit, kind, keys, used)
        protected.update(kept.values())
        going = [key for key in keys if key not in kept]
        victims += going[: SAMPLES - len(victims)]
        records += len(going)
        for rows in walk.sizes(unit, kind, going, outputs).values():
            counts.update(rows)
    return PrunePlan(
        kind=kind.name,
        cutoff=cutoff,
        records=records,
        counts=dict(sorted(counts.items())),
        protected={reason: count for reason, count in sorted(protected.items()) if count},
        victims=tuple(victims),
    )


def _refuse_unknown(unit: Unit, name: str, keys: tuple[str, ...]) -> None:
    if not keys:
        return
    known = {row["key"] for row in unit.rows(*sql.STATEMENTS[name].known.of(keys))}
    for key in keys:
        if key not in known:
            raise valid.not_found(KINDS[name].record, key)
