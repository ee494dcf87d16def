"""Plans and carries out a sweep: a sweep reads without a lock, and removes in short transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.permits import permit_deletion
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.prune import arguments, candidates as sql
from lastlight_state.maintenance.prune.arguments import LINE_BYTES, LINE_FILES, START, PrunePlan
from lastlight_state.maintenance.prune.checks import Terms, refuse_missing
from lastlight_state.maintenance.prune.files import FILES, LogsByAge, Size, Tree
from lastlight_state.maintenance.prune.sweeps import SWEEPS
from lastlight_state.maintenance.prune.sweeps.sweep import CandidatePage, Removal, Stage, cutoff
from lastlight_state.receipts import Receipt, steps
from lastlight_state.settings import Settings

# Prunes log files: the receipt first names the next logs, then counts the removed ones. Files do not take part in
# transactions. After a kill, the receipt still names the logs, and the next call checks them again: missing logs count
# as removed, and changed logs stay.

#: How many logs a receipt names at a time, and how many a plan names. A receipt can hold this many even with the
#: longest names: two of 255 bytes each, where JSON may write each byte as six.
TOGETHER, _SAMPLES = 20, 20
#: Logs to remove, by key, with their sizes.
Going: TypeAlias = dict[str, Size]


def begin_files(settings: Settings, terms: Terms) -> Terms:
    """Return the terms of a new prune: the place in their order until which logs are removed, and their directory.

    Raises `InvalidValue` if the directory is missing, and `NotFound` if one of the ids is missing.
    """
    tree = tree_of(settings, terms)
    return _bounded_terms(tree, tree.logs_by_age(parse_time(terms["cutoff"])), terms)


def plan_files(unit: Unit, settings: Settings, terms: Terms) -> PrunePlan:
    """Return the plan of a prune of logs. Raises the errors of `begin_files`."""
    tree, cutoff = tree_of(settings, terms), parse_time(terms["cutoff"])
    seen = tree.logs_by_age(cutoff)
    staying, found = Counter(seen.staying), Going()
    for keys in chunks(tree, seen, _bounded_terms(tree, seen, terms)):
        found |= removable_logs(unit, tree, keys, cutoff, staying)
    return PrunePlan(
        kind=tree.name,
        cutoff=cutoff,
        records=len(found),
        counts=_count_sizes(found),
        protected=dict(sorted((+staying).items())),
        victims=tuple(map(tree.id_of, list(found)[:_SAMPLES])),
    )


def tree_of(settings: Settings, terms: Terms) -> Tree:
    """Return the tree of logs on this machine.

    Raises `InvalidValue` if the tree's directory is missing, or is not the directory of the terms.
    """
    tree = FILES[terms["kind"]](settings)
    if not tree.root.is_dir():
        raise InvalidValue("kind", f"no {tree.name} are on this machine: no folder {tree.root}")
    if terms.get("root", str(tree.root)) != str(tree.root):
        raise InvalidValue("receipt_id", f"the prune is of the logs in {terms['root']}, here they are in {tree.root}")
    return tree


def chunks(tree: Tree, seen: LogsByAge, terms: Terms) -> Iterator[list[str]]:
    """Yield the keys of logs that are old enough, the oldest first, in batches."""
    until, ids = arguments.read(terms["until"]), terms["ids"]
    old = [log[1] for log in seen.logs if log < until and (ids is None or tree.id_of(log[1]) in ids)]
    return (old[at : at + TOGETHER] for at in range(0, len(old), TOGETHER))


def removable_logs(unit: Unit, tree: Tree, keys: Sequence[str], cutoff: datetime, staying: Counter[str]) -> Going:
    """Return the logs that nothing protects, with their sizes. The other logs are counted by reason."""
    kept = tree.protected_logs(unit, keys)
    sizes = {key: tree.size(key, cutoff) for key in keys if key not in kept}
    staying.update(kept.values())
    staying["changed"] += sum(size is None for size in sizes.values())
    return {key: size for key, size in sizes.items() if size is not None}


def remove_logs(tree: Tree, going: Going, kept: Collection[str], cutoff: datetime) -> Going:
    """Remove these logs except those in ``kept``. Returns the logs that were removed."""
    return {key: size for key, size in going.items() if key not in kept and tree.remove(key, cutoff)}


def record_removed_logs(unit: Unit, receipt: Receipt, tree: Tree, gone: Going, at: datetime) -> Receipt:
    """Count the removed logs in the receipt. Writes a tombstone for each log if the kind has tombstones."""
    for session_id in sorted({tree.id_of(key) for key in gone} if tree.buried else ()):
        entry = {"kind": tree.record, "id": session_id, "receipt_id": receipt.id, "digest": None, "deleted_at": at}
        unit.change(sql.BURY_ARCHIVED, entry)
    counts = Counter(receipt.counts) + Counter(_count_sizes(gone))
    return steps.step(unit, receipt, counts=dict(sorted(counts.items())), cursor=None, at=at)


def cursor(going: Going) -> Any:
    """Return a cursor for the receipt that names the next logs to remove."""
    return {"going": [[key, *size] for key, size in going.items()]}


def pending_logs(receipt: Receipt) -> Going:
    """Return the logs to remove that a receipt's cursor names."""
    found = {} if receipt.cursor is None else receipt.cursor
    return {key: Size(files, size) for key, files, size in found.get("going", ())}


def _bounded_terms(tree: Tree, seen: LogsByAge, terms: Terms) -> Terms:
    ids, kept = terms["ids"] or (), terms["keep_n"]
    refuse_missing(tree.record, ids, {tree.id_of(key) for _, key in seen.logs})
    until = arguments.read([terms["cutoff"], ""])
    if kept:
        until = START if len(seen.logs) < kept else min(until, seen.logs[-kept])
    return {**terms, "until": arguments.encode_place(until), "root": str(tree.root)}


def _count_sizes(going: Going) -> dict[str, int]:
    files, size = sum(one.files for one in going.values()), sum(one.bytes for one in going.values())
    return {LINE_BYTES: size, LINE_FILES: files} if going else {}


#: After how many looks without findings the receipt is updated.
QUIET = 50


class Place(NamedTuple):
    """The position of a sweep: where it continues, whether this pass has removed any rows, and the stage."""

    after: Any = None
    removed: bool = False
    stage: int = 0

    @classmethod
    def of(cls, receipt: Receipt) -> Place:
        """Read the position from a receipt's cursor."""
        return cls() if receipt.cursor is None else cls(**receipt.cursor)


def plan(unit: Unit, terms: Terms) -> PrunePlan:
    """Return the plan of a sweep: the records and rows that it would remove."""
    found = SWEEPS[terms["kind"]].tally(unit, begin(unit, terms))
    return PrunePlan(
        kind=terms["kind"],
        cutoff=cutoff(terms),
        records=found.records,
        counts=dict(sorted((+found.counts).items())),
        protected=dict(sorted((+found.protected).items())),
        victims=tuple(found.samples),
    )


def begin(unit: Unit, terms: Terms) -> Terms:
    """Return the terms of a new sweep. Raises `NotFound` if one of the ids does not exist."""
    sweep, keys = SWEEPS[terms["kind"]], terms["ids"] or ()
    refuse_missing(sweep.record, keys, sweep.existing_keys(unit, keys))
    return dict(sweep.bounded_terms(unit, terms))


def look(unit: Unit, receipt: Receipt, place: Place) -> CandidatePage:
    """Return the next candidates for removal at a position of a sweep."""
    return _stage(receipt, place).look(unit, receipt.policy, place.after)


def batch(
    unit: Unit, receipt: Receipt, place: Place, look: CandidatePage, at: datetime
) -> tuple[Receipt, Place | None]:
    """Remove the given candidates, or as many as fit into a batch. Returns the next position, or None at the end.

    If a pass has removed any rows, another pass follows, which finds rows that were locked before.
    """
    steps.confirm(unit, receipt)
    removal = Removal(Counter())
    if look.keys:
        with permit_deletion(unit, receipt.id):
            removal = _stage(receipt, place).remove(unit, receipt.policy, look.keys, receipt.policy["batch_rows"])
    going_on = place.after if removal.more else look.after
    following = _next_place(receipt, Place(going_on, place.removed or bool(removal.counts), place.stage), removal.more)
    counts = Counter(receipt.counts) + removal.counts
    cursor = (following or Place())._asdict()
    return steps.step(unit, receipt, counts=dict(sorted(counts.items())), cursor=cursor, at=at), following


def _next_place(receipt: Receipt, place: Place, more: bool) -> Place | None:
    """Return the position to continue from: after the last record, the start of the next pass or stage.

    None at the end.
    """
    if more or place.after is not None:
        return place
    if place.removed:
        return Place(stage=place.stage)
    last = len(SWEEPS[receipt.scope].stages) - 1
    return None if place.stage == last else Place(stage=place.stage + 1)


def _stage(receipt: Receipt, place: Place) -> Stage:
    return SWEEPS[receipt.scope].stages[place.stage]
