"""Imported mailboxes: how one is compared with what is here, copied, or adopted where it stands."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, StateError
from lastlight_state.jsonl import files as line_files, places
from lastlight_state.mailbox import models
from lastlight_state.mailbox.face import MODES, Mailboxes, fill
from lastlight_state.mailbox.folder import HEARTBEAT, INBOUND_DB, INBOX, OUTBOUND_DB, OUTBOX, Place, creation, removal
from lastlight_state.mailbox.kernel import meta, shape
from lastlight_state.mailbox.words import MAILBOX
from lastlight_state.maintenance.imports import foreign, ledger, mailbox_sources as sources
from lastlight_state.maintenance.imports.mailbox_files import Attachments
from lastlight_state.maintenance.imports.pieces import Into, Look

#: Under what a copied mailbox notes the digest of its source, and how mailboxes are counted.
_IMPORTED, _COUNTED = "imported", "mailboxes"


def piece(root: Path, group: str, session: str, into: Into) -> CopyPiece | AdoptedPiece:
    """A session of another program, or of ours. Raises `UnsafePath` for names that no mailbox may have, and links."""
    place = Place.below(root, group, session)
    target = Place.below(into.settings.mailboxes, group, session)
    return AdoptedPiece(place, into) if place.root == target.root else CopyPiece(place, target, into)


class CopyPiece:
    """A mailbox of another place. It is copied once, and what is here is never overwritten."""

    kept: Sequence[str] = ()

    def __init__(self, place: Place, target: Place, into: Into) -> None:
        self._source, self._into, self._there = place.path, into, target
        with sources.opened(place.path, sources.AT_REST) as files:
            self._contents = sources.contents(files)
        self._attachments = Attachments(place.path)
        self.target = (MAILBOX, place.key)
        self.digest = _digest([self._contents.sums, [one[:3] for one in self._attachments.found]])
        self._is_there = False

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Return what happens with it. Raises `AlreadyExists` if another mailbox is here or the source has changed."""
        known, self._is_there = ledger.known(look), os.path.lexists(self._there.path)
        noticed = self._contents.noticed + Counter(other_files=self._attachments.others)
        if not self._is_there:
            rows = self._contents.rows + Counter(attachments=len(self._attachments.found))
            return "imported", rows + Counter({_COUNTED: 1}), noticed
        if known == self.digest:
            return "unchanged", Counter(), Counter()
        if _noted(self._there) != self.digest:
            why = "was not imported from this source" if known is None else "its source has changed since the import"
            raise AlreadyExists(*self.target, problem=f"is here, and {why}; it is left as it is")
        return "imported", Counter(), noticed + Counter(kept=1)

    def store(self, _: Unit, __: str) -> None:
        """Copy it under another name, compare the copy with the source, give it its name, and adopt it."""
        if not self._is_there:
            removal.remove_leftovers(self._there.path.parent, self._into.now)
            creation.appear(self._there, self._furnish)
        _ensure(self._there, self._into)

    def _furnish(self, made: Path) -> None:
        directory_mode, file_mode = MODES[self._into.settings.mailbox_mode]
        with sources.opened(self._source, sources.AT_REST) as files:
            for name, file in files.items():
                file.unit.backend.snapshot(file.unit.checkout, made / name)
        for name in files:
            fill(made / name, name, **({_IMPORTED: self.digest} if name == INBOUND_DB else {}))
            (made / name).chmod(file_mode)
        self._refuse_differing(made)
        self._attachments.copy(made, directory_mode, file_mode)
        self._keep_heartbeat(made, file_mode)
        made.chmod(directory_mode)
        line_files.sync_directory(made)

    def _refuse_differing(self, made: Path) -> None:
        """Raise `Conflict` unless the copy has the rows that were looked at, in the columns that they have there."""
        with sources.opened(made, sources.AT_REST) as files:
            copied = {name: sources.summed(file, self._contents.shapes.get(name, {})) for name, file in files.items()}
        if copied != self._contents.sums:
            raise Conflict("the source was changed while it was read: import it again", code="damaged_source")

    def _keep_heartbeat(self, made: Path, file_mode: int) -> None:
        with suppress(OSError), os.fdopen(places.opened_file(self._source / HEARTBEAT, os.O_RDONLY), "rb") as beaten:
            changed = os.fstat(beaten.fileno()).st_mtime_ns
            (made / HEARTBEAT).touch(mode=file_mode)
            os.utime(made / HEARTBEAT, ns=(changed, changed))


class AdoptedPiece:
    """A mailbox that lies where ours do. What it lacks is added; that it goes on afterwards is no change."""

    kept: Sequence[str] = ()

    def __init__(self, place: Place, into: Into) -> None:
        self._there, self._into = place, into
        self.target = (MAILBOX, place.key)
        self.digest = _digest(["adopted", place.key])

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Return what happens with it. Raises `InvalidValue` for files that cannot be completed."""
        with sources.opened(self._there.path, sources.SHARED) as files:
            if ledger.known(look) == self.digest and self._is_whole(files):
                return "unchanged", Counter(), Counter()
            return "imported", Counter({_COUNTED: 1}), sources.contents(files).noticed

    def store(self, _: Unit, __: str) -> None:
        """Adopt it."""
        _ensure(self._there, self._into)

    def _is_whole(self, files: sources.Files) -> bool:
        if OUTBOUND_DB not in files or not all((self._there.path / box).is_dir() for box in (INBOX, OUTBOX)):
            return False
        with foreign.readable(INBOUND_DB):
            return shape.is_complete(files[INBOUND_DB].unit, models.INBOUND)


def _ensure(place: Place, into: Into) -> None:
    Mailboxes(place.root, settings=into.settings).ensure(place.group, place.session)


def _noted(place: Place) -> str | None:
    """The digest of the source that a mailbox is a copy of; None if it is none, or cannot be read."""
    with suppress(StateError), foreign.opened(place.inbound, sources.SHARED, follow=False) as file:
        return meta.find(file.unit, models.INBOUND, _IMPORTED)
    return None


def _digest(value: Any) -> str:
    return hashlib.sha256(ascii(value).encode()).hexdigest()  # names of files may be no UTF-8
