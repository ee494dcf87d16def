"""The interface between kinds of sources and the import: units that can be read, compared and stored."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.conversations import words
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Statement, bind, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.keys import compose_key
from lastlight_state.receipts import Receipt
from lastlight_state.receipts.models import LEDGER, TOMBSTONES
from lastlight_state.settings import Settings
from lastlight_state.special_files import REGULAR

# Records of imports.

#: The kinds of sources.
SourceKind = Literal[
    "lionagi-runs",
    "lionagi-db",
    "smithers-db",
    "lastlight-db",
    "lionagi-teams",
    "codelia",
    "lastlight-logs",
    "nanoclaw",
    "openai-agents-db",
]


class FailedUnit(Record):
    """A unit that was not imported: its name in the source, an error code, and the reason. No part of it is stored."""

    unit: str
    code: str
    reason: str


class ImportConflict(Record):
    """A part of a unit that differs from its source and stays, because the store changed, ended or removed it."""

    unit: str
    kept: str


class ImportReport(Record):
    """The result or plan of an import. A plan writes nothing, and its ``receipt`` is None.

    ``units`` counts the units of the source by outcome: ``imported``, ``grown``, ``unchanged``, ``pruned``, ``ignored``
    and ``failed``. ``rows`` counts the added rows, by table or kind of file. ``noticed`` counts facts of the source
    that no row stores, and all conflicts. ``failures`` are the first 500 failed units. ``conflicts`` are the first 500
    differences from the source that stay, and units of another source that were removed in the store.
    """

    kind: str
    units: Mapping[str, int]
    rows: Mapping[str, int]
    noticed: Mapping[str, int]
    failures: tuple[FailedUnit, ...]
    receipt: Receipt | None
    conflicts: tuple[ImportConflict, ...] = ()


#: The outcomes after which a unit is stored and recorded in the ledger.
STORED = ("imported", "grown")
#: The longest name of a unit in bytes, and how many bytes of a longer name are kept.
_KEY, _KEPT = 256, 180


@dataclass(frozen=True)
class ImportTarget:
    """The store to import into, with the options of the import."""

    now: datetime
    settings: Settings
    listeners: Any
    known_classes: KnownClasses
    #: Whether to keep refused values as text.
    lenient: bool = False
    #: The prefix of the source's names, so that equal names of two sources are two units here.
    scope: str | None = None

    def scoped_id(self, *names: str) -> str:
        """Return an id that was made from names in the source, with the scope as its prefix."""
        return compose_key(*names) if self.scope is None else compose_key(self.scope, *names)


@dataclass(frozen=True)
class UnitLookup:
    """The data for comparing a unit with the store.

    ``key`` names the unit in a source of ``kind``; ``kind`` ends with the scope, if one is given. ``planned`` has what
    earlier units of the same dry run would store, by table and key. It is empty in an import that writes.
    ``receipt_id`` is the import's receipt. ``source`` is the place that is read, and ``file`` identifies the file
    there; both are in the receipt. ``moved`` has paths from which this source was moved: a unit that was imported from
    such a path is unchanged, and no other file is at the path.
    """

    view: Unit
    kind: str
    key: str
    revives: bool
    planned: defaultdict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    receipt_id: str = ""
    source: str = ""
    file: Sequence[int] = ()
    moved: set[str] = field(default_factory=set)


class ImportUnit(Protocol):
    """A unit that was read and checked. ``digest`` shows whether the source has changed since the last import."""

    @property
    def digest(self) -> str:
        """Return the digest of everything that was read of the unit."""

    @property
    def target(self) -> tuple[str, str]:
        """Return the kind and the id of the record that this unit becomes."""

    @property
    def kept_differences(self) -> Sequence[str]:
        """Return the differences that stay because the store changed these parts, too. The report lists them."""

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return what storing this unit would do: the outcome, added rows by table, and counts for ``noticed``.

        The outcome is ``imported``, ``grown``, ``unchanged`` or ``pruned``. Raises an error of the library if the unit
        is refused. Writes nothing.
        """

    def store(self, view: Unit, outcome: str) -> None:
        """Store this unit in the same transaction in which it was compared."""


#: Reads and checks a unit.
Read = Callable[[ImportTarget], ImportUnit]


@dataclass(frozen=True)
class SourceUnit:
    """A part of a source: its name there, and how to read it.

    ``read`` is None if the part is not imported. If ``left`` is given, the part is not a unit but a number of rows that
    cannot be stored. A report counts them in ``noticed`` as ``<key>_left``.
    """

    key: str
    read: Read | None
    left: int = 0


@dataclass(frozen=True)
class Server:
    """A database of another program on a Postgres server. Its text form shows no password."""

    url: str = field(repr=False)
    shown: str

    def __str__(self) -> str:
        return self.shown


#: The place of a source: a path or a server.
Place: TypeAlias = Path | Server


@dataclass(frozen=True)
class Kind:
    """A kind of source: its name, how to recognise it, and its units.

    With ``on_servers``, it may be a Postgres server.
    """

    name: str
    looked_for: str
    found_at: Callable[[Any], bool]
    parts: Callable[[Any], Generator[SourceUnit]]
    on_servers: bool = False
    #: Whether units have names that another source may have, too. Then a caller may give a scope.
    has_names: bool = False
    #: Whether units are named by their files, and these names say nothing about the content.
    has_files: bool = False
    #: Whether units have ids in their files. An id stays when a file is renamed.
    has_ids: bool = False
    #: The type of file that a path must lead to.
    wants: str = REGULAR

    def unit(self, part: SourceUnit, piece: ImportUnit) -> str:
        """Return the name by which the ledger identifies a unit."""
        if self.has_ids:
            return piece.target[1]
        return valid.identifier("name", key_of((part.key, piece.target[1])) if self.has_files else part.key)

    def takes(self, place: Place) -> bool:
        """True if a source of this kind can be at this place."""
        return self.on_servers or isinstance(place, Path)


def key_of(names: tuple[str, ...]) -> str:
    """Return the name of a unit: its path, or for a path that is too long, the beginning and a digest of the path."""
    data = os.fsencode("/".join(names))
    if len(data) > _KEY:
        digest = hashlib.sha256(data).hexdigest()[:32]
        return f"{data[:_KEPT].decode('utf-8', 'ignore')} {digest}"
    return data.decode("utf-8", "backslashreplace")


#: The key of a line in the ledger: a kind of source with its scope, and the name of a unit.
UnitKey: TypeAlias = tuple[str, str]


# Earlier imports: the ledger of units, and the tombstones of pruned records.

_l, _t = LEDGER.c, TOMBSTONES.c
_CHANGED = ("target_kind", "target_id", "digest", "outcome", "receipt_id", "imported_at")

_of_unit = (_l.source_kind == bind("source_kind", _l.source_kind), _l.source_key == bind("source_key", _l.source_key))
_IMPORTED = statement_of(sa.select(_l.digest).where(*_of_unit))
_TARGET = statement_of(sa.select(_l.target_id).where(*_of_unit))
_of_target = tuple(_l[name] == bind(name, _l[name]) for name in ("target_kind", "target_id"))
_BROUGHT = statement_of(sa.select(_l.target_id).where(*_of_target).limit(1))
_KEYS: Statement[UnitKey] = statement_of(
    sa.select(_l.source_kind, _l.source_key)
    .where(*_of_target)
    .order_by(_l.imported_at.desc(), _l.source_key != bind("source_key", _l.source_key)),
    tuple,
)
_READ_BY = statement_of(sa.update(LEDGER).where(*_of_unit).values(receipt_id=bind("receipt_id", _l.receipt_id)))
_BURIED = statement_of(sa.select(_t.id).where(_t.kind == bind("kind", _t.kind), _t.id == bind("id", _t.id)))
_new = insert(LEDGER).values({column.name: bind(column.name, column) for column in LEDGER.columns})
_NOTE = statement_of(
    _new.on_conflict_do_update(
        index_elements=[_l.source_kind, _l.source_key], set_={name: _new.excluded[name] for name in _CHANGED}
    )
)


def outcome(look: UnitLookup, piece: ImportUnit, *, is_stored: bool) -> str:
    """Return the outcome of a unit: ``imported``, ``grown``, ``unchanged`` or ``pruned``.

    Raises `AlreadyExists` if its target is stored and was not imported from such a source. A unit to be revived is
    never unchanged: the caller finds out whether any part of it was removed.
    """
    kind, target_id = piece.target
    if not is_stored:
        return "pruned" if is_removed(look, piece) else "imported"
    if known_digest(look) is None:
        raise AlreadyExists(kind, target_id, problem="is stored, and was not imported from such a source")
    return "unchanged" if is_same(look, piece) and not look.revives else "grown"


def is_same(look: UnitLookup, piece: ImportUnit) -> bool:
    """True if the source of a unit is unchanged since the last import."""
    return (known_digest(look) or "").partition(" ")[0] == piece.digest.partition(" ")[0]


def is_removed(look: UnitLookup, piece: ImportUnit) -> bool:
    """True if a unit that the store lacks must not be imported again.

    That is so if any import stored it before, or if it was pruned, unless it is to be revived.
    """
    kind, target_id = piece.target
    if look.revives:
        return False
    is_buried = look.view.value(_BURIED, {"kind": kind, "id": target_id}) is not None
    return is_buried or is_brought(look.view, piece.target)


def is_brought(view: Unit, target: tuple[str, str]) -> bool:
    """True if an import ever stored this target, from any source."""
    return view.value(_BROUGHT, {"target_kind": target[0], "target_id": target[1]}) is not None


class OtherSource(AlreadyExists):
    """A unit was refused, because its source may not be that of its last import.

    A later unit may still prove that it is.
    """


def refuse_other(piece: ImportUnit, problem: str) -> NoReturn:
    """Raise `OtherSource` for a unit whose name belongs to stored content of another source."""
    kind, target_id = piece.target
    raise OtherSource(kind, target_id, problem=f"{problem}; nothing of it is written")


def known_digest(look: UnitLookup) -> str | None:
    """Return the digest of the unit at its last import, or None if the unit was never imported."""
    return look.view.value(_IMPORTED, {"source_kind": look.kind, "source_key": look.key})  # type: ignore[no-any-return]


def known_target(look: UnitLookup) -> str | None:
    """Return the id of the record that the unit became at its last import, or None if it was never imported."""
    return look.view.value(_TARGET, {"source_kind": look.kind, "source_key": look.key})  # type: ignore[no-any-return]


def keys(look: UnitLookup, piece: ImportUnit) -> Sequence[UnitKey]:
    """Return the ledger's keys of all units that were stored as this unit's target, the newest first."""
    target_kind, target_id = piece.target
    return look.view.rows(_KEYS, {"source_key": look.key, "target_kind": target_kind, "target_id": target_id})


def revision(look: UnitLookup, message_id: str) -> int | None:
    """Return the revision that the last import gave to a message, or None if no import has revised the message."""
    noted = look.view.value(_IMPORTED, {"source_kind": look.kind, "source_key": _message_key(message_id)})
    return None if noted is None else int(noted)


def note_revision(look: UnitLookup, message_id: str, revision: int, at: datetime) -> None:
    """Record in the ledger which revision an import gave to a message."""
    source = {"source_kind": look.kind, "source_key": _message_key(message_id)}
    target = {"target_kind": words.MESSAGE, "target_id": message_id}
    done = {"digest": str(revision), "outcome": "grown", "receipt_id": look.receipt_id, "imported_at": at}
    look.view.change(_NOTE, {**source, **target, **done})


def _message_key(message_id: str) -> str:
    return f"messages/{message_id}"


def note(look: UnitLookup, piece: ImportUnit, outcome: str, receipt_id: str, at: datetime) -> None:
    """Record in the ledger that the unit was stored."""
    note_unit(replace(look, receipt_id=receipt_id), piece.target, piece.digest, outcome, at)


def note_read(look: UnitLookup) -> None:
    """Record in the ledger that this import read a unit that is unchanged since its last import."""
    look.view.change(_READ_BY, {"source_kind": look.kind, "source_key": look.key, "receipt_id": look.receipt_id})


def note_unit(look: UnitLookup, target: tuple[str, str], digest: str, outcome: str, at: datetime) -> None:
    """Write the line of a unit in the ledger."""
    source = {"source_kind": look.kind, "source_key": look.key, "target_kind": target[0], "target_id": target[1]}
    done = {"digest": digest, "outcome": outcome, "receipt_id": look.receipt_id, "imported_at": at}
    look.view.change(_NOTE, {**source, **done})
