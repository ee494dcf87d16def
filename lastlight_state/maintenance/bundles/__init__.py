"""Bundles: one run, or one session of a conversation, as a file that can be stored, read, and loaded elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import partial
from os import fspath
from pathlib import Path
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations.shared import storing
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import storable
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, CorruptData, InvalidValue
from lastlight_state.maintenance.bundles import row_lines, selection, writing
from lastlight_state.maintenance.bundles.archive import OpenBundle, new_file, open_bundle
from lastlight_state.maintenance.bundles.loading import Loading, refuse_newer
from lastlight_state.maintenance.bundles.records import (
    KINDS,
    ON_CONFLICT,
    REDACTIONS,
    Bundle,
    BundleKind,
    LoadedBundle,
    OnConflict,
    Redaction,
)
from lastlight_state.maintenance.bundles.writing import write_bundle
from lastlight_state.maintenance.shared import jobs
from lastlight_state.migrations import read_state
from lastlight_state.receipts import Receipt, Receipts, steps
from lastlight_state.receipts.models import State

# A load under new ids may be interrupted after its commit. The same load then finishes it, and makes no second copy.
# Its receipt has the digest of the bundle, and the seed of the new ids. From the seed come the new names of log files
# that are still missing.

#: The states of receipts whose loads have not ended.
_UNFINISHED: tuple[State, ...] = ("running", "interrupted")
#: How many unfinished receipts are read, the newest first.
_LOOK = 500


def digest(bundle: Bundle) -> str:
    """Return the SHA-256 of a bundle's manifest, which identifies the bundle because it has the digest of each part."""
    return hashlib.sha256(codec.canonical(bundle.model_dump(mode="json"))).hexdigest()


def cut_off(receipts: Receipts, bundle: Bundle) -> Receipt | None:
    """Return the receipt of an interrupted load of this bundle under new ids. None unless that load stored its rows."""
    found = digest(bundle)
    for state in _UNFINISHED:
        for one in receipts.list(kind="bundle", state=state, limit=_LOOK).items:
            if one.counts:
                receipt = receipts.get(one.id)
                if receipt.policy.get("on_conflict") == "new_ids" and receipt.policy.get("digest") == found:
                    return receipt
    return None


class Bundles(Repository):
    """Exports, reads and loads bundles: ``store.maintenance.bundles``."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def export(
        self,
        kind: BundleKind,
        key: str,
        dest: str | Path,
        *,
        with_logs: bool = True,
        redact: Collection[Redaction] = (),
    ) -> Bundle:
        """Write one ``run`` or one ``session`` of a conversation into a new file. Returns the bundle's description.

        A run includes its executions, journal, outputs and questions. A session includes its branches, orders, messages
        and transitions, and branches of other sessions that its own were forked from. Rows are read in one snapshot.
        With ``with_logs``, the log files of the agents' sessions are added. The same state gives the same bytes.

        ``redact`` names what is left out; everything else is included (`Redaction`). Values of the named columns are
        replaced by a mark. Without ``content``, messages have no chunks and embeddings; without ``events`` there are no
        frames. ``outputs`` are rows of output tables, and ``logs`` the log files. Ids, names of people and things,
        times, statuses, reasons, phases and numbers are in every bundle.

        Raises `NotFound`, and `AlreadyExists` if anything is at ``dest``. Unless ``outputs`` are left out, raises
        `Conflict` ``unregistered_columns`` if the run has rows in an attached table with undeclared columns.
        """
        valid.word("kind", kind, KINDS)
        codec.check_text("dest", fspath(dest))
        found, place = valid.lookup_text("key", key), Path(dest).absolute()
        valid.flag("with_logs", with_logs)
        hidden = tuple(sorted({valid.word("redact", one, REDACTIONS) for one in valid.several("redact", redact)}))
        revision = read_state(self._backend).revision or ""

        with new_file(place) as file:

            def write(view: Unit) -> Bundle:
                file.seek(0)
                file.truncate()
                chosen, logged = selection.select_rows(view, kind, found), self._settings if with_logs else None
                left = selection.left_columns(view, kind)
                made = write_bundle(file, view, (kind, found, revision), chosen, logged, hidden, left)
                selection.refuse_unregistered(view, made.tables)
                return made

            bundle = self._viewing(write)
            if self._backend.is_disturbed:
                raise Conflict("another process wrote to the file meanwhile", code="source_changed")
        return bundle

    def read(self, file: str | Path) -> Bundle:
        """Return the description of a bundle, after comparing every part with its digest. Needs no database.

        Raises `NotFound`, `NewerSchema` for a newer format, and `Conflict` ``damaged_bundle``.
        """
        with open_bundle(Path(file)) as found:
            return found.bundle

    def plan(
        self,
        file: str | Path,
        *,
        on_conflict: OnConflict = "refuse",
        allow_redacted: bool = False,
        allow_unknown_words: bool = False,
    ) -> LoadedBundle:
        """Return what `load` would add at this moment. Writes nothing. Raises the errors of `load`."""
        valid.word("on_conflict", on_conflict, ON_CONFLICT)
        with open_bundle(Path(file)) as found:
            cut_off = self._cut_off(found, on_conflict)
            allowed = {"allow_redacted": allow_redacted, "allow_unknown_words": allow_unknown_words}
            planned = self._plan_loading(self._prepare_loading(found, on_conflict, cut_off, **allowed))
            return planned.model_copy(update={"id": found.bundle.id})

    def load(
        self,
        file: str | Path,
        *,
        on_conflict: OnConflict = "refuse",
        allow_redacted: bool = False,
        allow_unknown_words: bool = False,
        actor: str | None = None,
    ) -> LoadedBundle:
        """Add the missing parts of a bundle: its rows in one transaction, then its log files.

        The whole bundle is verified before the first write. Rows and files that exist with the same contents are not
        written, so that loading twice changes nothing and leaves one receipt. A row or file with other contents raises
        `AlreadyExists` with its table and key, and nothing is loaded; with ``skip`` the existing row or file stays and
        the rest is added.

        With ``new_ids``, everything gets a new id, and each load adds one more independent run or session. Deliveries
        to others, the key of a run, and unused permissions are not copied. If such a load was interrupted after its
        rows were stored, the next load of the bundle finishes that load and adds no further copy.

        Tombstones of pruned records do not block a load. Raises `NewerSchema` for a bundle of a newer version,
        `Conflict` ``redacted_bundle`` for a redacted bundle unless ``allow_redacted``, ``unknown_word`` for a status
        that this version does not know unless ``allow_unknown_words``, and the errors of `read`. If only the database
        refuses a row, no row is stored, and the receipt is ``failed``.
        """
        valid.word("on_conflict", on_conflict, ON_CONFLICT)
        with open_bundle(Path(file)) as found:
            cut_off = self._cut_off(found, on_conflict)
            allowed = {"allow_redacted": allow_redacted, "allow_unknown_words": allow_unknown_words}
            loading = self._prepare_loading(found, on_conflict, cut_off, **allowed)
            planned = self._plan_loading(loading)
            if not (planned.rows or planned.files or cut_off):
                return planned
            if cut_off is None:
                policy = {"source": storable(str(file), 4_000), "on_conflict": on_conflict}
                receipt = self._begin_receipt(found, loading, policy, actor)
            else:
                receipt = self._receipts.resume(cut_off.id, owner=jobs.owner())
            with jobs.interruptible(self._receipts, lambda: receipt, again="the same command"):
                with row_lines.staged_logs(self._settings, found, loading.missing_logs(self._settings)) as files:
                    try:
                        if not loading.is_stored:
                            receipt = storing.retry_storing(partial(self._store_rows, receipt, loading))
                    except (Conflict, InvalidValue, CorruptData) as error:
                        receipt = jobs.fail_receipt(self._receipts, receipt, error)
                        raise
                    row_lines.put(files)
                rows = receipt.counts
                receipt = self._receipts.finish(receipt)
        return planned.model_copy(update={"rows": rows, "receipt": receipt})

    def _store_rows(self, receipt: Receipt, loading: Loading) -> Receipt:
        def store(unit: Unit) -> Receipt:
            steps.confirm(unit, receipt)
            counts = dict(sorted(loading.store(unit).items()))
            return steps.step(unit, receipt, counts=counts, cursor=None, at=self._now())

        return self._writing(store)

    def _cut_off(self, found: OpenBundle, on_conflict: OnConflict) -> Receipt | None:
        """Return the receipt of an interrupted load that this load must finish, or None if there is none."""
        return cut_off(self._receipts, found.bundle) if on_conflict == "new_ids" else None

    def _begin_receipt(self, found: OpenBundle, loading: Loading, policy: dict[str, Any], actor: str | None) -> Receipt:
        policy |= {"id": loading.id, "seed": loading.seed, "digest": digest(found.bundle)}
        return self._receipts.begin("bundle", scope=_scope(found), policy=policy, owner=jobs.owner(), actor=actor)

    def _prepare_loading(
        self,
        found: OpenBundle,
        on_conflict: OnConflict,
        cut_off: Receipt | None,
        *,
        allow_redacted: bool,
        allow_unknown_words: bool,
    ) -> Loading:
        refuse_newer(found.bundle.revision)
        if not valid.flag("allow_redacted", allow_redacted):
            writing.refuse(found.bundle)
        allowed = valid.flag("allow_unknown_words", allow_unknown_words)
        return Loading(
            found, self._known_classes(), on_conflict, self._now(), allow_unknown_words=allowed, cut_off=cut_off
        )

    def _plan_loading(self, loading: Loading) -> LoadedBundle:
        files = tuple(name for _, name, _ in loading.missing_logs(self._settings))
        rows = {} if loading.is_stored else self._viewing(loading.count_rows)
        return LoadedBundle(
            kind=loading.kind, id=loading.id, rows=dict(sorted(rows.items())), files=files, receipt=None
        )

    def _known_classes(self) -> KnownClasses:
        return self._remember(KnownClasses)


def _scope(found: OpenBundle) -> str:
    """Return the scope of a load's receipt. It allows only one load at a time of bundles of the same run or session."""
    return storable(f"{found.bundle.kind} {found.bundle.id}", 256)
