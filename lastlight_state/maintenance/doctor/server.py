"""DOC-01 to 03, DOC-05 to 07, DOC-18 to 20: the database as a whole, its engine, and who may use its files."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lastlight_state.conversations.tables import NAMESPACES, VECTORS
from lastlight_state.files.jsonl import files
from lastlight_state.files.mailbox.face import MODES
from lastlight_state.files.mailbox.folder import INBOUND_DB, OUTBOUND_DB, is_name
from lastlight_state.maintenance.doctor.check import MOST, Check, CheckContext, Finding, Snapshot, make_finding
from lastlight_state.migrations import check as plan_of, read_state
from lastlight_state.migrations.state import UNRELEASED
from lastlight_state.migrations.verification import LOG_LOST, LOG_LOST_TOO

# DOC-01 and DOC-02: whether the database can be reached, and whether its schema matches its revision.

REACH, SCHEMA = "DOC-01", "DOC-02"

_BACKUP = "lastlight-state backup DIR"
_MEANING = {
    "empty": "nothing is migrated yet",
    "behind": "the schema is behind",
    "ahead": "the schema is newer than this version, which may work on it",
    "incompatible": "the schema is newer than this version, which may not work on it: upgrade lastlight-state",
    "unversioned": "there are tables named like ours, but no version of ours beside them",
    "unreleased": UNRELEASED,
    "foreign": "the version in the version table is not a revision of lastlight-state",
}


def _reach(look: CheckContext) -> Iterator[Finding]:
    """Connect to the server, and read from it. The caller converts any error to a finding."""
    if not look.backend.exists:
        message = "there is no database; the command makes one"
        yield make_finding(
            REACH, "error", look.backend.location, message, [look.backend.location], "lastlight-state migrate"
        )
    elif look.backend.lost_log(lacks_tables=False):
        yield make_finding(REACH, "error", look.backend.location, LOG_LOST, [look.backend.location], _BACKUP)
    else:
        read_state(look.backend)


def _schema(look: CheckContext) -> Iterator[Finding]:
    plan = plan_of(look.backend)
    state = plan.state.state
    absent = plan.state.absent
    lacks_tables = state in ("empty", "unversioned") or any(one.kind == "table" for one in absent)
    lost = look.backend.lost_log(lacks_tables=lacks_tables)
    if lost and state != "current":
        yield make_finding(SCHEMA, "error", "database", LOG_LOST, [look.backend.location], _BACKUP)
    if state != "current":
        mending = look.backend.command(*(("stamp", "--to", plan.actual) if plan.actual else ("migrate",)))
        severity = "warning" if state == "ahead" else "error"
        helps = mending if not lost and (plan.actual or state in ("empty", "behind")) else None
        yield make_finding(SCHEMA, severity, "schema", _MEANING[state], [plan.state.revision or "-"], helps)
    if plan.differences:
        message = "the schema is not as its revision makes it" + (f"; {LOG_LOST_TOO}" if lost else "")
        helps = look.backend.command("migrate" if plan.mending else "check")
        yield make_finding(SCHEMA, "error", "schema", message, plan.differences, helps)


REACH_CHECKS = (Check(REACH, files=_reach), Check(SCHEMA, files=_schema))


# DOC-05: owners and modes of the database file, line files and mailboxes, and links among them.

PERMISSIONS = "DOC-05"

_OTHERS = 0o077
_SHARED = "group"
_FAULTS = _LINK, _OWNER, _FOLDER, _FILE = "link", "owner", "folder", "file"


@dataclass(frozen=True)
class _Area:
    """Paths under one rule: the modes that folders and files must have, and the owner, or None for any owner."""

    subject: str
    paths: Iterable[Path]
    modes: tuple[int, int]
    owner: int | None

    def faults(self, path: Path) -> Iterator[str]:
        """Yield the faults of the file or folder at a path. A path that is missing or cannot be accessed has none."""
        status = _status(path)
        if status is None:
            return
        if stat.S_ISLNK(status.st_mode):
            yield _LINK
            return
        if self.owner not in (None, status.st_uid):
            yield _OWNER
        fault, mode = (_FOLDER, self.modes[0]) if stat.S_ISDIR(status.st_mode) else (_FILE, self.modes[1])
        if status.st_mode & _OTHERS & ~mode:
            yield fault

    def finding(self, fault: str, samples: list[str]) -> Finding:
        """Return the finding for the paths with this fault."""
        folders, files = self.modes
        message, helps = {
            _LINK: ("links stand where files and folders should, and none is followed", None),
            _OWNER: (
                f"another user than number {self.owner} owns them, and decides who may use them",
                ("chown", str(self.owner)),
            ),
            _FOLDER: (f"others may use these folders: their modes should be {folders:04o}", ("chmod", f"{folders:o}")),
            _FILE: (f"others may use these files: their modes should be {files:04o}", ("chmod", f"{files:o}")),
        }[fault]
        remedy = None if helps is None else shlex.join([*helps, samples[0]])
        return make_finding(PERMISSIONS, "warning", self.subject, message, samples, remedy)


def _permissions(look: CheckContext) -> Iterator[Finding]:
    for area in _areas(look):
        paths: dict[str, list[str]] = {fault: [] for fault in _FAULTS}
        for path in area.paths:
            for fault in area.faults(path):
                if len(paths[fault]) < MOST:
                    paths[fault].append(str(path))
        yield from (area.finding(fault, samples) for fault, samples in paths.items() if samples)


def _areas(look: CheckContext) -> Iterator[_Area]:
    owner, private = _owner(look), MODES["private"]
    mode = look.settings.mailbox_mode
    yield _Area("database", _database(look), private, owner)
    lines = (path for root in look.settings.line_directories for path in _tree(root))
    yield _Area("line files", lines, private, owner)
    mailboxes = _mailboxes(look.settings.mailboxes)
    yield _Area("mailboxes", mailboxes, MODES[mode], None if mode == _SHARED else owner)


def _owner(look: CheckContext) -> int:
    """Return the user id that should own all files: the current user's, or for root the owner of the existing files."""
    user = os.geteuid()
    for path in () if user else (*look.backend.files[:1], look.settings.state_dir):
        with suppress(OSError):
            return path.stat().st_uid
    return user


def _database(look: CheckContext) -> Iterator[Path]:
    """Yield the database file, with the operator's links resolved, and SQLite's files next to it."""
    yield from map(files.real, look.backend.files[:1])
    yield from look.backend.files[1:]


def _mailboxes(root: Path) -> Iterator[Path]:
    """Yield the folders of groups, and the mailboxes in them. Other contents of groups are ignored."""
    if root.is_dir():
        yield files.real(root)
    for group in _folders(root):
        yield group
        for session in [] if group.is_symlink() else _folders(group):
            if any(os.path.lexists(session / name) for name in (INBOUND_DB, OUTBOUND_DB)):
                yield from [session] if session.is_symlink() else _tree(session)


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder that may be groups or sessions by their names. Links to folders are included."""
    _, names, _ = next(os.walk(folder), ("", [], []))
    return [folder / name for name in sorted(names) if is_name(name)]


def _tree(root: Path) -> Iterator[Path]:
    """Yield a folder and everything below it. The folder itself may be a link; links below it are not followed."""
    root = files.real(root)
    yield root
    for folder, folders, names in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *names))


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a path, which may be a link. None if the path is missing or cannot be accessed."""
    with suppress(OSError):
        return path.lstat()
    return None


PERMISSION_CHECKS = (Check(PERMISSIONS, files=_permissions),)


SETTINGS, GROWTH, INTEGRITY, ENGINE, DISTRIBUTION, NEAREST = "DOC-03", "DOC-06", "DOC-07", "DOC-18", "DOC-19", "DOC-20"

#: For each setting: the expected value, the severity of another value, and its meaning.
_EXPECTED = {
    "wal_autocheckpoint": (1000, "info", "another number of pages is configured than the usual one"),
    "foreign_keys": (True, "error", "foreign keys are not enforced"),
    "default_transaction_isolation": ("read committed", "info", "another isolation is the default; ours is stated"),
    "default_transaction_read_only": (
        "off",
        "error",
        "writes are refused, perhaps because the server's disk is full: see `set_to_read_only` in troubleshooting",
    ),
    "synchronous_commit": ("on", "warning", "a crash of the server may lose commits"),
}

#: The size from which the WAL is large in any case, and the size from which it is large if it exceeds its database.
_LARGE_WAL, _WAL_BESIDE = 64 * 1024 * 1024, 16 * 1024 * 1024
#: The share of free pages that is worth a vacuum, and the size from which a database or table is worth one.
_FREE_SHARE, _WORTH = 0.25, 16 * 1024 * 1024


def _settings(_: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    told = snapshot.measures.settings
    for name, (expected, severity, message) in _EXPECTED.items():
        if name in told and told[name] != expected:
            yield make_finding(SETTINGS, severity, name, f"{message}: expected {expected}, found {told[name]}", [name])


def _growth(_: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    measures = snapshot.measures
    wal, size, free = measures.wal_bytes or 0, measures.size_bytes, measures.free_bytes or 0
    if wal > _LARGE_WAL or wal > max(size, _WAL_BESIDE):
        message = f"the write-ahead log has {wal} bytes, the database {size}"
        yield make_finding(GROWTH, "warning", "wal", message, ["wal"], "lastlight-state checkpoint")
    if size >= _WORTH and free > size * _FREE_SHARE:
        message = f"{free} of {size} bytes are free pages"
        yield make_finding(GROWTH, "info", "database", message, ["database"], "lastlight-state vacuum")
    unknown = [name for name, table in measures.tables.items() if table.rows is None and (table.bytes or 0) >= _WORTH]
    if unknown:
        message = "the planner knows nothing about these tables: they were never vacuumed nor analysed"
        yield make_finding(GROWTH, "info", "tables", message, unknown, "lastlight-state vacuum")


def _integrity(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    unit = snapshot.unit
    damages = unit.backend.damages(unit, deep=look.deep)
    if damages:
        message = "the database itself says that it is damaged: restore it, or dump what can be read"
        yield make_finding(INTEGRITY, "error", "database", message, damages)


def _engine(look: CheckContext) -> Iterator[Finding]:
    """Find known faults of the engine and its driver."""
    for version, fault in look.backend.known_faults():
        yield make_finding(ENGINE, "info" if fault.avoided else "warning", fault.product, fault.sentence, [version])


def _distribution(look: CheckContext) -> Iterator[Finding]:
    """Find faults that a server with a distributed schema reports about itself."""
    said = look.backend.distribution()
    if said is not None:
        told, problems = said
        message = "; ".join([f"the server is {told}", *problems])
        yield make_finding(DISTRIBUTION, "warning" if problems else "info", "citus", message, problems or [told])


#: How an index of embeddings stands that no search uses, with the severity and what it means.
_UNUSED_INDEXES = {
    "failed": ("warning", "was not finished: puts are slower, and no search uses it; call `vectors.index` once more"),
    "building": ("info", "is being built, and no search uses it yet"),
    "unused": ("info", "is for a namespace that is gone or has another length now: `vectors.drop_index` removes it"),
}


def _vector_indexes(_: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    unit = snapshot.unit
    if not {VECTORS.name, NAMESPACES.name} <= snapshot.tables:
        return
    indexes = unit.backend.vector_indexes(unit)
    for state, (severity, message) in _UNUSED_INDEXES.items():
        names = [one.name if one.namespace is None else one.namespace for one in indexes if one.state == state]
        if names:
            yield make_finding(NEAREST, severity, "vectors", f"an index of embeddings {message}", names)
    lags = {one.namespace: unit.backend.vector_index_lag(unit, one) for one in indexes if one.state == "ready"}
    names = [f"{namespace}: {lag} chunks" for namespace, lag in lags.items() if lag]
    if names:
        message = "an index of embeddings lacks chunks, whose triggers were off: drop it, and make it again"
        yield make_finding(NEAREST, "warning", "vectors", message, names)


CHECKS = (
    Check(SETTINGS, rows=_settings),
    Check(GROWTH, rows=_growth),
    Check(INTEGRITY, rows=_integrity),
    Check(ENGINE, files=_engine),
    Check(DISTRIBUTION, files=_distribution),
    Check(NEAREST, rows=_vector_indexes),
)
