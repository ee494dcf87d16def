"""Claims: the right to drive a run, with a lease and an epoch.

Clocks decide who may *try*: a run whose holder was silent for longer than its lease may be taken by another. The epoch
decides who *wins*: it grows whenever a claim begins or ends, and a write that presents an older one changes nothing.
So a process that was stopped, replaced and continued cannot do harm, and one that is merely late goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Generic

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.scope import TransactionScope
from lastlight_state.db.statements import Statement
from lastlight_state.errors import ClaimLost, Conflict, MisuseError, NotFound
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.claims import (
    checks as claim_checks,
    driving as claim_block,
    kinds as claim_kinds,
    lists as claim_list,
    statements as sql,
    takes as claim_renewals,
    takes as claim_takes,
)
from lastlight_state.workflows.claims.driving import DrivenRun, Reins, W
from lastlight_state.workflows.claims.records import ClaimableRun, ClaimHolder
from lastlight_state.workflows.kernel import fence, rows as run_rows, sweeps

LEASE = timedelta(seconds=30)
_NONE = timedelta(0)


class Claims(Repository, Generic[W]):
    """``store.workflows.claims``"""

    def __init__(self, context: Context, presenting: Callable[[Claim], W]) -> None:
        super().__init__(context)
        self._presenting = presenting

    def list_claimable(
        self, *, grace: timedelta = _NONE, limit: int = 50, page_token: str | None = None
    ) -> Page[ClaimableRun]:
        """A page of runs that may be taken, the oldest sign of life first.

        *Offered* runs are running and nobody's, *abandoned* ones outlived their lease (by more than ``grace``, the
        slack for clocks that differ), *due* ones are paused until a time that has come, with no question left that
        holds them. Runs at their restart limit are marked. One that was put off is not listed before its time.
        """
        moment = claim_kinds.moment(self._now(), claim_checks.duration("grace", grace))
        valid.page_limit(limit)
        return self._reading(lambda unit: claim_list.page(unit, moment, grace, limit, page_token))

    def take(self, run_id: str, *, owner: str, lease: timedelta = LEASE, expected_epoch: int | None = None) -> Claim:
        """Claim a run: one that is claimable, one in the grace after its start, or one's own while its lease runs.

        ``owner`` must be unique to the process. Taking an abandoned run counts as a restart, also one's own; a due one
        runs on. Of any number of callers one wins. Raises `LostRace` (``held_by``, ``lease_expires_at``) for a running
        run that somebody drives, that was put off, or whose epoch is not the expected one; `Conflict`
        ``restart_limit``, or ``run_status`` for every other, one that is paused until later included; `NotFound`.
        """
        now = self._now()
        values = claim_checks.holding(now, owner, lease)
        values |= {"run_id": run_id, "expected_epoch": claim_checks.epoch("expected_epoch", expected_epoch)}
        row = self._once(lambda unit: unit.row(sql.TAKE_FREE, values), repeatable=True)
        if row is None:
            contested = values | claim_kinds.moment(now)
            row = self._writing(lambda unit: claim_takes.take(unit, contested), repeatable=True)
        return claim_takes.claim_of(row, lease)

    def try_take(
        self, run_id: str, *, owner: str, lease: timedelta = LEASE, expected_epoch: int | None = None
    ) -> Claim | None:
        """As `take`; None where that raises because the run cannot be taken, or is not there."""
        try:
            return self.take(run_id, owner=owner, lease=lease, expected_epoch=expected_epoch)
        except (Conflict, NotFound):
            return None

    def take_next(self, *, owner: str, lease: timedelta = LEASE, limit: int = 1) -> tuple[Claim, ...]:
        """Claim the runs that were silent for longest, ``limit`` at most, as many as there are.

        Runs at their restart limit are passed over, and those that others are locking at this moment.
        """
        now = self._now()
        values = {**claim_checks.holding(now, owner, lease), **claim_kinds.moment(now), "expected_epoch": None}
        valid.page_limit(limit)
        taken = self._writing(lambda unit: claim_takes.take_next(unit, values, limit))
        return tuple(claim_takes.claim_of(row, lease) for row in taken)

    def heartbeat(self, claim: Claim) -> Claim:
        """Say that the holder lives: the lease runs from now again, never shorter than it did.

        The claim that comes back says whether somebody asked to cancel. A lease that was over is renewed too, if
        nobody took the run. Raises `ClaimLost`, `NotFound`.
        """
        values = claim_checks.presented(claim_checks.claim(claim), self._now())
        return self._holding(sql.HEARTBEAT, claim, values, claim.lease)

    def heartbeat_many(self, claims: Sequence[Claim]) -> dict[str, Claim | ClaimLost]:
        """`heartbeat` for any number of claims in one statement: by run id, the renewed claim, or why it is lost."""
        held = claim_checks.claims(claims)
        if not held:
            return {}
        values = claim_renewals.together(held, self._now())
        rows = {
            row["id"]: row for row in self._once(lambda unit: unit.rows(sql.HEARTBEAT_MANY, values), repeatable=True)
        }
        lost = {run_id: claim for run_id, claim in held.items() if run_id not in rows}
        why = self._reading(lambda unit: claim_renewals.why_lost(unit, lost)) if lost else {}
        return {
            run_id: claim_takes.claim_of(rows[run_id], claim.lease)
            if run_id in rows
            else why.get(run_id) or claim_renewals.missing(claim)
            for run_id, claim in held.items()
        }

    def confirm(self, claim: Claim) -> None:
        """Lock the run's row for the transaction, so that the claim cannot change hands before the commit.

        For writes of other domains; ``store.transaction(claim=claim)`` begins so. Raises `ClaimLost`, `NotFound`.
        """
        held = claim_checks.claim(claim)
        self._writing(lambda unit: fence.fence(run_rows.lock(unit, held.run_id), held))

    def transfer(self, claim: Claim, *, owner: str, lease: timedelta | None = None) -> Claim:
        """Hand the run over, such as to a process that was spawned for it: a new epoch, the claim presented is lost.

        What a release puts back is still what stood before the first take. Raises `ClaimLost`, `NotFound`.
        """
        held = claim_checks.claim(claim)
        length = held.lease if lease is None else lease
        values = {"run_id": held.run_id, "epoch": held.epoch, **claim_checks.holding(self._now(), owner, length)}
        return self._holding(sql.TRANSFER, held, values, length)

    def release(self, claim: Claim, *, retry_after: timedelta | None = None) -> None:
        """Give the run back as it was before the take, its restart count, status and place in the queue included.

        A run that nobody owned before is offered, so an orderly shutdown costs no restart. The owner before stays
        fenced. With ``retry_after`` nobody may take the run before that time. Raises `ClaimLost`, `NotFound`.
        """
        held, now = claim_checks.claim(claim), self._now()
        retry_at = claim_checks.retry_at(now, retry_after)
        self._writing(lambda unit: claim_takes.release(unit, held, now, retry_at))

    def driving(self, claim: Claim) -> AbstractContextManager[DrivenRun[W]]:
        """A block that drives the run: the lease is renewed from a thread while it runs, and given back at its end.

        ``with claims.driving(claim) as driven``: engine writes by ``driven.workflows`` present the claim by themselves,
        and are `ClaimLost` after it was lost; ``driven.lost`` tells during the block, ``driven.cancel_requested`` that
        somebody asked to cancel. A run that the block has paused, ended or requeued is left as it is; any other is
        released, also by a `KeyboardInterrupt` or a cancelled task. A block that raises leaves the claim to run out:
        taking the run again counts as a restart, so one that fails on every worker meets its limit. Raises `ClaimLost`
        or `NotFound` before the block. Not in a transaction (`MisuseError`).
        """
        if isinstance(self._scope, TransactionScope):
            raise MisuseError("a run is driven longer than a transaction should last: call driving() on the store")
        held = claim_checks.claim(claim)
        reins = Reins(
            self.heartbeat,
            lambda renewed, retry_after: self.release(renewed, retry_after=retry_after),
            self._ended_by_holder,
        )
        return claim_block.driving(held, self._presenting(held), reins)

    def give_up(self, *, reason: str = "restart_limit", limit: int = 500) -> tuple[str, ...]:
        """Fail the abandoned runs at their restart limit; the ids of those that failed.

        One transaction for each; a run that was renewed meanwhile is left alone.
        """
        moment = claim_kinds.moment(self._now())
        said = valid.content("reason", reason, words.SUMMARY)
        valid.page_limit(limit)
        found = self._reading(lambda unit: claim_list.spent(unit, moment, limit))
        swept = sweeps.over(found, lambda run_id: self._give_up({**moment, "run_id": run_id}, said))
        return tuple(run_id for run_id, failed in swept if failed)

    def find(self, run_id: str) -> ClaimHolder | None:
        """Who holds the run; None if nobody does, or there is no such run."""
        values = {"run_id": valid.sought("run_id", run_id)}
        return self._reading(lambda unit: unit.find(ClaimHolder, sql.FIND, values))

    def _holding(self, statement: Statement, claim: Claim, values: dict[str, Any], lease: timedelta) -> Claim:
        """What the statement makes of the claim, if it holds the run."""
        row = self._once(lambda unit: unit.row(statement, values), repeatable=statement is sql.HEARTBEAT)
        if row is None:
            why = self._reading(lambda unit: claim_renewals.why_lost(unit, {claim.run_id: claim}))
            raise why.get(claim.run_id) or valid.not_found("workflow_run", claim.run_id)
        return claim_takes.claim_of(row, lease)

    def _ended_by_holder(self, claim: Claim) -> bool:
        """Whether the holder itself has paused, ended, requeued or released the run."""
        values = {"run_id": claim.run_id, "epoch": claim.epoch}
        return self._reading(lambda unit: unit.row(sql.ENDED_BY_HOLDER, values)) is not None

    def _give_up(self, values: dict[str, Any], reason: str) -> bool:
        return self._writing(lambda unit: claim_takes.give_up(unit, self._listeners, values, reason))
