"""``check``: reports whether the schema fits this version, and what ``migrate`` would do. Never writes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import click

from lastlight_state.cli import exits
from lastlight_state.cli.exits import Failure
from lastlight_state.cli.opening import existing_backend, read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views.plans import data_of, lines_of
from lastlight_state.errors import BackendError, InvalidValue
from lastlight_state.migrations import Plan, check as plan_of
from lastlight_state.migrations.state import IMPORTED, UNRELEASED
from lastlight_state.migrations.verification import LOG_LOST, LOG_LOST_TOO
from lastlight_state.store import StateStore

_Examined: TypeAlias = "tuple[Plan, str, bool, str | None, list[str]]"

#: Seconds between two checks of ``--wait``.
PAUSE = 0.5

_EXITS = {
    "empty": exits.BEHIND,
    "behind": exits.BEHIND,
    "ahead": exits.AHEAD,
    "incompatible": exits.INCOMPATIBLE,
    "unversioned": exits.NO,
    "unreleased": exits.NO,
    "foreign": exits.NO,
}
_MEANING = {
    "current": "the schema is current",
    "empty": "nothing is migrated yet",
    "behind": "the schema is behind",
    "ahead": "the schema is newer than this version, which may work on it",
    "incompatible": "the schema is newer than this version, which may not work on it: upgrade lastlight-state",
    "unversioned": "there are tables named like ours, but no version of ours beside them; "
    "if they are ours, this writes it: {stamp}",
    "unreleased": UNRELEASED,
    "foreign": "the version in the version table is not a revision of lastlight-state; "
    "if the tables are ours, this corrects it: {stamp}",
}
#: States of a schema that a stamp may mend.
_STAMPED = ("unversioned", "foreign")


@command("check")
@click.option("--quick", is_flag=True, help="Look at the revision alone, do not compare the schema with it.")
@click.option("--wait", metavar="SECONDS", type=float, help="Wait this long until the schema fits; then 0 if it does.")
def run(call: Call, quick: bool, wait: float | None) -> Answer:
    """Say whether the schema fits this version, and what migrate would do: which revisions, which rows, which lock.

    Exit code 0: it fits. 3: behind, or the original program's. 4: ahead, but this version may work on it. 5: ahead and
    incompatible, or a copy into it is not finished. 1: not a schema of lastlight-state, a damaged one, a copy of an
    open file without its log, or tables of another program with the same names. 6: no database.
    """
    if wait is not None and not 0 <= wait <= 86_400:
        raise InvalidValue("--wait", "must be between 0 and 86400 seconds")
    plan, mending, lost, server, faults = _wait_for_schema(call, quick, time.monotonic() + (wait or 0))
    seems_copied = lost and plan.state.state != "current"
    failure = (
        Failure(exits.NO, "log_lost", _lost_message(plan, mending)) if seems_copied else _failure(plan, mending, lost)
    )
    if wait is not None and plan.state.state == "ahead":
        failure = None
    data = {**data_of(plan, plan.state.head), "server": server, "known_faults": faults}
    return Answer(data, lambda screen: chain(lines_of(plan, screen, server), _faults(faults, screen)), failure)


def _wait_for_schema(call: Call, quick: bool, ends: float) -> _Examined:
    """Check until the schema needs no migration. If the time is over first, return the last result."""
    while True:
        over = time.monotonic() + PAUSE > ends
        try:
            found = plan, *_ = read_once(call, lambda store: _examine_schema(store, quick), verified=False)
            if over or plan.actual or _EXITS.get(plan.state.state) != exits.BEHIND:
                return found
        except BackendError:
            if over:
                raise
        time.sleep(PAUSE)


def _examine_schema(store: StateStore, quick: bool) -> _Examined:
    """Return the plan, the command that mends the schema, if the file may lack its log, server, and known faults."""
    backend = existing_backend(store.backend)
    plan = plan_of(backend, quick=quick)
    lacking = plan.state.state in ("empty", "unversioned") or any(one.kind == "table" for one in plan.state.absent)
    stamps = plan.actual or (plan.state.state in _STAMPED and plan.adoption is None)
    mending = backend.command(*(("stamp", "--to", plan.actual or "REVISION") if stamps else ("migrate",)))
    faults = [f"{version}: {fault.sentence}" for version, fault in backend.known_faults()]
    return plan, mending, backend.lost_log(lacks_tables=lacking), backend.server(), faults


def _faults(faults: Sequence[str], screen: Screen) -> Iterator[Any]:
    """Yield the engine's known faults as lines for people."""
    if faults:
        yield ""
        yield screen.heading("known faults of this version")
        for fault in faults:
            yield from screen.indented_lines(fault)


def _lost_message(plan: Plan, mending: str) -> str:
    """Return the message for a database file that has no tables, because it is new or lacks its write-ahead log."""
    return f"{LOG_LOST}; if the file is new, run: {mending}" if plan.state.state == "empty" else LOG_LOST


def _failure(plan: Plan, mending: str, lost: bool) -> Failure | None:
    state = plan.state
    if state.unfinished_copy:
        return Failure(exits.INCOMPATIBLE, "unfinished_copy", "a copy into this database was begun and has not ended")
    if plan.actual is not None:
        said = f"the version is {state.revision}" if state.revision else "the version is lost"
        text = f"{said}, but the schema is that of revision {plan.actual}; run: {mending}"
        return Failure(exits.NO, "wrong_version", text)
    if state.state == "current" and plan.differences:
        return Failure(exits.NO, "damaged", _damage_message(plan, mending, lost))
    if state.state == "current":
        return None
    if state.state in ("empty", "behind") and plan.differences:
        text = "another program has names of ours; `--schema NAME` puts ours elsewhere on Postgres"
        return Failure(exits.NO, "collision", text)
    if plan.adoption is not None:
        return Failure(exits.BEHIND, state.state, f"a database of the original program; run: {mending}")
    text = IMPORTED if IMPORTED in plan.differences else _MEANING[state.state].format(stamp=mending)
    if _EXITS[state.state] == exits.BEHIND:
        text += f"; run: {mending}"
    return Failure(_EXITS[state.state], state.state, text)


def _damage_message(plan: Plan, mending: str, lost: bool) -> str:
    """Return the message for a schema that differs from its own revision, with the command that mends the schema."""
    text = f"the schema is not as revision {plan.state.revision} makes it"
    if plan.mending:
        text += f"; to put back what is lost, run: {mending}"
    elif plan.state.remedy:
        text += f"; {plan.state.remedy}"
    return f"{text}; {LOG_LOST_TOO}" if lost else text
