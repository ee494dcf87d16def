"""What bundles hold and what was loaded of one, for people; and the loading itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call
from lastlight_state.cli.opening import look, working
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.tables import Column
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import Bundle, LoadedBundle
from lastlight_state.maintenance.bundles.records import ON_CONFLICT

PARTS = (
    Column("PART", lambda part: part.name),
    Column("ROWS", lambda part: "" if part.rows is None else part.rows, right=True),
    Column("BYTES", lambda part: part.size_bytes, right=True),
)
ADDED = (Column("ADDED", lambda row: row[0]), Column("ROWS", lambda row: row[1], right=True))


def shown(bundle: Bundle, screen: Screen) -> Iterator[object]:
    """Return what a bundle holds."""
    yield f"{bundle.kind} {bundle.id} at {bundle.revision}"
    yield from screen.table(PARTS, bundle.parts)
    if bundle.redacted:
        yield f"without {', '.join(bundle.redacted)}"
    for name, ids in bundle.context.items():
        yield f"{name} that it was forked from: {', '.join(ids)}"


def loaded(call: Call, path: Path, terms: dict[str, Any], *, dry_run: bool) -> Answer:
    """Load a bundle, or say what a load would add. ``terms`` are the arguments of both."""
    if (on_conflict := terms["on_conflict"]) not in ON_CONFLICT:
        raise InvalidValue("--on-conflict", f"{on_conflict!r:.80} is unknown", permitted=tuple(ON_CONFLICT))
    if dry_run:
        found = look(call, lambda store: store.maintenance.bundles.plan(path, **terms))
    else:
        with working(call) as store:
            found = store.maintenance.bundles.load(path, **terms)
    record = found.model_dump(exclude={"receipt", "kind"})
    data = {"dry_run": dry_run, "kind": "bundle", "bundle_kind": found.kind, **record, "receipt": found.receipt}
    return Answer(data, lambda screen: _lines(screen, found, dry_run))


def _lines(screen: Screen, found: LoadedBundle, dry_run: bool) -> Iterator[object]:
    if found.receipt is not None:
        yield f"receipt {found.receipt.id}: {found.receipt.state}"
    elif dry_run:
        yield "dry run: nothing is written"
    else:
        yield f"{found.kind} {found.id} is there already"
    if found.rows:
        yield from screen.table(ADDED, list(found.rows.items()))
    yield from found.files
