"""A block that drives a run: its lease is renewed while the block runs, and the claim is given back at its end."""

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

#: The repositories of the domain, whose face stands above this room.
W = TypeVar("W")
#: The journal, and the block of a transaction, which the store gives.
J = TypeVar("J")
B = TypeVar("B")
D = TypeVar("D", bound="DrivenRun[Any]")

_log = logging.getLogger("lastlight_state.workflows")


class DrivenRun(Held[Claim], Generic[W]):
    """The object of a block that drives a run.

    ``workflows`` has the store's repositories. Their engine writes present ``claim`` unless they are given another, so
    none of them is accepted after the claim was lost. ``lost`` turns true when a renewal or the end of the block finds
    that another has the run, or that it was cancelled, so that long work can stop early; it stays false where the
    block itself has paused, ended or requeued the run. With ``retry_after`` set, the run that is given back may not
    be taken before that time is over.
    """

    def __init__(self, claim: Claim, workflows: W) -> None:
        super().__init__(claim)
        self.workflows = workflows
        self.retry_after: timedelta | None = None

    def __repr__(self) -> str:
        return f"DrivenRun({self.claim!r}, {'lost' if self.lost else 'held'})"

    @property
    def run_id(self) -> str:
        """Return the run."""
        return self.claim.run_id

    @property
    def cancel_requested(self) -> bool:
        """Return whether somebody had asked to cancel the run when the lease was last renewed."""
        return self.claim.cancel_requested


class Driven(DrivenRun[W], Generic[W, J, B]):
    """The object of a block of the store that drives a run: a `DrivenRun` that also writes to other domains.

    ``journal`` is the store's journal, whose writes confirm the claim first: once it was lost they are `ClaimLost` and
    store nothing, whatever run they name.
    """

    def __init__(self, claim: Claim, workflows: W, journal: J, begin: Callable[..., B]) -> None:
        super().__init__(claim, workflows)
        self.journal = journal
        self._begin = begin

    def transaction(self, *, label: str | None = None) -> B:
        """Return a transaction of any domain that presents the claim: ``store.transaction(claim=driven.claim)``."""
        return self._begin(claim=self.claim, label=label)


@dataclass(frozen=True)
class ClaimCallbacks:
    """How a claim is renewed and given back, and how to find out that its holder has ended it."""

    heartbeat: Callable[[Claim], Claim]
    release: Callable[[Claim, timedelta | None], None]
    ended_by_holder: Callable[[Claim], bool]

    def renew(self, claim: Claim) -> Claim | None:
        """Return the renewed claim; None where its holder has ended it. Raises `ClaimLost`."""
        try:
            return self.heartbeat(claim)
        except ClaimLost:
            if self.ended_by_holder(claim):
                return None
            raise


@block
def driving(claim: Claim, reins: ClaimCallbacks, make: Callable[[Claim], D]) -> Iterator[D]:
    """Drive a run in a block, which gets what ``make`` makes of the renewed claim."""
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
    """Give the run back after an interruption. Whatever comes of that, the interruption is the one to be seen."""
    try:
        _release(run, reins)
    except Exception as failure:  # noqa: BLE001 - told in a note of the error that matters
        error.add_note(f"run {run.run_id!r} could not be released: {type(failure).__name__}: {failure}")
