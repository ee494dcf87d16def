"""What every kind of source gives to the import: units that can be read, compared and stored."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, TypeAlias, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.conversations import words
from lastlight_state.conversations.kernel.storing import KnownClasses
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import bind, prepared
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.keys import composed
from lastlight_state.receipts import Receipt
from lastlight_state.receipts.models import LEDGER, TOMBSTONES
from lastlight_state.settings import Settings
from lastlight_state.special_files import REGULAR

# Records of imports.

#: What is imported from.
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
    """A part of a source that was not imported: its name there, a code, and the reason. Nothing of it is stored."""

    unit: str
    code: str
    reason: str


class ImportConflict(Record):
    """Something of a unit that differs from its source, and was kept as it was changed, ended or removed here."""

    unit: str
    kept: str


class ImportReport(Record):
    """The result or plan of an import: ``receipt`` is None for a plan, which writes nothing.

    ``units`` counts the units of the source by outcome: ``imported``, ``grown``, ``unchanged``, ``pruned``,
    ``ignored`` and ``failed``. ``rows`` counts what was added, by table or kind of file. ``noticed`` counts what a
    source says and no row does.
    ``failures`` are the first 500 units that failed. ``conflicts`` are the first 500 things that differ from the source
    and stay as they are here, and units that another source brought in and that were removed here; ``noticed`` counts
    them all.
    """

    kind: str
    units: Mapping[str, int]
    rows: Mapping[str, int]
    noticed: Mapping[str, int]
    failures: tuple[FailedUnit, ...]
    receipt: Receipt | None
    conflicts: tuple[ImportConflict, ...] = ()


#: The outcomes after which a unit is stored and noted.
STORED = ("imported", "grown")
#: The longest name of a unit in bytes, and how much of a longer one is kept.
_KEY, _KEPT = 256, 180


@dataclass(frozen=True)
class ImportTarget:
    """The store that is imported into."""

    now: datetime
    settings: Settings
    listeners: Any
    known_classes: KnownClasses
    #: Whether values that are refused are kept as text.
    lenient: bool = False
    #: What stands before the names of the source, so that equal names of two sources are two units here.
    scope: str | None = None

    def scoped(self, *names: str) -> str:
        """Return a name of the source as it is called here."""
        return composed(*names) if self.scope is None else composed(self.scope, *names)


@dataclass(frozen=True)
class UnitLookup:
    """One look at what is stored of a unit.

    ``key`` names the unit in a source of ``kind``, which ends with the scope that was given. ``planned`` has what
    earlier units of the same dry run would store, by table and key: it is empty in a run, where they are stored.
    ``receipt_id`` is that of the run. ``source`` is where it reads and ``file`` which file stands there, as its receipt
    says. ``moved`` are paths from which this source has come: a unit of theirs is as it was, and nothing else stands
    there any more.
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


class Piece(Protocol):
    """A unit that was read and checked. ``digest`` tells whether the source is as it was at the last import."""

    @property
    def digest(self) -> str:
        """Return the digest of everything that was read."""

    @property
    def target(self) -> tuple[str, str]:
        """Return the kind and the id of what it becomes."""

    @property
    def kept(self) -> Sequence[str]:
        """Return what the last comparison found changed here, too: it stays, and the report names it."""

    def compared(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return what storing this unit would do: the outcome, the rows that it adds by table, and what is noticed.

        The outcome is ``imported``, ``grown``, ``unchanged`` or ``pruned``. Raises an error of the library for a unit
        that is refused. Writes nothing.
        """

    def store(self, view: Unit, outcome: str) -> None:
        """Store this unit, in the transaction in which it was compared."""


#: Reads a unit, and checks it.
Read = Callable[[ImportTarget], Piece]


@dataclass(frozen=True)
class Part:
    """A unit that was found: its name in the source, and how to read it.

    ``read`` is None if it is not to be read. With ``left`` it is no unit, but so many rows without a place here: a
    report counts them in ``noticed`` as ``<key>_left``.
    """

    key: str
    read: Read | None
    left: int = 0


@dataclass(frozen=True)
class Server:
    """A database of another program on a Postgres server. As a text it shows no password."""

    url: str = field(repr=False)
    shown: str

    def __str__(self) -> str:
        return self.shown


#: Where a source is.
Place: TypeAlias = Path | Server


@dataclass(frozen=True)
class Kind:
    """A kind of source: its name, what it is found by, and its units. ``on_servers``: also on a Postgres server."""

    name: str
    looked_for: str
    found_at: Callable[[Any], bool]
    parts: Callable[[Any], Generator[Part]]
    on_servers: bool = False
    #: Whether units are known by names that another source may have, too: a caller may give these a scope.
    has_names: bool = False
    #: Whether units are found by the names of their files, which say nothing of what is in them.
    has_files: bool = False
    #: Whether units have ids in their files, which stay where a file gets another name.
    has_ids: bool = False
    #: What a path must lead to.
    wants: str = REGULAR

    def unit(self, part: Part, piece: Piece) -> str:
        """Return the name of a unit in the ledger."""
        if self.has_ids:
            return piece.target[1]
        return valid.identifier("name", key_of((part.key, piece.target[1])) if self.has_files else part.key)

    def takes(self, place: Place) -> bool:
        """True if a source of this kind may be there at all."""
        return self.on_servers or isinstance(place, Path)


def key_of(names: tuple[str, ...]) -> str:
    """Return the name of a unit: its path, or the beginning and a digest of a path that is too long."""
    data = os.fsencode("/".join(names))
    if len(data) > _KEY:
        digest = hashlib.sha256(data).hexdigest()[:32]
        return f"{data[:_KEPT].decode('utf-8', 'ignore')} {digest}"
    return data.decode("utf-8", "backslashreplace")


class UnitKey(TypedDict):
    """A kind of source with its scope, and the name of a unit there, as the ledger has them."""

    source_kind: str
    source_key: str


# What is known of earlier imports: the ledger of units, and the tombstones of what was pruned.

_l, _t = LEDGER.c, TOMBSTONES.c
_CHANGED = ("target_kind", "target_id", "digest", "outcome", "receipt_id", "imported_at")

_of_unit = (_l.source_kind == bind("source_kind", _l.source_kind), _l.source_key == bind("source_key", _l.source_key))
_IMPORTED = prepared(sa.select(_l.digest).where(*_of_unit))
_TARGET = prepared(sa.select(_l.target_id).where(*_of_unit))
_of_target = tuple(_l[name] == bind(name, _l[name]) for name in ("target_kind", "target_id"))
_BROUGHT = prepared(sa.select(_l.target_id).where(*_of_target).limit(1))
_KEYS = prepared(
    sa.select(_l.source_kind, _l.source_key)
    .where(*_of_target)
    .order_by(_l.imported_at.desc(), _l.source_key != bind("source_key", _l.source_key)),
    UnitKey,
)
_READ_BY = prepared(sa.update(LEDGER).where(*_of_unit).values(receipt_id=bind("receipt_id", _l.receipt_id)))
_BURIED = prepared(sa.select(_t.id).where(_t.kind == bind("kind", _t.kind), _t.id == bind("id", _t.id)))
_new = insert(LEDGER).values({column.name: bind(column.name, column) for column in LEDGER.columns})
_NOTE = prepared(
    _new.on_conflict_do_update(
        index_elements=[_l.source_kind, _l.source_key], set_={name: _new.excluded[name] for name in _CHANGED}
    )
)


def outcome(look: UnitLookup, piece: Piece, *, is_stored: bool) -> str:
    """Return ``imported``, ``grown``, ``unchanged`` or ``pruned``.

    Raises `AlreadyExists` for what was stored otherwise. A unit that is to be revived is never unchanged: the caller
    says whether anything of it was removed.
    """
    kind, target_id = piece.target
    if not is_stored:
        return "pruned" if is_removed(look, piece) else "imported"
    if known(look) is None:
        raise AlreadyExists(kind, target_id, problem="is stored, and was not imported from such a source")
    return "unchanged" if is_same(look, piece) and not look.revives else "grown"


def is_same(look: UnitLookup, piece: Piece) -> bool:
    """Return whether the source of a unit is as it was at the last import."""
    return (known(look) or "").partition(" ")[0] == piece.digest.partition(" ")[0]


def is_removed(look: UnitLookup, piece: Piece) -> bool:
    """Return whether a unit that is not here stays away: it was imported once, from wherever, or was pruned."""
    kind, target_id = piece.target
    if look.revives:
        return False
    is_buried = look.view.value(_BURIED, {"kind": kind, "id": target_id}) is not None
    return is_buried or is_brought(look.view, piece.target)


def is_brought(view: Unit, target: tuple[str, str]) -> bool:
    """Return whether an import brought this in once, from wherever."""
    return view.value(_BROUGHT, {"target_kind": target[0], "target_id": target[1]}) is not None


class OtherSource(AlreadyExists):
    """A unit that nothing has told yet to be of the source of its last import: a unit behind it may."""


def refuse_other(piece: Piece, problem: str) -> NoReturn:
    """Raise `OtherSource` for a unit whose name is here, with the content of another source."""
    kind, target_id = piece.target
    raise OtherSource(kind, target_id, problem=f"{problem}; nothing of it is written")


def known(look: UnitLookup) -> str | None:
    """Return the digest of the unit at its last import, None if it was never imported."""
    return look.view.value(_IMPORTED, {"source_kind": look.kind, "source_key": look.key})  # type: ignore[no-any-return]


def known_target(look: UnitLookup) -> str | None:
    """Return the id of what the unit became at its last import, None if it was never imported."""
    return look.view.value(_TARGET, {"source_kind": look.kind, "source_key": look.key})  # type: ignore[no-any-return]


def keys(look: UnitLookup, piece: Piece) -> Sequence[UnitKey]:
    """Return under which names units of any source became the target of this one, the newest first."""
    target_kind, target_id = piece.target
    return look.view.rows(_KEYS, {"source_key": look.key, "target_kind": target_kind, "target_id": target_id})


def revision(look: UnitLookup, message_id: str) -> int | None:
    """Return the revision that the last import gave to a message, None if none has revised it."""
    noted = look.view.value(_IMPORTED, {"source_kind": look.kind, "source_key": _message_key(message_id)})
    return None if noted is None else int(noted)


def note_revision(look: UnitLookup, message_id: str, revision: int, at: datetime) -> None:
    """Keep which revision an import gave to a message."""
    source = {"source_kind": look.kind, "source_key": _message_key(message_id)}
    target = {"target_kind": words.MESSAGE, "target_id": message_id}
    done = {"digest": str(revision), "outcome": "grown", "receipt_id": look.receipt_id, "imported_at": at}
    look.view.change(_NOTE, {**source, **target, **done})


def _message_key(message_id: str) -> str:
    return f"messages/{message_id}"


def note(look: UnitLookup, piece: Piece, outcome: str, receipt_id: str, at: datetime) -> None:
    """Keep that the unit was stored."""
    note_unit(replace(look, receipt_id=receipt_id), piece.target, piece.digest, outcome, at)


def note_read(look: UnitLookup) -> None:
    """Keep that a unit which is as it was at its last import was read by this one."""
    look.view.change(_READ_BY, {"source_kind": look.kind, "source_key": look.key, "receipt_id": look.receipt_id})


def note_unit(look: UnitLookup, target: tuple[str, str], digest: str, outcome: str, at: datetime) -> None:
    """Write the line of a unit in the ledger."""
    source = {"source_kind": look.kind, "source_key": look.key, "target_kind": target[0], "target_id": target[1]}
    done = {"digest": digest, "outcome": outcome, "receipt_id": look.receipt_id, "imported_at": at}
    look.view.change(_NOTE, {**source, **done})
