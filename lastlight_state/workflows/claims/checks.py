"""Check the arguments of `claims` before any statement; define the records of `claims`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, Self, TypedDict

from lastlight_state.clock import to_millis
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Record
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows.arguments import Claim, Provenance
from lastlight_state.workflows.tables import RUNS

# The records of `claims`, besides `Claim` itself.

_PROVENANCE = tuple(Provenance.__dataclass_fields__)


class ClaimableRun(Record):
    """A run that may be taken. ``seen_at`` is its last sign of life, ``last_owner`` its last holder, if it had any.

    Taking an abandoned run uses one of ``restarts_left``. A run that has none left is ``at_limit``: only
    `Claims.give_up` or a higher limit helps. With ``cancel_requested`` a take uses no restart: whoever takes the run
    cancels it.
    """

    run_id: str
    workflow_name: str
    kind: Literal["offered", "abandoned", "due"]
    epoch: int
    last_owner: str | None
    heartbeat_at: datetime | None
    seen_at: datetime
    restart_count: int
    restarts_left: int
    at_limit: bool
    cancel_requested: bool
    provenance: Provenance

    _computed: ClassVar[frozenset[str]] = frozenset(
        "run_id epoch last_owner restarts_left at_limit cancel_requested provenance".split()
    )
    _consumed: ClassVar[frozenset[str]] = frozenset(
        ("id", "claim_epoch", "claim_owner", "previous_owner", "max_restarts", "cancel_requested_at", *_PROVENANCE)
    )

    @classmethod
    def of(cls, values: Any) -> Self:
        left = max(values["max_restarts"] - values["restart_count"], 0)
        asked = values["cancel_requested_at"] is not None
        return super().of(
            {
                "run_id": values["id"],
                "workflow_name": values["workflow_name"],
                "kind": values["kind"],
                "epoch": values["claim_epoch"],
                "last_owner": values["claim_owner"] or values["previous_owner"],
                "heartbeat_at": values["heartbeat_at"],
                "seen_at": values["seen_at"],
                "restart_count": values["restart_count"],
                "restarts_left": left,
                "at_limit": values["kind"] == "abandoned" and not left and not asked,
                "cancel_requested": asked,
                "provenance": Provenance(**{name: values[name] for name in _PROVENANCE}),
            }
        )


class ClaimHolder(Record):
    """The holder of a run, the start of its claim, and the end of its lease. For display, not for writing."""

    run_id: str
    owner: str
    epoch: int
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None


_LIMITS = limits_of(RUNS)

#: The longest lease, grace or delay.
LONGEST = timedelta(days=366)
#: The greatest epoch that a database can hold.
_LAST_EPOCH = 2**63 - 1
_SHORTEST_LEASE = timedelta(milliseconds=1)


class Holding(TypedDict):
    """The parameters of a claim that begins now."""

    at: datetime
    claim_owner: str
    lease_expires_at: datetime


class Renewal(TypedDict):
    """When a renewed lease ends, and until when its ``due_at`` may lie without being moved."""

    lease_expires_at: datetime
    move_due_before: datetime


class Presented(Renewal):
    """The parameters of a claim to renew from now on."""

    run_id: str
    epoch: int
    at: datetime


def holding_parameters(now: datetime, owner: str, lease: timedelta) -> Holding:
    """Return the parameters of a claim by ``owner`` that begins at ``now``."""
    return {
        "at": now,
        "claim_owner": valid.identifier("owner", owner, _LIMITS.claim_owner),
        "lease_expires_at": lease_end(now, lease),
    }


def lease_end(now: datetime, lease: timedelta) -> datetime:
    """Return the end of a lease that begins now, rounded to milliseconds."""
    return to_millis(now + valid.duration("lease", lease, least=_SHORTEST_LEASE, most=LONGEST))


def retry_at(now: datetime, retry_after: timedelta | None) -> datetime | None:
    """Return the time from which a released run may be taken again, None without a delay."""
    return None if retry_after is None else to_millis(now + valid.duration("retry_after", retry_after, most=LONGEST))


def epoch(where: str, value: int | None) -> int | None:
    """Return a checked epoch, or None if none is given."""
    return None if value is None else valid.number(where, value)


def claim(value: Any) -> Claim:
    """Return the value as a `Claim`. Raises `InvalidValue` for an owner that a transition cannot store as its actor."""
    found = valid.argument_group("claim", value, Claim)
    valid.identifier("claim.owner", found.owner, _LIMITS.claim_owner)
    return found


def claims(values: Sequence[Claim]) -> dict[str, Claim]:
    """Return the claims by run id. If several claims name one run, only the claim with the highest epoch is kept.

    A claim whose epoch is too large for the database gets the largest epoch instead, which no run has. So only that
    claim is reported as lost, and the others are renewed. If the list holds another claim on the same run, the other
    claim is kept.
    """
    given = [valid.argument_group("claim", value, Claim) for value in valid.several("claims", values)]
    unsound: list[Claim] = []
    sound: list[Claim] = []
    for each in given:
        if type(each.epoch) is not int:  # the claim was made without validation
            raise InvalidValue("claim.epoch", f"expected a whole number, got {type(each.epoch).__name__}")
        if 0 <= each.epoch <= _LAST_EPOCH:
            sound.append(each)
        else:
            unsound.append(each.model_copy(update={"epoch": _LAST_EPOCH}))
    sound.sort(key=lambda each: each.epoch)
    return {each.run_id: each for each in (*unsound, *sound)}


def renewal_parameters(held: Claim, now: datetime) -> Presented:
    """Return the parameters of the statement that renews a claim from now on."""
    return {
        "run_id": held.run_id,
        "epoch": held.epoch,
        "at": now,
        **renewal(now, held.lease),
    }


def renewal(now: datetime, lease: timedelta) -> Renewal:
    """Return the new end of a lease renewed now, and the time before which its ``due_at`` must be moved.

    That time is a third of the lease from now, when the holder renews the lease next. If ``due_at`` is later, it need
    not be moved.
    """
    return {"lease_expires_at": lease_end(now, lease), "move_due_before": to_millis(now + lease / 3)}
