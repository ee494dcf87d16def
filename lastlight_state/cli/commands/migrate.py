"""``migrate``: migrates the schema to a revision, in one transaction that holds a lock. A dry run shows the plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from lastlight_state import migrations
from lastlight_state.cli.opening import backend_for_call, read_once, settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views.plans import data_of, lines_of
from lastlight_state.errors import InvalidValue
from lastlight_state.migrations import MigrationResult, Plan, collisions
from lastlight_state.migrations.runner import LOCK_SECONDS, target_of
from lastlight_state.migrations.verification import refuse, refuse_damaged, refuse_foreign, refuse_wrong
from lastlight_state.store import StateStore


@command("migrate")
@click.option("--to", metavar="REVISION", default="head", help="Stop at this revision.")
@click.option("--sql", is_flag=True, help="Print the statements instead of executing them.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--lock-timeout", metavar="SECONDS", default=LOCK_SECONDS, help="Wait this long for another migration.")
def run(call: Call, to: str, sql: bool, dry_run: bool, lock_timeout: float) -> Answer:
    """Bring the schema to the newest revision, or to one before it.

    Lost parts of a current schema are restored: indexes, guards, functions, and on Postgres keys and references.

    It is one transaction: it applies or it does not. Any number of processes may start it at once: one migrates, the
    others find it done. There is no way down. A database of the original program is converted first.
    """
    if not 0 <= lock_timeout <= 86_400:
        raise InvalidValue("--lock-timeout", "must be between 0 and 86400 seconds")
    if sql:
        return read_once(call, lambda store: _script(store, to, lock_timeout), verified=False)
    if dry_run:
        return read_once(call, lambda store: _plan(store, to), verified=False)
    with closing(backend_for_call(call, settings_of(call))) as backend:
        call.output.note(f"migrating {backend.location}")
        result = migrations.migrate(backend, to, lock_timeout)
    return Answer(_data(result), lambda _: _lines(result))


def _data(result: MigrationResult) -> dict[str, Any]:
    return {
        "state": result.state,
        "from": result.from_revision,
        "to": result.to_revision,
        "revisions": result.revisions,
        "adopted": result.adopted,
        "mended": result.mended,
    }


def _lines(result: MigrationResult) -> Iterator[Any]:
    if result.adopted:
        yield "took over a database of the original program as 0001"
    if result.revisions:
        yield f"applied {', '.join(result.revisions)}"
    for thing in result.mended:
        yield f"put back {thing}"
    if not (result.revisions or result.adopted or result.mended):
        yield "nothing to do"
    yield f"{result.to_revision}  {result.state}"


def _plan(store: StateStore, to: str) -> Answer:
    plan = migrations.check(store.backend, to)
    refuse(store.backend, plan.state)
    if not plan.mending:
        refuse_damaged(store.backend, plan.state)
    if plan.state.state == "unversioned":
        refuse_foreign(store.backend)
    if plan.actual is not None:
        refuse_wrong(store.backend, plan.state)
    elif plan.differences and plan.state.state != "current":
        raise collisions.refusal(plan.differences)
    return Answer(data_of(plan, target_of(to)), lambda screen: _plan_lines(plan, screen))


def _plan_lines(plan: Plan, screen: Screen) -> Iterator[Any]:
    yield from lines_of(plan, screen)
    if not plan.revisions and plan.adoption is None and not plan.mending:
        yield "nothing to do"


def _script(store: StateStore, to: str, lock_timeout: float) -> Answer:
    state = migrations.read_state(store.backend)
    written = migrations.script(store.backend, to, lock_timeout)
    data = {"state": state.state, "from": state.revision, "to": target_of(to), "sql": written or ""}
    return Answer(data, lambda _: (written or "-- nothing to do").splitlines())
