"""DOC-01 and DOC-02: whether the database can be reached, and whether its schema is what its revision makes."""

from __future__ import annotations

from collections.abc import Iterator

from lastlight_state.maintenance.doctor.check import Check, Look, found
from lastlight_state.maintenance.doctor.records import Finding
from lastlight_state.migrations import check as plan_of, read_state
from lastlight_state.migrations.state import UNRELEASED
from lastlight_state.migrations.verification import LOG_LOST, remedy

REACH, SCHEMA = "DOC-01", "DOC-02"

_BACKUP = "lastlight-state backup DIR"
_MEANING = {
    "empty": "nothing is migrated yet",
    "behind": "the schema is behind",
    "ahead": "the schema is newer than this version, which may work on it",
    "incompatible": "the schema is newer than this version, which may not work on it: upgrade lastlight-state",
    "unversioned": "there are tables named like ours, but no version of ours beside them",
    "unreleased": UNRELEASED,
    "foreign": "the version in the version table is not a revision of lastlight-state",
}


def _reach(look: Look) -> Iterator[Finding]:
    """Raises what stands in the way; the caller makes a finding of it."""
    if not look.backend.exists:
        message = "there is no database: `lastlight-state migrate` makes one"
        yield found(REACH, "error", look.backend.location, message, [look.backend.location], "lastlight-state migrate")
    elif look.backend.lost_log(lacks_tables=False):
        yield found(REACH, "error", look.backend.location, LOG_LOST, [look.backend.location], _BACKUP)
    else:
        read_state(look.backend)


def _schema(look: Look) -> Iterator[Finding]:
    plan = plan_of(look.backend)
    state = plan.state.state
    lost = look.backend.lost_log(lacks_tables=state in ("empty", "unversioned") or bool(plan.differences))
    if lost:
        yield found(SCHEMA, "error", "database", LOG_LOST, [look.backend.location], _BACKUP)
    if state != "current":
        mending = remedy(look.backend, *(("stamp", "--to", plan.actual) if plan.actual else ()))
        severity = "warning" if state == "ahead" else "error"
        helps = mending if not lost and (plan.actual or state in ("empty", "behind")) else None
        yield found(SCHEMA, severity, "schema", _MEANING[state], [plan.state.revision or "-"], helps)
    if plan.differences:
        message = "the schema is not as its revision makes it"
        yield found(SCHEMA, "error", "schema", message, map(str, plan.differences), "lastlight-state check")


CHECKS = (Check(REACH, files=_reach), Check(SCHEMA, files=_schema))
