"""A bundle of what was selected: its rows, its logs, and the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.bundles import logs, redaction, selection
from lastlight_state.maintenance.bundles.archive import FORMAT, Archive
from lastlight_state.maintenance.bundles.records import Bundle, tables_of
from lastlight_state.outputs.tables import REGISTRY
from lastlight_state.settings import Settings


def written(
    file: BinaryIO,
    unit: Unit,
    named: tuple[str, str, str],
    chosen: selection.Selection,
    settings: Settings | None,
    redact: tuple[str, ...] = (),
    left_columns: Sequence[str] = (),
) -> Bundle:
    """Write a bundle and return what it holds. ``named`` is its kind, its id and the revision of the schema.

    Without ``settings`` it has no logs. ``redact`` names what it leaves out, in order; ``left_columns`` what it cannot
    hold.
    """
    kind, key, revision = named
    with Archive(file) as archive:
        _add_rows(archive, unit, chosen, redact)
        for name, path in logs.found(settings, chosen.logs) if settings is not None and "logs" not in redact else ():
            archive.add_bytes(name, logs.content(path))
        bundle = Bundle(
            format=FORMAT,
            kind=kind,
            id=key,
            revision=revision,
            context=chosen.context,
            redacted=redact,
            left_columns=tuple(left_columns),
            parts=tuple(archive.parts),
        )
        archive.finish(bundle)
    return bundle


def _add_rows(archive: Archive, unit: Unit, chosen: selection.Selection, redact: tuple[str, ...]) -> None:
    """The rows of every table, and of the registry those of the output tables among them."""
    outputs = {subject.name for subject, _, _ in chosen.rows if subject.is_output}
    for subject, reading, keys in chosen.rows:
        if not redaction.is_left_out(subject, redact):
            marked = redaction.marking(subject.table, redact)
            archive.add_lines(f"rows/{subject.name}.jsonl", selection.rows_of(unit, subject, reading, keys, marked))
    used = sorted(outputs & tables_of(archive.parts).keys())
    if used:
        archive.add_lines(f"rows/{REGISTRY.name}.jsonl", selection.registered(unit, used))
