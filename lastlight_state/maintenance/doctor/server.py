"""DOC-03, DOC-06 and DOC-07: settings, growth and integrity, as the database tells them."""

from __future__ import annotations

from collections.abc import Iterator

from lastlight_state.maintenance.doctor.check import Check, Look, Snapshot, found
from lastlight_state.maintenance.doctor.records import Finding

SETTINGS, GROWTH, INTEGRITY = "DOC-03", "DOC-06", "DOC-07"

#: By setting: the value that is expected, the severity of another one, and what it means.
_EXPECTED = {
    "wal_autocheckpoint": (1000, "info", "another number of pages is configured than the usual one"),
    "foreign_keys": (True, "error", "foreign keys are not enforced"),
    "default_transaction_isolation": ("read committed", "info", "another isolation is the default; ours is stated"),
    "synchronous_commit": ("on", "warning", "a crash of the server may lose commits"),
}

#: The WAL is large past this, and large beside its database past the second.
_LARGE_WAL, _WAL_BESIDE = 64 * 1024 * 1024, 16 * 1024 * 1024
#: Share of free pages worth a vacuum, and from which size on a database or table is worth one.
_FREE_SHARE, _WORTH = 0.25, 16 * 1024 * 1024


def _settings(_: Look, snapshot: Snapshot) -> Iterator[Finding]:
    told = snapshot.measures.settings
    for name, (expected, severity, message) in _EXPECTED.items():
        if name in told and told[name] != expected:
            yield found(SETTINGS, severity, name, f"{message}: expected {expected}, found {told[name]}", [name])


def _growth(_: Look, snapshot: Snapshot) -> Iterator[Finding]:
    measures = snapshot.measures
    wal, size, free = measures.wal_bytes or 0, measures.size_bytes, measures.free_bytes or 0
    if wal > _LARGE_WAL or wal > max(size, _WAL_BESIDE):
        message = f"the write-ahead log has {wal} bytes, the database {size}"
        yield found(GROWTH, "warning", "wal", message, ["wal"], "lastlight-state checkpoint")
    if size >= _WORTH and free > size * _FREE_SHARE:
        message = f"{free} of {size} bytes are free pages"
        yield found(GROWTH, "info", "database", message, ["database"], "lastlight-state vacuum")
    unknown = [name for name, table in measures.tables.items() if table.rows is None and (table.bytes or 0) >= _WORTH]
    if unknown:
        message = "the planner knows nothing about these tables: they were never vacuumed nor analysed"
        yield found(GROWTH, "info", "tables", message, unknown, "lastlight-state vacuum")


def _integrity(look: Look, snapshot: Snapshot) -> Iterator[Finding]:
    unit = snapshot.unit
    damages = unit.backend.damages(unit.checkout, deep=look.deep)
    if damages:
        message = "the database itself says that it is damaged: restore it, or dump what can be read"
        yield found(INTEGRITY, "error", "database", message, damages)


CHECKS = (Check(SETTINGS, rows=_settings), Check(GROWTH, rows=_growth), Check(INTEGRITY, rows=_integrity))
