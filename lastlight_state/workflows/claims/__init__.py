"""Claims: the right to drive a run, with a lease and an epoch.

Clocks decide who may *try*: another process may take a run whose holder sent no heartbeat for longer than its lease.
The epoch decides who *wins*: it grows whenever a claim begins or ends, and a write with an older epoch changes nothing.
So a process that was stopped, replaced and continued cannot do harm, and a holder that is merely late keeps its run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Generic

from lastlight_state.db import valid
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Statement, Values
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.scope import TransactionScope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import ClaimLost, Conflict, MisuseError, NotFound, StateError
from lastlight_state.workflows import checks as shared
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.claims import checks, driving, lists, statements as sql, takes
from lastlight_state.workflows.claims.checks import ClaimableRun, ClaimHolder
from lastlight_state.workflows.claims.driving import B, ClaimCallbacks, D, Driven, DrivenRun, J, W
from lastlight_state.workflows.claims.takes import Attempt, FreeAttempt, GivingUp, OneAttempt
from lastlight_state.workflows.shared import overdue, run_rows
from lastlight_state.workflows.shared.claims import RenewedRun
from lastlight_state.workflows.shared.overdue import Overdue
from lastlight_state.workflows.tables import TRANSITIONS

_TRANSITION = limits_of(TRANSITIONS)

#: The default lease: the time for which a claim is valid without a heartbeat.
LEASE = timedelta(seconds=30)
_NONE = timedelta(0)


class Claims(Repository, Generic[W]):
    """``store.workflows.claims``: take, renew, hand over and release the right to drive a run."""

    def __init__(
        self,
        context: Context,
        presenting: Callable[[Claim], W],
        expire: Callable[[Sequence[str] | None], Sequence[str]],
    ) -> None:
        super().__init__(context)
        self._presenting = presenting
        self._overdue = Overdue(self._scope, self._now, expire)

    def list_claimable(
        self,
        *,
        grace: timedelta = _NONE,
        workflow_names: Sequence[str] | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[ClaimableRun]:
        """Return a page of runs that may be taken, of ``workflow_names`` or of all, the oldest sign of life first.

        *Offered* runs are running and held by nobody. A run that was not created as offered counts only after the 30
        seconds that its creator has to claim it. *Abandoned* runs are running, and their lease is over by more than
        ``grace`` (for clocks that differ). A lease that ends at this very instant is not over. A running run of a
        program without claims is abandoned after 30 seconds without an update. *Due* runs are paused until a time that
        has come, and no question blocks them. Runs at their restart limit are marked. A run released with
        ``retry_after`` is not listed before that time. Overdue questions are expired first, which offers their runs,
        except in a view.
        """
        moment = lists.moment(self._now(), valid.duration("grace", grace, most=checks.LONGEST))
        names = shared.some_workflows(workflow_names)
        valid.page_limit(limit)
        if names == []:
            return Page(items=(), next_page_token=None)

        def page() -> Page[ClaimableRun]:
            self._overdue.expire_at_once(names)
            return self._reading(lambda unit: lists.page(unit, moment, grace, names, limit, page_token))

        return self._scope.together(page)

    def take(self, run_id: str, *, owner: str, lease: timedelta = LEASE, expected_epoch: int | None = None) -> Claim:
        """Claim a run that is claimable, in the grace after its start, or held by ``owner`` already.

        ``owner`` must be unique to the process; an owner that holds the run already gets a new epoch. Taking an
        abandoned run, even your own, counts as a restart, unless somebody asked to cancel it. The claim's
        ``left_in_flight`` says how many executions an earlier holder has not ended: ending them is up to you
        (`Executions.interrupt`). A due run resumes, and so does a run whose questions are overdue. One of several
        callers wins. Raises `LostRace` (``held_by``, ``lease_expires_at``) for a running run that is held, was released
        until later, or has another epoch than ``expected_epoch``; `Conflict` ``restart_limit``; `Conflict`
        ``run_status`` for any other run, also one that is paused until later; `NotFound`.
        """
        now = self._now()
        values: FreeAttempt = {
            **checks.holding_parameters(now, owner, lease),
            "run_id": run_id,
            "expected_epoch": checks.epoch("expected_epoch", expected_epoch),
        }
        free = self._once(lambda unit: unit.row(sql.TAKE_FREE, values), repeatable=True)
        if free is not None:
            return takes.claim_of(free, lease)
        self._overdue.expire_of(run_id)
        contested: OneAttempt = {**values, **lists.moment(now)}
        taken = self._writing(lambda unit: takes.take(unit, contested), repeatable=True)
        return takes.claim_of(taken[0], lease, taken[1])

    def try_take(
        self, run_id: str, *, owner: str, lease: timedelta = LEASE, expected_epoch: int | None = None
    ) -> Claim | None:
        """Claim a run as `take` does. Returns None if the run cannot be taken or does not exist."""
        try:
            return self.take(run_id, owner=owner, lease=lease, expected_epoch=expected_epoch)
        except (Conflict, NotFound):
            return None

    def take_next(
        self,
        *,
        owner: str,
        lease: timedelta = LEASE,
        limit: int = 1,
        workflow_names: Sequence[str] | None = None,
        app_versions: Sequence[str] | None = None,
    ) -> tuple[Claim, ...]:
        """Claim up to ``limit`` claimable runs, of ``workflow_names`` or of all, the oldest sign of life first.

        With ``app_versions`` (at most 50) takes only runs that were begun by these versions of the application or have
        no version: `Provenance.app_version`.

        Skips runs at their restart limit, and runs that others are locking at this moment. Overdue questions are
        expired first, which offers their runs.
        """
        now = self._now()
        values: Attempt = {**checks.holding_parameters(now, owner, lease), **lists.moment(now), "expected_epoch": None}
        names = shared.some_workflows(workflow_names)
        given = {"workflow_name": names, "app_version": shared.some_versions(app_versions)}
        valid.page_limit(limit)
        self._overdue.expire(names)
        taken = self._writing(lambda unit: takes.take_next(unit, values, given, limit)) if names != [] else []
        return tuple(takes.claim_of(row, lease, left) for row, left in taken)

    def wait(
        self,
        *,
        timeout: float,
        workflow_names: Sequence[str] | None = None,
        app_versions: Sequence[str] | None = None,
        poll_interval: float | None = None,
    ) -> bool:
        """Wait for a run that `take_next` would take. Returns true if there is one, false after ``timeout`` seconds.

        Notices a run that is offered or comes due meanwhile, or whose lease runs out or question is overdue. It is
        noticed within ``poll_interval`` seconds, or within half a second while polls are slow. Without
        ``poll_interval`` it is noticed within 50 ms if this store committed the change, and otherwise within 250 ms for
        the first 15 seconds without news; then the interval grows, to a second after a minute. One thread of the store
        polls for all callers and holds no connection between two polls. The cost of a poll grows with the due runs, not
        with the held ones. Another process may be quicker: take the run to be sure. Raises `MisuseError` in a
        transaction, `StoreClosed`.
        """
        return self._work_wait(timeout, workflow_names, app_versions, poll_interval).wait()

    def heartbeat(self, claim: Claim) -> Claim:
        """Renew the lease of a claim from now on; a lease never becomes shorter.

        The returned claim says whether a cancel was requested. An expired lease is renewed too, unless somebody took
        the run. Raises `ClaimLost`, `NotFound`.
        """
        values = checks.renewal_parameters(checks.claim(claim), self._now())
        return self._change_claim(sql.HEARTBEAT, claim, values, claim.lease)

    def heartbeat_many(self, claims: Sequence[Claim]) -> dict[str, Claim | ClaimLost]:
        """Renew any number of claims in one statement. Returns by run id the renewed claim or the error."""
        held = checks.claims(claims)
        if not held:
            return {}
        values = takes.together(held, self._now())
        renewing = sql.HEARTBEAT_MANY_IN_CTE if self._backend.writes_in_ctes else sql.HEARTBEAT_MANY
        found = self._once(lambda unit: unit.rows(renewing, values), repeatable=True)
        renewed = {row.id: row for row in found}
        lost = {run_id: claim for run_id, claim in held.items() if run_id not in renewed}
        why = self._reading(lambda unit: takes.why_lost(unit, lost)) if lost else {}
        return {
            run_id: takes.claim_of(renewed[run_id], claim.lease)
            if run_id in renewed
            else why.get(run_id) or takes.missing_run_error(claim)
            for run_id, claim in held.items()
        }

    def confirm(self, claim: Claim) -> None:
        """Lock the row of a claim's run until the transaction ends, so that the claim stays valid until the commit.

        Protects writes of other domains; ``store.transaction(claim=claim)`` calls it first. Raises `ClaimLost`,
        `NotFound`.
        """
        held = checks.claim(claim)
        self._writing(lambda unit: self._confirm(unit, held))

    def transfer(self, claim: Claim, *, owner: str, lease: timedelta | None = None) -> Claim:
        """Hand the run to another owner, such as a process started for it. Returns the new claim; the given one ends.

        A later release still restores the run as it was before the first take. Raises `ClaimLost`, `NotFound`.
        """
        held = checks.claim(claim)
        length = held.lease if lease is None else lease
        values = {
            "run_id": held.run_id,
            "epoch": held.epoch,
            **checks.holding_parameters(self._now(), owner, length),
            **takes.transfer_facts(held),
        }
        row = self._chained(lambda unit: unit.chain(sql.TRANSFER, values))
        if row is None:
            raise self._lost_error(held)
        return takes.claim_of(row, length)

    def release(self, claim: Claim, *, retry_after: timedelta | None = None) -> None:
        """Give the run back as it was before the take: its owner, lease, restart count, status and place in the queue.

        A run that had no owner is offered, so that an orderly shutdown costs no restart. An owner from before the take
        stays fenced and must take the run again. With ``retry_after`` nobody may take the run before that time. Raises
        `ClaimLost`, `NotFound`.
        """
        held, now = checks.claim(claim), self._now()
        retry_at = checks.retry_at(now, retry_after)
        self._writing(lambda unit: takes.release(unit, held, now, retry_at))

    def driving(self, claim: Claim) -> AbstractContextManager[DrivenRun[W]]:
        """Return a block that drives the run: a thread renews the lease meanwhile, and the run is released at its end.

        In ``with claims.driving(claim) as driven``, engine writes through ``driven.workflows`` pass the claim by
        themselves and raise `ClaimLost` once it was lost. ``driven.lost`` turns true when the claim was lost,
        ``driven.cancel_requested`` when somebody asked to cancel. A run that the block has paused, ended or requeued is
        left as it is; any other run is released, also after a `KeyboardInterrupt` or a cancelled task. If the block
        raises another error, the lease runs out: the next take counts as a restart, so that a run which fails on every
        worker reaches its limit. Raises `ClaimLost` or `NotFound` before the block, `MisuseError` in a transaction.

        ``store.driving(claim)`` is this block with the journal and with transactions of any domain.
        """
        return self._driving_block(claim, lambda held: DrivenRun(held, self._presenting(held)))

    def _driving_in_store(
        self, claim: Claim, journal: Callable[[Callable[[Unit], object]], J], begin: Callable[..., B]
    ) -> AbstractContextManager[Driven[W, J, B]]:
        """Drive a run for ``store.driving``.

        ``journal(confirm)`` creates a journal that calls ``confirm`` at the start of each write.
        """

        def make(held: Claim) -> Driven[W, J, B]:
            return Driven(held, self._presenting(held), journal(lambda unit: self._confirm(unit, held)), begin)

        return self._driving_block(claim, make)

    def _driving_block(self, claim: Claim, make: Callable[[Claim], D]) -> AbstractContextManager[D]:
        """Drive a run as `driving` does, but yield ``make(claim)`` to the block."""
        if isinstance(self._scope, TransactionScope):
            raise MisuseError("a run is driven longer than a transaction should last: call driving() on the store")
        held = checks.claim(claim)
        reins = ClaimCallbacks(
            self.heartbeat,
            lambda renewed, retry_after: self.release(renewed, retry_after=retry_after),
            self._ended_by_holder,
        )
        return driving.driving_block(held, reins, make)

    def _confirm(self, unit: Unit, claim: Claim) -> None:
        """Lock the row of the claim's run. Raises `ClaimLost` if the claim does not hold it, `NotFound`."""
        run_rows.check(run_rows.lock(unit, claim.run_id), claim)

    def give_up(
        self, *, reason: str = "restart_limit", limit: int = 500, workflow_names: Sequence[str] | None = None
    ) -> tuple[str, ...]:
        """End runs that must not be continued, of ``workflow_names`` or of all. Returns the ids of the ended runs.

        An abandoned or offered run with a cancel request is cancelled. An abandoned run at its restart limit fails.
        Overdue questions are expired first. Each run takes one transaction. A run whose lease was renewed meanwhile is
        not ended.
        """
        moment = lists.moment(self._now())
        said = valid.content("reason", reason, _TRANSITION.detail)
        names = shared.some_workflows(workflow_names)
        valid.page_limit(limit)

        def find_spent(size: int) -> overdue.DueRuns:
            return self._reading(lambda unit: lists.spent_runs(unit, moment, names, size))

        if names == []:
            return ()
        self._overdue.expire(names)
        swept = overdue.expire_in_batches(
            find_spent, limit, lambda run_id: self._give_up({**moment, "run_id": run_id}, said)
        )
        return tuple(run_id for run_id, failed in swept if failed)

    def find(self, run_id: str) -> ClaimHolder | None:
        """Return the holder of a run, or None if nobody holds the run or it does not exist."""
        values = {"run_id": valid.lookup_text("run_id", run_id)}
        return self._find(sql.FIND, values)

    def _work_wait(
        self,
        timeout: float,
        workflow_names: Sequence[str] | None,
        app_versions: Sequence[str] | None,
        poll_interval: float | None,
    ) -> overdue.WorkWait:
        """Check the arguments of `wait`. Return the `WorkWait` for claimable runs that they describe."""
        sought = lists.Claimable(shared.frozen_workflows(workflow_names), shared.frozen_versions(app_versions))
        return overdue.WorkWait(self._scope, self._now, self._overdue, sought, timeout, poll_interval)

    def _change_claim(self, statement: Statement[RenewedRun], claim: Claim, values: Values, lease: timedelta) -> Claim:
        """Run a statement that changes the claim. Raises `ClaimLost` or `NotFound` if it does not hold the run."""
        row = self._once(lambda unit: unit.row(statement, values), repeatable=True)
        if row is None:
            raise self._lost_error(claim)
        return takes.claim_of(row, lease)

    def _lost_error(self, claim: Claim) -> StateError:
        """Return the error that says why a claim does not hold its run."""
        why = self._reading(lambda unit: takes.why_lost(unit, {claim.run_id: claim}))
        return why.get(claim.run_id) or valid.not_found("workflow_run", claim.run_id)

    def _ended_by_holder(self, claim: Claim) -> bool:
        """Return true if the holder of the claim itself has paused, ended, requeued or released the run."""
        values = {"run_id": claim.run_id, "epoch": claim.epoch}
        return self._reading(lambda unit: unit.row(sql.ENDED_BY_HOLDER, values)) is not None

    def _give_up(self, values: GivingUp, reason: str) -> bool:
        return self._writing(lambda unit: takes.give_up(unit, self._listeners, values, reason))
