"""Imports: other programs' files become rows, unit by unit, each whole or absent. Sources are only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lastlight_state.conversations import words
from lastlight_state.conversations.kernel import sessions, statuses, storing
from lastlight_state.conversations.kernel.classes import KnownClasses
from lastlight_state.conversations.kernel.feeds import news
from lastlight_state.conversations.trees.plans import Plan, plan_of
from lastlight_state.conversations.trees.saving import Saving
from lastlight_state.db import valid
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.told import message_of, storable
from lastlight_state.db.unit import Unit
from lastlight_state.errors import (
    BackendError,
    ClaimLost,
    Conflict,
    MisuseError,
    SchemaError,
    StateError,
)
from lastlight_state.maintenance import work
from lastlight_state.maintenance.imports import comparing, run_folders, statements as sql
from lastlight_state.maintenance.imports.comparing import Planned
from lastlight_state.maintenance.imports.drafts import Draft, Part
from lastlight_state.maintenance.imports.records import FailedUnit, ImportReport
from lastlight_state.receipts import Receipt, Receipts, steps

#: What is imported from.
SourceKind = Literal["lionagi-runs"]
KINDS = ("lionagi-runs",)
#: What is looked for where the kind is not said.
LOOKED_FOR = "lionagi-runs: folders with run.json"
#: How many units that failed a report names.
FAILURES = 500

_SIGN_OF_LIFE = timedelta(minutes=1)
_UNITS, _ROWS, _NOTICED = "units.", "rows.", "noticed."


class Imports(Repository):
    """``store.maintenance.imports``"""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def detect(self, path: str | Path) -> SourceKind:
        """The kind of source at a path. Raises `Conflict` ``unknown_source`` with what was looked for."""
        try:
            found = run_folders.found_at(Path(path))
        except (OSError, ValueError):  # no path, or not to be listed
            found = False
        if found:
            return "lionagi-runs"
        raise Conflict(f"no known source at {str(path)!r:.200}; looked for {LOOKED_FOR}", code="unknown_source")

    def plan(self, path: str | Path, *, kind: SourceKind | None = None, revive: bool = False) -> ImportReport:
        """What `run` would do at this moment. Writes nothing, neither to the database nor to the source."""
        source_kind, planned, done = self._kind(path, kind), Planned(), _Done()
        for part in run_folders.parts(Path(path)):
            look = partial(self._looked, source_kind, part, planned, revive)
            done.add(part, look)
        return done.report(source_kind, None)

    def run(
        self, path: str | Path, *, kind: SourceKind | None = None, revive: bool = False, actor: str | None = None
    ) -> ImportReport:
        """Import what is new of a source, each unit in one transaction, and return the counts with the receipt.

        A unit that fails leaves nothing, is named with its reason, and the others go on. A unit that is as it was is
        left alone; of one that has grown, what is new is appended. What was pruned stays away unless ``revive`` says
        otherwise. After an interruption the same call goes on. Raises `Conflict` ``already_running`` while another
        import of the kind runs, and ``unknown_source``.
        """
        source_kind, done = self._kind(path, kind), _Done()
        policy = {"source": storable(str(path), 4_000), "revive": revive}
        receipt = self._receipts.begin("import", scope=source_kind, policy=policy, owner=work.owner(), actor=actor)
        with work.interruptible(self._receipts, lambda: receipt, again="the same command"):
            for part in run_folders.parts(Path(path)):
                done.add(part, partial(self._imported, receipt, part, revive, done))
                receipt = self._alive(receipt, done)
            receipt = self._receipts.step(receipt, counts=done.counts)
        return done.report(source_kind, self._receipts.finish(receipt))

    def _alive(self, receipt: Receipt, done: _Done) -> Receipt:
        """Step the receipt once a minute, also where nothing is stored: one that is silent is taken for dead."""
        if self._now() - receipt.updated_at < _SIGN_OF_LIFE:
            return receipt
        return self._receipts.step(receipt, counts=done.counts)

    def _kind(self, path: str | Path, kind: SourceKind | None) -> SourceKind:
        if kind is not None:
            valid.word("kind", kind, KINDS)
        return self.detect(path)

    def _looked(self, kind: str, part: Part, planned: Planned, revives: bool) -> tuple[str, Counter[str]]:
        unit = _Unit(part, self._now())
        return self._viewing(lambda view: unit.compared(view, kind, planned, revives=revives))

    def _imported(self, receipt: Receipt, part: Part, revives: bool, done: _Done) -> tuple[str, Counter[str]]:
        unit = _Unit(part, self._now())
        kind = receipt.scope
        locks = sessions.Locks()

        def stored(view: Unit) -> tuple[str, Counter[str]]:
            steps.confirm(view, receipt)
            found, rows = unit.compared(view, kind, Planned(), revives=revives)
            if found in ("imported", "grown"):
                self._store(view, unit, locks, is_new=found == "imported")
                view.change(sql.NOTE, unit.noted(kind, found, receipt.id, self._now()))
                counts = done.counts + _counted(found, rows)
                steps.step(view, receipt, counts=counts, cursor=None, at=self._now())
            return found, rows

        return storing.settled(partial(self._writing, stored, repeatable=True))

    def _store(self, view: Unit, unit: _Unit, locks: sessions.Locks, *, is_new: bool) -> None:
        draft, plan = unit.draft, unit.plan
        last = plan.session["last_message_at"] or plan.session["created_at"]
        known = self._remember(KnownClasses)
        done = Saving(plan, self._listeners, known, last, replaces=False, only_adds=True).part(
            view, plan.branches, locks
        )[1]
        session_id = plan.session["id"]
        _, revised = storing.put_all(view, known, list(unit.loose.values()), last)
        if revised or done["messages_revised"] or bool(done["session_created"]) != is_new:
            # stored by somebody else after the look: the unit begins again, and is refused
            raise Conflict(f"session {session_id!r:.80} was changed meanwhile", code="unique")
        if unit.loose:
            new = sessions.pool_messages(view, sessions.locked(view, session_id), list(unit.loose))
            if new:
                told = news("messages.appended", count=len(new))
                sessions.move(view, self._listeners, session_id, last, told)
        row = view.row(statuses.LOCK, {"session_id": session_id}) or {}
        status, ended = plan.session["status"], plan.session["ended_at"] or draft.updated_at
        if row["status"] not in words.TERMINAL and status in words.TERMINAL:
            sets = {"ended_at": ended, "ended_at_is_approximate": plan.session["ended_at_is_approximate"]}
            statuses.move(view, self._listeners, row, status, plan.session["why"], ended, **sets)
        elif row["status"] == "pending" and status == words.RUNNING:
            statuses.move(view, self._listeners, row, status, plan.session["why"], draft.updated_at)
        if unit.stored is not None:
            at = max(draft.updated_at, unit.stored["updated_at"])
            view.change(sql.TOUCH, {"session_id": session_id, "at": at})


class _Unit:
    """One unit that was read and checked."""

    def __init__(self, part: Part, now: Any) -> None:
        if part.read is None:
            raise _Ignored
        self.key = valid.identifier("name", part.key)
        self.draft: Draft = part.read()
        self.plan: Plan = plan_of(self.draft.tree, self.draft.updated_at)
        drafts = [storing.draft(f"messages[{i}]", one, now) for i, one in enumerate(self.draft.loose)]
        self.loose = {body["id"]: body for body in drafts}
        self.stored: Any = None  # the row of its session, once it was compared
        self.bodies = dict(self.loose)
        for branch in self.plan.branches:
            self.bodies.update(branch.bodies)

    def compared(self, view: Unit, kind: str, planned: Planned, *, revives: bool) -> tuple[str, Counter[str]]:
        """What happens with the unit, and the rows that are added."""
        session_id = self.plan.session["id"]
        self.stored = view.row(sql.SESSION, {"session_id": session_id})
        found = comparing.outcome(view, kind, self.key, session_id, self.draft.digest, self.stored, revives=revives)
        if found not in ("imported", "grown"):
            return found, Counter()
        noticed = Counter(self.draft.noticed)
        if self.stored is not None:
            kept = self.stored["status"]
            noticed["status_kept"] += kept in words.TERMINAL and kept != self.plan.session["status"]
        rows = comparing.added(view, self.plan, self.bodies, planned)
        rows["sessions"] += found == "imported"
        return found, Counter({_ROWS + name: n for name, n in rows.items() if n}) + Counter(
            {_NOTICED + name: n for name, n in noticed.items() if n}
        )

    def noted(self, kind: str, outcome: str, receipt_id: str, at: Any) -> dict[str, Any]:
        """The row of the ledger."""
        target = {"target_kind": words.SESSION, "target_id": self.plan.session["id"]}
        digest = {"digest": self.draft.digest, "outcome": outcome, "receipt_id": receipt_id, "imported_at": at}
        return {"source_kind": kind, "source_key": self.key, **target, **digest}


class _Ignored(Exception):
    """The unit is not to be read."""


class _Done:
    """What was done so far, or would be."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[FailedUnit] = []

    def add(self, part: Part, treat: Any) -> None:
        """Treat a unit, and count what came of it."""
        try:
            self.counts += _counted(*treat())
        except _Ignored:
            self.counts[f"{_UNITS}ignored"] += 1
        except (ClaimLost, BackendError, MisuseError, SchemaError):
            raise
        except (StateError, OSError) as error:
            self.counts[f"{_UNITS}failed"] += 1
            if len(self.failures) < FAILURES:
                code = getattr(error, "code", "os_error")
                self.failures.append(FailedUnit(unit=part.key, code=code, reason=message_of(error)))

    def report(self, kind: str, receipt: Receipt | None) -> ImportReport:
        """As a record."""
        units, rows, noticed = (dict(sorted(_under(self.counts, name))) for name in (_UNITS, _ROWS, _NOTICED))
        return ImportReport(
            kind=kind, units=units, rows=rows, noticed=noticed, failures=tuple(self.failures), receipt=receipt
        )


def _counted(outcome: str, rows: Counter[str]) -> Counter[str]:
    return rows + Counter({_UNITS + outcome: 1})


def _under(counts: Counter[str], prefix: str) -> Iterator[tuple[str, int]]:
    return ((name.removeprefix(prefix), n) for name, n in counts.items() if name.startswith(prefix))
