"""A block that drives a run: a thread renews the lease while the block runs, and the run is released at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from lastlight_state.db.news.renewals import Held, RenewalBlock
from lastlight_state.errors import ClaimLost
from lastlight_state.unwinding import block
from lastlight_state.workflows.arguments import Claim

#: The type of the domain's repositories, `Workflows`, which this module must not import.
W = TypeVar("W")
#: The types of the journal and of a transaction's block, which the store passes in.
J = TypeVar("J")
B = TypeVar("B")
D = TypeVar("D", bound="DrivenRun[Any]")

_log = logging.getLogger("lastlight_state.workflows")


class DrivenRun(Held[Claim], Generic[W]):
    """The object that a block which drives a run gets.

    ``workflows`` has the store's repositories. Their engine writes pass ``claim`` unless another claim is given, so
    they are refused after the claim was lost. ``lost`` turns true when a renewal or the end of the block finds that
    another process has the run, or that the run was cancelled; long work can check it to stop early. It stays false if
    the block itself has paused, ended or requeued the run. Set ``retry_after`` to keep the released run from being
    taken for that time.
    """

    def __init__(self, claim: Claim, workflows: W) -> None:
        super().__init__(claim)
        self.workflows = workflows
        self.retry_after: timedelta | None = None

    def __repr__(self) -> str:
        return f"DrivenRun({self.claim!r}, {'lost' if self.lost else 'held'})"

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        return self.claim.run_id

    @property
    def cancel_requested(self) -> bool:
        """True if a cancel of the run had been requested when the lease was last renewed."""
        return self.claim.cancel_requested


class Driven(DrivenRun[W], Generic[W, J, B]):
    """The object that a block of ``store.driving`` gets: a `DrivenRun` that also writes to other domains.

    ``journal`` is the store's journal. Its writes confirm the claim first: after the claim was lost they raise
    `ClaimLost` and store nothing, whatever run they name.
    """

    def __init__(self, claim: Claim, workflows: W, journal: J, begin: Callable[..., B]) -> None:
        super().__init__(claim, workflows)
        self.journal = journal
        self._begin = begin

    def transaction(self, *, label: str | None = None) -> B:
        """Return a transaction of any domain that checks the claim: ``store.transaction(claim=driven.claim)``."""
        return self._begin(claim=self.claim, label=label)


@dataclass(frozen=True)
class ClaimCallbacks:
    """Callbacks that renew a claim, release it, and tell whether its holder has ended it."""

    heartbeat: Callable[[Claim], Claim]
    release: Callable[[Claim, timedelta | None], None]
    ended_by_holder: Callable[[Claim], bool]

    def renew(self, claim: Claim) -> Claim | None:
        """Return the renewed claim, or None if its holder has ended it. Raises `ClaimLost` if it was lost otherwise."""
        try:
            return self.heartbeat(claim)
        except ClaimLost:
            if self.ended_by_holder(claim):
                return None
            raise


@block
def driving_block(claim: Claim, reins: ClaimCallbacks, make: Callable[[Claim], D]) -> Iterator[D]:
    """Drive a run in a block, which gets the object that ``make`` returns for the renewed claim."""
    run = make(reins.heartbeat(claim))
    try:
        with RenewalBlock(run, f"run {claim.run_id}", claim.lease, reins.renew):
            yield run
    except Exception:  # the lease runs out, so that the next take counts as a restart
        raise
    except BaseException as error:
        _release_after(error, run, reins)
        raise
    _release(run, reins)


def _release(run: DrivenRun[Any], reins: ClaimCallbacks) -> None:
    try:
        reins.release(run.claim, run.retry_after)
    except ClaimLost as error:
        if not reins.ended_by_holder(run.claim):
            run.lost = True
            _log.info("run %s was lost before its block ended: %s", run.run_id, error)


def _release_after(error: BaseException, run: DrivenRun[Any], reins: ClaimCallbacks) -> None:
    """Release the run after an interruption. A failure to release becomes a note on the interruption's error."""
    try:
        _release(run, reins)
    except Exception as failure:  # noqa: BLE001 - told in a note of the error that matters
        error.add_note(f"run {run.run_id!r} could not be released: {type(failure).__name__}: {failure}")
