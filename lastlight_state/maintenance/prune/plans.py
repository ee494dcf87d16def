"""What a prune looks at, and what it would remove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from lastlight_state.db.columns import parse_time
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.prune import archived_logs, statements as sql, walk
from lastlight_state.maintenance.prune.checks import Terms, refuse_missing
from lastlight_state.maintenance.prune.kinds import KINDS
from lastlight_state.maintenance.prune.kinds.kind import Kind
from lastlight_state.maintenance.prune.records import PrunePlan
from lastlight_state.maintenance.prune.walk import Range
from lastlight_state.settings import Settings

#: How many of the records that would go a plan names.
SAMPLES = 20


def begun(unit: Unit, terms: Terms) -> Terms:
    """The terms of a prune that begins. Raises `NotFound` for one of the ids that is not there."""
    kind = KINDS[terms["kind"]]
    _refuse_unknown(unit, kind.name, tuple(terms["ids"] or ()))
    return walk.bounded(unit, kind, terms)


def planned(unit: Unit, terms: Terms, settings: Settings) -> PrunePlan:
    """The plan for the records that are old enough and not among the newest. Errors as `begun`."""
    kind = KINDS[terms["kind"]]
    found = Range.of(kind, begun(unit, terms))
    cutoff = parse_time(terms["cutoff"])
    counts: Counter[str] = Counter()
    protected = Counter(not_ended=walk.not_ended(unit, kind, cutoff))
    outputs = walk.outputs_of(unit, kind)
    samples: list[str] = []
    records = 0
    named: Counter[str] = Counter()
    for keys in _together(unit, kind, _going(unit, found, protected), protected):
        samples += keys[: SAMPLES - len(samples)]
        records += len(keys)
        for rows in walk.sizes(unit, kind, keys, outputs).values():
            counts.update(rows)
        if kind.shared is not None:
            counts += kind.shared.count(unit, keys)
        if terms["with_logs"]:
            named += archived_logs.named_by(unit, kind.name, keys)
    if terms["with_logs"]:
        counts += archived_logs.measured(unit, named, settings, cutoff)
    return PrunePlan(
        kind=kind.name,
        cutoff=cutoff,
        records=records,
        counts=dict(sorted(counts.items())),
        protected={reason: count for reason, count in sorted(protected.items()) if count},
        victims=tuple(samples),
    )


def _going(unit: Unit, found: Range, protected: Counter[str]) -> Iterator[list[str]]:
    """The records that nothing protects, a look at a time; the others are counted by the reason."""
    used = walk.in_use(unit, found.kind)
    for places in walk.walk(unit, found):
        keys = [key for _, key in places]
        kept = walk.protected(unit, found.kind, keys, used)
        protected.update(kept.values())
        yield [key for key in keys if key not in kept]


def _together(unit: Unit, kind: Kind, going: Iterator[list[str]], protected: Counter[str]) -> Iterable[list[str]]:
    """These records as they are counted: all at once where they share rows, without those that others hold back."""
    if kind.shared is None:
        return going
    waits: dict[str, set[str]] = {}
    victims: list[str] = []
    for keys in going:
        victims += keys
        waits |= walk.waits(unit, kind, keys)
    free = walk.free(victims, waits)
    protected["forked"] = len(victims) - len(free)
    return [free]


def _refuse_unknown(unit: Unit, name: str, keys: tuple[str, ...]) -> None:
    if not keys:
        return
    refuse_missing(KINDS[name].record, keys, {row["key"] for row in unit.rows(*sql.STATEMENTS[name].known.of(keys))})
