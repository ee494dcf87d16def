"""How log files are planned and pruned: the receipt first names the logs that go next, and then counts those that went.

Files take no part in transactions. So what a kill leaves is in the receipt, and is looked at again by whoever goes on:
what is gone counts as removed, and what has changed since stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from lastlight_state.db.columns import parse_time
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.prune import places, statements as sql
from lastlight_state.maintenance.prune.checks import Terms, refuse_missing
from lastlight_state.maintenance.prune.files import FILES
from lastlight_state.maintenance.prune.files.tree import Seen, Size, Tree
from lastlight_state.maintenance.prune.places import START
from lastlight_state.maintenance.prune.records import LINE_BYTES, LINE_FILES, PrunePlan
from lastlight_state.receipts import Receipt, steps
from lastlight_state.settings import Settings

#: How many logs a receipt names at a time, and how many of them a plan. As many fit a receipt, however long their
#: names are: two of 255 bytes each, of which JSON may write every one as six.
TOGETHER, _SAMPLES = 20, 20
#: Logs by their keys, with what goes of each.
Going: TypeAlias = dict[str, Size]


def begun(settings: Settings, terms: Terms) -> Terms:
    """The terms of a prune that begins: the place until which logs go, and the directory where they are.

    Raises `InvalidValue` where that is not there, and `NotFound` for one of the ids.
    """
    tree = tree_of(settings, terms)
    return _bounded(tree, tree.seen(parse_time(terms["cutoff"])), terms)


def planned(unit: Unit, settings: Settings, terms: Terms) -> PrunePlan:
    """The plan of a prune of logs. Raises as `begun`."""
    tree, cutoff = tree_of(settings, terms), parse_time(terms["cutoff"])
    seen = tree.seen(cutoff)
    staying, found = Counter(seen.staying), Going()
    for keys in chunks(tree, seen, _bounded(tree, seen, terms)):
        found |= going(unit, tree, keys, cutoff, staying)
    return PrunePlan(
        kind=tree.name,
        cutoff=cutoff,
        records=len(found),
        counts=_counted(found),
        protected=dict(sorted((+staying).items())),
        victims=tuple(map(tree.id_of, list(found)[:_SAMPLES])),
    )


def tree_of(settings: Settings, terms: Terms) -> Tree:
    """The logs on this machine. Raises `InvalidValue` where their directory is not there, or was another one before."""
    tree = FILES[terms["kind"]](settings)
    if not tree.root.is_dir():
        raise InvalidValue("kind", f"no {tree.name} are on this machine: no folder {tree.root}")
    if terms.get("root", str(tree.root)) != str(tree.root):
        raise InvalidValue("receipt_id", f"the prune is of the logs in {terms['root']}, here they are in {tree.root}")
    return tree


def chunks(tree: Tree, seen: Seen, terms: Terms) -> Iterator[list[str]]:
    """The logs that are old enough, the oldest first, some at a time."""
    until, ids = places.read(terms["until"]), terms["ids"]
    old = [log[1] for log in seen.logs if log < until and (ids is None or tree.id_of(log[1]) in ids)]
    return (old[at : at + TOGETHER] for at in range(0, len(old), TOGETHER))


def going(unit: Unit, tree: Tree, keys: Sequence[str], cutoff: datetime, staying: Counter[str]) -> Going:
    """Those of these logs that nothing protects; the others are counted by the reason."""
    kept = tree.protected(unit, keys)
    sizes = {key: tree.size(key, cutoff) for key in keys if key not in kept}
    staying.update(kept.values())
    staying["changed"] += sum(size is None for size in sizes.values())
    return {key: size for key, size in sizes.items() if size is not None}


def removed(tree: Tree, going: Going, kept: Collection[str], cutoff: datetime) -> Going:
    """Remove these logs but for those that are kept now; those that are gone."""
    return {key: size for key, size in going.items() if key not in kept and tree.remove(key, cutoff)}


def counted(unit: Unit, receipt: Receipt, tree: Tree, gone: Going, at: datetime) -> Receipt:
    """Count the logs that are gone, and remember that nobody lost them."""
    for session_id in sorted({tree.id_of(key) for key in gone} if tree.buried else ()):
        entry = {"kind": tree.record, "id": session_id, "receipt_id": receipt.id, "digest": None, "deleted_at": at}
        unit.change(sql.BURY_ARCHIVED, entry)
    counts = Counter(receipt.counts) + Counter(_counted(gone))
    return steps.step(unit, receipt, counts=dict(sorted(counts.items())), cursor=None, at=at)


def cursor(going: Going) -> Any:
    """The logs that go next, for a receipt."""
    return {"going": [[key, *size] for key, size in going.items()]}


def left(receipt: Receipt) -> Going:
    """The logs that a receipt says go next."""
    found = {} if receipt.cursor is None else receipt.cursor
    return {key: Size(files, size) for key, files, size in found.get("going", ())}


def _bounded(tree: Tree, seen: Seen, terms: Terms) -> Terms:
    ids, kept = terms["ids"] or (), terms["keep_n"]
    refuse_missing(tree.record, ids, {tree.id_of(key) for _, key in seen.logs})
    until = places.read([terms["cutoff"], ""])
    if kept:
        until = START if len(seen.logs) < kept else min(until, seen.logs[-kept])
    return {**terms, "until": places.written(until), "root": str(tree.root)}


def _counted(going: Going) -> dict[str, int]:
    files, size = sum(one.files for one in going.values()), sum(one.bytes for one in going.values())
    return {LINE_BYTES: size, LINE_FILES: files} if going else {}
