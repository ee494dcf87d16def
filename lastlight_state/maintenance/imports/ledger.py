"""What is known of earlier imports: the ledger of units, and the tombstones of what was pruned."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.conversations import words
from lastlight_state.db.statements import bind, prepared
from lastlight_state.errors import AlreadyExists
from lastlight_state.maintenance.imports.pieces import Look, Piece
from lastlight_state.receipts.tables import LEDGER, TOMBSTONES

_l, _t = LEDGER.c, TOMBSTONES.c
_CHANGED = ("target_kind", "target_id", "digest", "outcome", "receipt_id", "imported_at")

_of_unit = (_l.source_kind == bind("source_kind", _l.source_kind), _l.source_key == bind("source_key", _l.source_key))
_IMPORTED = prepared(sa.select(_l.digest).where(*_of_unit))
_TARGET = prepared(sa.select(_l.target_id).where(*_of_unit))
_BURIED = prepared(sa.select(_t.id).where(_t.kind == bind("kind", _t.kind), _t.id == bind("id", _t.id)))
_new = insert(LEDGER).values({column.name: bind(column.name, column) for column in LEDGER.columns})
_NOTE = prepared(
    _new.on_conflict_do_update(
        index_elements=[_l.source_kind, _l.source_key], set_={name: _new.excluded[name] for name in _CHANGED}
    )
)


def outcome(look: Look, piece: Piece, *, is_stored: bool) -> str:
    """``imported``, ``grown``, ``unchanged`` or ``pruned``. Raises `AlreadyExists` for what was stored otherwise."""
    kind, target_id = piece.target
    before = known(look)
    if not is_stored:
        buried = look.view.value(_BURIED, {"kind": kind, "id": target_id}) is not None
        return "pruned" if buried and not look.revives else "imported"
    if before is None:
        raise AlreadyExists(kind, target_id, problem="is stored, and was not imported from such a source")
    return "unchanged" if before == piece.digest else "grown"


def known(look: Look) -> str | None:
    """The digest of the unit at its last import, None if it was never imported."""
    return look.view.value(_IMPORTED, {"source_kind": look.kind, "source_key": look.key})  # type: ignore[no-any-return]


def known_target(look: Look) -> str | None:
    """The id of what the unit became at its last import, None if it was never imported."""
    return look.view.value(_TARGET, {"source_kind": look.kind, "source_key": look.key})  # type: ignore[no-any-return]


def revision(look: Look, message_id: str) -> int | None:
    """Return the revision that the last import gave to a message, None if none has revised it."""
    noted = look.view.value(_IMPORTED, {"source_kind": look.kind, "source_key": _message_key(message_id)})
    return None if noted is None else int(noted)


def note_revision(look: Look, message_id: str, revision: int, at: datetime) -> None:
    """Keep which revision an import gave to a message."""
    source = {"source_kind": look.kind, "source_key": _message_key(message_id)}
    target = {"target_kind": words.MESSAGE, "target_id": message_id}
    done = {"digest": str(revision), "outcome": "grown", "receipt_id": look.receipt_id, "imported_at": at}
    look.view.change(_NOTE, {**source, **target, **done})


def _message_key(message_id: str) -> str:
    return f"messages/{message_id}"


def note(look: Look, piece: Piece, outcome: str, receipt_id: str, at: datetime) -> None:
    """Keep that the unit was stored."""
    kind, target_id = piece.target
    source = {"source_kind": look.kind, "source_key": look.key, "target_kind": kind, "target_id": target_id}
    done = {"digest": piece.digest, "outcome": outcome, "receipt_id": receipt_id, "imported_at": at}
    look.view.change(_NOTE, {**source, **done})
