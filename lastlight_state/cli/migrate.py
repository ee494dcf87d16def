"""``migrate``: bring the schema to a revision, in one transaction that holds a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any

import typer

from lastlight_state import migrations
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call
from lastlight_state.cli.opening import connected, settings_of
from lastlight_state.errors import InvalidValue
from lastlight_state.migrations import MigrationResult
from lastlight_state.migrations.runner import LOCK_SECONDS


def run(
    ctx: typer.Context,
    to: Annotated[str, typer.Option("--to", metavar="REVISION", help="Stop at this revision.")] = "head",
    lock_timeout: Annotated[
        float, typer.Option("--lock-timeout", metavar="SECONDS", help="Wait this long for another migration.")
    ] = LOCK_SECONDS,
) -> Answer:
    """Bring the schema to the newest revision, or to one before it.

    It is one transaction: it applies or it does not. Any number of processes may start it at once; one migrates, the
    others find it done. There is no way down.
    """
    call: Call = ctx.obj
    if not 0 <= lock_timeout <= 86_400:
        raise InvalidValue("--lock-timeout", "not between 0 and 86400 seconds")
    with closing(connected(call, settings_of(call))) as backend:
        call.output.note(f"migrating {backend.location}")
        result = migrations.migrate(backend, to, lock_timeout)
    data = {
        "state": result.state,
        "from": result.from_revision,
        "to": result.to_revision,
        "revisions": result.revisions,
    }
    return Answer(data, lambda _: _lines(result))


def _lines(result: MigrationResult) -> Iterator[Any]:
    if result.revisions:
        yield f"applied {', '.join(result.revisions)}"
    else:
        yield "nothing to do"
    yield f"{result.to_revision}  {result.state}"
