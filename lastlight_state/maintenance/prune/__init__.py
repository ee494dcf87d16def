"""Removes records that ended long ago, each completely with all rows that belong to it, and leaves a receipt.

Nothing else in this library deletes history. A prune is a series of short transactions. If it is killed, it has removed
only complete records, its receipt has the exact numbers of rows, and it can be resumed. Some kinds remove only the
oldest rows of a record instead (`sweeps`), or log files outside the database (`files`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.prune import batches, checks, sweeping
from lastlight_state.maintenance.prune.archived_logs import ArchivedLogs
from lastlight_state.maintenance.prune.archiving import BUNDLES, Archiver
from lastlight_state.maintenance.prune.arguments import PrunePlan, PrunePolicy
from lastlight_state.maintenance.prune.batches import Progress, batch, count_removed_logs
from lastlight_state.maintenance.prune.candidates import Range
from lastlight_state.maintenance.prune.files import FILES, Tree
from lastlight_state.maintenance.prune.kinds import KINDS
from lastlight_state.maintenance.prune.sweeps import SWEEPS
from lastlight_state.maintenance.prune.sweeps.sweep import CandidatePage
from lastlight_state.maintenance.shared import jobs
from lastlight_state.migrations import read_state
from lastlight_state.receipts import Receipt, Receipts


class Prune(Repository):
    """Removes records that ended long ago: ``store.maintenance.prune``."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def plan(self, policy: PrunePolicy) -> PrunePlan:
        """Return what `run` would remove now, from one snapshot. Writes nothing, and holds no lock.

        Raises `InvalidValue` for an invalid policy, and `NotFound` if one of the policy's ``ids`` does not exist.
        """
        terms = checks.terms(policy, self._now(), self._settings)
        if policy.kind in FILES:
            return self._viewing(lambda unit: sweeping.plan_files(unit, self._settings, terms))
        planned = sweeping.plan if policy.kind in SWEEPS else partial(batches.plan, settings=self._settings)
        return self._viewing(lambda unit: planned(unit, terms))

    def run(self, policy: PrunePolicy, *, actor: str | None = None) -> Receipt:
        """Remove the records that the policy selects, in short transactions, and return the receipt.

        The state of the receipt is ``done``, or ``interrupted`` after the policy's ``time_limit``, and also after an
        exception, Ctrl-C included. Raises `Conflict` ``already_running`` while another prune of the kind runs,
        `ClaimLost` if another process has taken over the work, and the errors of `plan`.
        """
        terms = checks.terms(policy, self._now(), self._settings)
        if policy.kind in FILES:
            fixed = sweeping.begin_files(self._settings, terms)
        else:
            begun = sweeping.begin if policy.kind in SWEEPS else batches.begin
            fixed = self._viewing(lambda unit: begun(unit, terms))
        receipt = self._receipts.begin("prune", scope=policy.kind, policy=fixed, owner=jobs.owner(), actor=actor)
        return self._carried_on(receipt, policy.time_limit)

    def resume(self, receipt_id: str, *, time_limit: float | None = None) -> Receipt:
        """Continue an interrupted prune, under its policy and with its cutoff.

        After a process was killed, the state of its receipt is still ``running``. The prune can be resumed at once on
        the same machine, and on other machines after ten minutes. Raises `NotFound`, `Conflict` for a prune that has
        ended or is running, and `InvalidValue` if logs are to be removed and their folder is not on this machine.
        """
        checks.limit(time_limit)
        known = self._receipts.get(receipt_id)
        if known.kind != "prune":
            raise InvalidValue("receipt_id", f"must be the receipt of a prune, this one is of a {known.kind}")
        if known.scope in FILES:
            sweeping.tree_of(self._settings, known.policy)
        if known.policy.get("with_logs"):
            checks.refuse_without_logs(self._settings)
        return self._carried_on(self._receipts.resume(receipt_id, owner=jobs.owner()), time_limit)

    def _carried_on(self, receipt: Receipt, time_limit: float | None) -> Receipt:
        if receipt.scope in SWEEPS:
            return self._swept(receipt, _timer(time_limit))
        if receipt.scope in FILES:
            return self._prune_files(receipt, _timer(time_limit))
        found = Range.of(KINDS[receipt.scope], receipt.policy)
        most, in_time = receipt.policy["batch_rows"], _timer(time_limit)
        archiver = self._archiver(receipt)
        going_on = True
        with jobs.interruptible(self._receipts, lambda: receipt, again=self._again(receipt)):
            receipt = self._remove_archived_logs(receipt)
            while going_on:
                if not in_time():
                    return self._receipts.finish(receipt, "interrupted", error=_OUT_OF_TIME)
                receipt, going_on = self._next(receipt, found, most, archiver)
                receipt = self._remove_archived_logs(receipt)
            return self._receipts.finish(receipt)

    def _next(self, receipt: Receipt, found: Range, most: int, archiver: Archiver | None) -> tuple[Receipt, bool]:
        return self._writing(lambda unit: batch(unit, receipt, found, most, self._now(), archiver))

    def _remove_archived_logs(self, receipt: Receipt) -> Receipt:
        """After the commit of a batch, remove the logs of the records that the batch archived and removed."""
        names = Progress.of(receipt.cursor).archived
        if not names:
            return receipt
        cutoff = parse_time(receipt.policy["cutoff"])
        logs = ArchivedLogs.of(Path(receipt.policy["archive"]), names)
        removed = logs.remove(self._reading(logs.free), self._settings, cutoff)
        return self._writing(lambda unit: count_removed_logs(unit, receipt, removed, self._now()))

    def _swept(self, receipt: Receipt, in_time: Callable[[], bool]) -> Receipt:
        place: sweeping.Place | None = sweeping.Place.of(receipt)
        quiet = 0
        with jobs.interruptible(self._receipts, lambda: receipt, again=self._again(receipt)):
            while place is not None:
                if not in_time():
                    return self._receipts.finish(receipt, "interrupted", error=_OUT_OF_TIME)
                look = self._look(receipt, place)
                if look.keys or look.after is None or quiet == sweeping.QUIET:
                    receipt, place = self._swept_on(receipt, place, look)
                    quiet = 0
                else:
                    place, quiet = place._replace(after=look.after), quiet + 1
            return self._receipts.finish(receipt)

    def _look(self, receipt: Receipt, place: sweeping.Place) -> CandidatePage:
        return self._reading(lambda unit: sweeping.look(unit, receipt, place))

    def _swept_on(
        self, receipt: Receipt, place: sweeping.Place, look: CandidatePage
    ) -> tuple[Receipt, sweeping.Place | None]:
        return self._writing(lambda unit: sweeping.batch(unit, receipt, place, look, self._now()))

    def _prune_files(self, receipt: Receipt, in_time: Callable[[], bool]) -> Receipt:
        """Prune log files in batches.

        Each batch writes the next logs' names into the receipt, then removes and counts them.
        """
        tree, cutoff = sweeping.tree_of(self._settings, receipt.policy), parse_time(receipt.policy["cutoff"])
        with jobs.interruptible(self._receipts, lambda: receipt, again=self._again(receipt)):
            receipt = self._filed_on(receipt, tree, cutoff)
            for keys in sweeping.chunks(tree, tree.logs_by_age(cutoff), receipt.policy):
                if not in_time():
                    return self._receipts.finish(receipt, "interrupted", error=_OUT_OF_TIME)
                going = self._reading(
                    partial(sweeping.removable_logs, tree=tree, keys=keys, cutoff=cutoff, staying=Counter())
                )
                receipt = self._receipts.step(receipt, counts=receipt.counts, cursor=sweeping.cursor(going))
                receipt = self._filed_on(receipt, tree, cutoff)
            return self._receipts.finish(receipt)

    def _filed_on(self, receipt: Receipt, tree: Tree, cutoff: datetime) -> Receipt:
        """Remove the logs that the receipt names, except logs that are in use now."""
        going = sweeping.pending_logs(receipt)
        kept = self._reading(lambda unit: tree.protected_logs(unit, list(going)))
        gone = sweeping.remove_logs(tree, going, kept, cutoff)
        return self._writing(lambda unit: sweeping.record_removed_logs(unit, receipt, tree, gone, self._now()))

    def _again(self, receipt: Receipt) -> str:
        """Return the command line that resumes a prune."""
        return self._backend.command("prune", "--resume", receipt.id)

    def _archiver(self, receipt: Receipt) -> Archiver | None:
        folder = receipt.policy.get("archive")
        if folder is None:
            return None
        revision = read_state(self._backend).revision or ""
        with_logs = receipt.policy.get("with_logs", False)
        return Archiver(BUNDLES[receipt.scope], Path(folder), revision, self._settings, with_logs)


_OUT_OF_TIME = "the time limit was reached"


def _timer(seconds: float | None) -> Callable[[], bool]:
    """Return a function that returns whether there is time left. If ``seconds`` is None, the time is unlimited."""
    if seconds is None:
        return lambda: True
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end
