"""Imports other programs' files as rows, unit by unit: each unit completely or not at all.

Sources are never written.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lastlight_state import progress
from lastlight_state.conversations.shared import storing
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import storable
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendUnavailable, Conflict, InvalidValue
from lastlight_state.maintenance.imports import foreign, origins, pieces
from lastlight_state.maintenance.imports.foreign import SourceWritten
from lastlight_state.maintenance.imports.kinds import KINDS
from lastlight_state.maintenance.imports.pieces import (
    STORED,
    ImportReport,
    ImportTarget,
    ImportUnit,
    Kind,
    Place,
    Read,
    Server,
    SourceKind,
    SourceUnit,
    UnitLookup,
)
from lastlight_state.maintenance.imports.servers import place_of
from lastlight_state.maintenance.imports.strangers import program_at
from lastlight_state.maintenance.imports.tally import Outcome, Tally
from lastlight_state.maintenance.shared import jobs
from lastlight_state.receipts import Receipt, Receipts, steps
from lastlight_state.special_files import DIRECTORY, mismatch_at

#: The longest scope, in bytes. A scope is a prefix of ids, which have at most 256 bytes.
_SCOPE_BYTES = 64

_SIGN_OF_LIFE = timedelta(minutes=1)


class Imports(Repository):
    """Imports other programs' files and databases: ``store.maintenance.imports``."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def detect(self, path: str | Path) -> SourceKind:
        """Return the kind of the source at a path or a Postgres URL.

        Raises `Conflict` ``unknown_source``, which lists what was searched for.
        """
        return self._detect_kind(place_of(path))

    def _detect_kind(self, place: Place) -> SourceKind:
        kinds = [kind for kind in KINDS.values() if kind.takes(place)]
        stranger = program_at(place) if isinstance(place, Path) else None
        if stranger is not None:
            raise Conflict(
                f"{str(place)!r:.200} has session files of {stranger}, which is no kind of source",
                code="unknown_source",
            )
        for kind in kinds:
            try:
                if kind.found_at(place):
                    return kind.name  # type: ignore[return-value]
            except (OSError, ValueError, BackendUnavailable):  # not a valid path, or it cannot be listed
                if isinstance(place, Server):
                    raise
        problem = isinstance(place, Path) and mismatch_at(place) and mismatch_at(place, DIRECTORY)
        if problem:
            raise Conflict(f"no known source at {str(place)!r:.200}: {problem}", code="unknown_source")
        looked_for = "; ".join(f"{kind.name}: {kind.looked_for}" for kind in kinds)
        raise Conflict(f"no known source at {str(place)!r:.200}; looked for {looked_for}", code="unknown_source")

    def plan(
        self,
        path: str | Path,
        *,
        kind: SourceKind | None = None,
        revive: bool | Sequence[str] = False,
        lenient: bool = False,
        limit: int | None = None,
        scope: str | None = None,
    ) -> ImportReport:
        """Return what `run` would do at this moment. Writes nothing, neither to the database nor to the source."""
        place = place_of(path)
        source, tally, terms = self._kind(place, kind, scope), Tally(), _terms(revive, lenient, limit, scope)
        planned: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        origin = _source_name(place), _file(place)
        with closing(_parts(source, place, tally)) as parts:
            for part in parts:
                tally.add(part, partial(self._plan_part, source, origin, part, planned, tally.moved, terms))
                if tally.stored_count == limit:
                    break
            else:
                tally.name_unknown(terms.revived_names)
        return tally.report(source.name, None)

    def run(
        self,
        path: str | Path,
        *,
        kind: SourceKind | None = None,
        revive: bool | Sequence[str] = False,
        lenient: bool = False,
        limit: int | None = None,
        scope: str | None = None,
        actor: str | None = None,
    ) -> ImportReport:
        """Import what is new in a source, each unit in one transaction. Returns the counts and the receipt.

        The source is at a path or at a Postgres URL. A server (kinds ``lastlight-db`` and ``smithers-db``) is read in
        one snapshot.

        A unit that fails is not stored; the report names it with the reason, and the other units are still imported. An
        unchanged unit is not written. If a unit has grown, its new rows are appended. A unit belongs to the source from
        which it was imported. A unit of the same name with other content fails, and so does a unit that changed both in
        the store and in its source. ``scope`` is added as a prefix to the names of a source whose units have no ids
        (kinds ``openai-agents-db``, ``lionagi-teams``, ``smithers-db`` and ``nanoclaw``).

        A unit that was erased, deleted or pruned in this store is not imported again, and neither is such a part of a
        stored unit. It is imported again if ``revive`` is True or names the unit; a name that is not a unit is listed
        among the failures. A text that was emptied in this store, and a name that was removed in it, are never imported
        again.

        With ``lenient``, refused values are kept as text under ``adapted`` in ``extra``, and counted. With ``limit``,
        the import ends after that many units were stored, and the same call imports the next ones. After an
        interruption, the same call continues the import.

        Raises `Conflict` ``already_running`` while another import of the kind runs, and ``unknown_source``.
        """
        place = place_of(path)
        source, tally, terms = self._kind(place, kind, scope), Tally(), _terms(revive, lenient, limit, scope)
        policy = {"source": _source_name(place), "file": _file(place), **terms._asdict()}
        receipt = self._receipts.begin("import", scope=source.name, policy=policy, owner=jobs.owner(), actor=actor)
        again = "the same command"
        with (
            jobs.interruptible(self._receipts, lambda: receipt, again=again),
            closing(_parts(source, place, tally)) as parts,
        ):
            try:
                for part in parts:
                    tally.add(part, partial(self._import_part, receipt, part, terms, tally))
                    progress.tell("importing", tally.stored_count, unit="units")
                    receipt = self._alive(receipt, tally)
                    if tally.stored_count == limit:
                        break
                else:
                    tally.name_unknown(terms.revived_names)
            except Conflict as error:
                if error.code == "unknown_source":  # the given kind does not match the source
                    receipt = jobs.fail_receipt(self._receipts, receipt, error)
                raise
            receipt = self._receipts.step(receipt, counts=tally.whole)
            return tally.report(source.name, self._receipts.finish(receipt))

    def _alive(self, receipt: Receipt, tally: Tally) -> Receipt:
        """Update the receipt once a minute, even if nothing was stored.

        A receipt without updates counts as abandoned.
        """
        if self._now() - receipt.updated_at < _SIGN_OF_LIFE:
            return receipt
        return self._receipts.step(receipt, counts=tally.whole)

    def _kind(self, place: Place, kind: SourceKind | None, scope: str | None) -> Kind:
        if kind is not None:
            valid.word("kind", kind, KINDS)
        found = KINDS[self._detect_kind(place) if kind is None else kind]
        if not found.takes(place):
            raise InvalidValue("kind", f"{found.name} is read from files, and not from a server")
        problem = mismatch_at(place, found.wants) if isinstance(place, Path) else None
        if problem is not None:
            raise Conflict(f"no {found.name} at {str(place)!r:.200}: {problem}", code="unknown_source")
        if scope is not None and not found.has_names:
            raise InvalidValue("scope", f"must not be given for {found.name}, whose units have ids of their own")
        return found

    def _into(self, terms: _Terms) -> ImportTarget:
        known = self._remember(KnownClasses)
        return ImportTarget(self._now(), self._settings, self._listeners, known, terms.lenient, terms.scope)

    def _plan_part(
        self,
        source: Kind,
        origin: tuple[str, Sequence[int]],
        part: SourceUnit,
        planned: defaultdict[str, dict[str, Any]],
        moved: set[str],
        terms: _Terms,
        read: Read,
    ) -> Outcome:
        valid.identifier("name", part.key)
        piece = read(self._into(terms))
        key = source.unit(part, piece)

        def compare_piece(view: Unit) -> Outcome:
            kind, revives = terms.of(source.name), terms.revives(part.key)
            look = UnitLookup(view, kind, key, revives, planned, "", *origin, moved)
            return _compare_unit(look, piece)

        return self._viewing(compare_piece)

    def _import_part(self, receipt: Receipt, part: SourceUnit, terms: _Terms, tally: Tally, read: Read) -> Outcome:
        valid.identifier("name", part.key)
        piece = read(self._into(terms))
        key = KINDS[receipt.scope].unit(part, piece)

        def store_piece(view: Unit) -> Outcome:
            steps.confirm(view, receipt)
            kind, revives = terms.of(receipt.scope), terms.revives(part.key)
            origin = receipt.policy["source"], receipt.policy["file"]
            look = UnitLookup(view, kind, key, revives, defaultdict(dict), receipt.id, *origin, tally.moved)
            done = _compare_unit(look, piece)
            if done.outcome in STORED:
                piece.store(view, done.outcome)
                pieces.note(look, piece, done.outcome, receipt.id, self._now())
                steps.step(view, receipt, counts=tally.with_(done), cursor=None, at=self._now())
            elif done.outcome == "unchanged" and origins.is_moved(look):
                pieces.note_read(look)
            return done

        return storing.retry_storing(partial(self._writing, store_piece, repeatable=True))


def _compare_unit(look: UnitLookup, piece: ImportUnit) -> Outcome:
    """Compare a unit with the store and return the outcome.

    If the unit proves that its source has moved, record that.
    """
    outcome, rows, noticed = piece.compare(look)
    kept = piece.kept_differences
    if outcome == "unchanged" and pieces.is_same(look, piece):  # with another digest it is an older state: no proof
        origins.note_moved(look)
    elif outcome == "pruned":
        kept = [*kept, *origins.removed_of_another(look, piece)]
        noticed = noticed + Counter(conflicts=len(kept))
    return Outcome(outcome, rows, noticed, kept)


def _parts(source: Kind, place: Place, tally: Tally) -> Generator[SourceUnit]:
    """Yield the parts of a source. If a file is written while it is read, open it again for the remaining units.

    A unit that is written during each reading fails, so that each opening makes progress. The source is also opened
    again if a unit shows that the source was moved: then units that were refused before are read again.
    """
    is_whole = False
    while not is_whole:
        tally.again()
        done = set(tally.keys)
        with suppress(SourceWritten) if tally.may_open_again else nullcontext(), closing(source.parts(place)) as parts:
            for part in parts:
                if part.read is None or part.key not in done:  # parts that are not units are counted at each opening
                    yield part
                if tally.is_disturbed:
                    break
            else:
                is_whole = not tally.takes_back()


class _Terms(NamedTuple):
    """The options of an import."""

    revive: bool | tuple[str, ...]
    lenient: bool
    limit: int | None
    scope: str | None

    def of(self, kind: str) -> str:
        """Return the kind of source as the ledger names it, scope included: two scopes count as two sources."""
        return kind if self.scope is None else f"{kind} {self.scope}"

    @property
    def revived_names(self) -> tuple[str, ...]:
        """Return the names of the units to revive."""
        return () if isinstance(self.revive, bool) else self.revive

    def revives(self, unit: str) -> bool:
        """True if a unit that was removed in this store must be imported again."""
        return self.revive if isinstance(self.revive, bool) else unit in self.revive


def _terms(revive: Any, lenient: Any, limit: Any, scope: Any) -> _Terms:
    most = None if limit is None else valid.number("limit", limit, least=1)
    return _Terms(
        _check_revive(revive), valid.flag("lenient", lenient), most, valid.optional("scope", scope, _SCOPE_BYTES)
    )


def _check_revive(value: Any) -> bool | tuple[str, ...]:
    """Check ``revive``. Returns a bool for all units, or the names of the units to import again."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple | set | frozenset):
        raise InvalidValue("revive", f"expected a bool or a list of names of units, got {type(value).__name__}")
    return tuple(valid.identifier("revive", one) for one in value)


def _source_name(place: Place) -> str:
    """Return the source as receipts name it: an absolute path, or a URL without its password."""
    return storable(os.path.abspath(place) if isinstance(place, Path) else str(place), 4_000)  # noqa: PTH100 - no link


def _file(place: Place) -> list[int]:
    """Return the identity of the SQLite file at a place, or an empty list if there is no file."""
    with suppress(OSError):
        return foreign.identity(place) if isinstance(place, Path) else []
    return []
