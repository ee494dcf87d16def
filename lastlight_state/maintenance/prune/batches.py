"""Removes one batch of a prune: complete records in one transaction, in which the receipt is updated, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.permits import permit_deletion
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.prune import archived_logs, arguments, candidates, candidates as sql
from lastlight_state.maintenance.prune.archiving import Archiver
from lastlight_state.maintenance.prune.arguments import START, Place, PrunePlan
from lastlight_state.maintenance.prune.candidates import Range
from lastlight_state.maintenance.prune.checks import Terms, refuse_missing
from lastlight_state.maintenance.prune.kinds import KINDS, Kind
from lastlight_state.receipts import Receipt, steps
from lastlight_state.settings import Settings

# The plan of a prune.

#: How many victims a plan names.
SAMPLES = 20


def begin(unit: Unit, terms: Terms) -> Terms:
    """Return the terms of a new prune. Raises `NotFound` if one of the ids does not exist."""
    kind = KINDS[terms["kind"]]
    _refuse_unknown(unit, kind.name, tuple(terms["ids"] or ()))
    return candidates.bounded_terms(unit, kind, terms)


def plan(unit: Unit, terms: Terms, settings: Settings) -> PrunePlan:
    """Return the plan for the records that are old enough and not among the newest. Raises the errors of `begin`."""
    kind = KINDS[terms["kind"]]
    found = Range.of(kind, begin(unit, terms))
    cutoff = parse_time(terms["cutoff"])
    counts: Counter[str] = Counter()
    protected = Counter(not_ended=candidates.not_ended(unit, kind, cutoff))
    outputs = candidates.outputs_of(unit, kind)
    samples: list[str] = []
    records = 0
    named: Counter[str] = Counter()
    for keys in _together(unit, kind, _removable_keys(unit, found, protected), protected):
        samples += keys[: SAMPLES - len(samples)]
        records += len(keys)
        for rows in candidates.sizes(unit, kind, keys, outputs).values():
            counts.update(rows)
        if kind.shared is not None:
            counts += kind.shared.count(unit, keys)
        if terms["with_logs"]:
            named += archived_logs.named_by(unit, kind.name, keys)
    if terms["with_logs"]:
        counts += archived_logs.removable_counts(unit, named, settings, cutoff)
    return PrunePlan(
        kind=kind.name,
        cutoff=cutoff,
        records=records,
        counts=dict(sorted(counts.items())),
        protected={reason: count for reason, count in sorted(protected.items()) if count},
        victims=tuple(samples),
    )


def _removable_keys(unit: Unit, found: Range, protected: Counter[str]) -> Iterator[list[str]]:
    """Yield the records that nothing protects, in batches. The other records are counted by reason."""
    used = candidates.in_use(unit, found.kind)
    for places in candidates.walk(unit, found):
        keys = [key for _, key in places]
        kept = candidates.protected_records(unit, found.kind, keys, used)
        protected.update(kept.values())
        yield [key for key in keys if key not in kept]


def _together(unit: Unit, kind: Kind, going: Iterator[list[str]], protected: Counter[str]) -> Iterable[list[str]]:
    """Return the records in groups for counting: a single group if records of this kind share rows, else unchanged."""
    if kind.shared is None:
        return going
    waits: dict[str, set[str]] = {}
    victims: list[str] = []
    for keys in going:
        victims += keys
        waits |= candidates.waits(unit, kind, keys)
    free = candidates.free(victims, waits)
    protected["forked"] = len(victims) - len(free)
    return [free]


def _refuse_unknown(unit: Unit, name: str, keys: tuple[str, ...]) -> None:
    if not keys:
        return
    refuse_missing(KINDS[name].record, keys, set(unit.values(*sql.STATEMENTS[name].known.of(keys))))


@dataclass(frozen=True)
class Progress:
    """The progress of a prune: the place after which it continues, and whether this pass has removed any record.

    ``archived`` names the bundles of removed records whose logs are to be removed next.
    """

    after: Place = START
    removed: bool = False
    archived: tuple[str, ...] = ()

    @classmethod
    def of(cls, cursor: Any) -> Progress:
        """Read the progress from a receipt's cursor. A cursor of None is the beginning."""
        if cursor is None:
            return cls()
        return cls(arguments.read(cursor["after"]), cursor["removed"], tuple(cursor.get("archived", ())))

    def cursor(self) -> dict[str, Any]:
        """Return the progress as a cursor for a receipt."""
        return {"after": arguments.encode_place(self.after), "removed": self.removed, "archived": list(self.archived)}


def batch(
    unit: Unit, receipt: Receipt, found: Range, most: int, at: datetime, archiver: Archiver | None = None
) -> tuple[Receipt, bool]:
    """Remove the next records: at most ``most`` rows together, or one record. Returns True if there are more.

    Every record is checked again after it was locked. A record is not removed if it was restarted since the prune
    began, or if another record waits for it now. The receipt is locked first. So if another process has taken over the
    work, this call ends before the first removal. With an ``archiver``, each record is archived in a bundle before it
    is removed.
    """
    steps.confirm(unit, receipt)
    progress = Progress.of(receipt.cursor)
    following = found.next(unit, progress.after, locked=True)
    if not following:
        again = progress.removed
        return _step_receipt(unit, receipt, Counter(), Progress(), at), again
    keys = [key for _, key in following]
    if found.kind.shared is not None:
        found.kind.shared.lock(unit, keys)
    kept = candidates.protected_records(unit, found.kind, keys, candidates.in_use(unit, found.kind))
    victims = [key for key in keys if key not in kept]
    outputs = candidates.outputs_of(unit, found.kind)
    chosen = _prefix(_bounds(unit, found.kind, victims, outputs), most)
    taken = candidates.free(chosen, candidates.waits(unit, found.kind, chosen))
    digests, archived = (
        ({}, Counter()) if archiver is None else _archive_records(unit, archiver, found.kind, taken, outputs)
    )
    if archiver is not None:
        taken = [key for key in taken if key in digests]
    removed = _remove_records(unit, receipt, found, taken, outputs, at, digests) if taken else Counter()
    if archiver is not None:
        archiver.refuse_other(archived, removed)
        archiver.prove(unit, {key: digests[key] for key in taken}, at)
    last = following[-1] if len(chosen) == len(victims) else following[keys.index(chosen[-1])]
    names = tuple(archiver.name_of(*one) for one in digests.items()) if archiver and archiver.with_logs else ()
    progress = Progress(last, progress.removed or bool(taken), names)
    return _step_receipt(unit, receipt, removed, progress, at), True


def count_removed_logs(unit: Unit, receipt: Receipt, removed: Counter[str], at: datetime) -> Receipt:
    """Count the logs that were removed after a batch, and remove the names of their bundles from the cursor."""
    return _step_receipt(unit, receipt, removed, replace(Progress.of(receipt.cursor), archived=()), at)


def _archive_records(
    unit: Unit, archiver: Archiver, kind: Kind, keys: Sequence[str], outputs: Sequence[str]
) -> tuple[dict[str, str], Counter[str]]:
    """Write these records as bundles. The records are locked, so that they do not change until they are removed."""
    candidates.hold(unit, kind, keys, outputs)
    return archiver.archive(unit, keys)


def _bounds(unit: Unit, kind: Kind, keys: Sequence[str], outputs: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the number of rows of each record by table, with an estimate of its shared rows."""
    found = candidates.sizes(unit, kind, keys, outputs)
    if kind.shared is not None:
        for key, rows in kind.shared.sizes(unit, keys).items():
            found[key]["shared"] += rows
    return found


def _prefix(sizes: dict[str, Counter[str]], most: int) -> list[str]:
    """Return the first records that together have at most ``most`` rows, but at least one record."""
    taken: list[str] = []
    rows = 0
    for key, counts in sizes.items():
        rows += counts.total()
        if taken and rows > most:
            break
        taken.append(key)
    return taken


def _remove_records(
    unit: Unit,
    receipt: Receipt,
    found: Range,
    keys: Sequence[str],
    outputs: Sequence[str],
    at: datetime,
    digests: Mapping[str, str],
) -> Counter[str]:
    """Remove these records with all rows that belong to them. The permit to delete ends with this transaction."""
    kind, statements = found.kind, found.statements
    counts: Counter[str] = Counter()
    with permit_deletion(unit, receipt.id):
        for key, digest in digests.items():
            entry = {"kind": kind.record, "id": key, "receipt_id": receipt.id, "digest": digest, "deleted_at": at}
            unit.change(sql.BURY_ARCHIVED, entry)
        if kind.buried:
            statement, values = statements.bury.of(keys)
            unit.change(statement, {**values, "receipt_id": receipt.id, "at": at})
        held = None if kind.shared is None else kind.shared.referenced_keys(unit, keys)
        for table in outputs:
            counts[table] += unit.change(*sql.output_removal(table).of(keys))
        for table, family in statements.children.items():
            counts[table] += unit.change(*family.of(keys))
        counts[kind.table_name] += unit.change(*statements.own.of(keys))
        if kind.shared is not None:
            counts += kind.shared.release(unit, held)
    return counts


def _step_receipt(unit: Unit, receipt: Receipt, removed: Counter[str], progress: Progress, at: datetime) -> Receipt:
    counts = Counter(receipt.counts) + removed
    return steps.step(unit, receipt, counts=dict(sorted(counts.items())), cursor=progress.cursor(), at=at)
