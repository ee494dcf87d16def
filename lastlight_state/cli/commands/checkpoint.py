"""``checkpoint``: moves the write-ahead log of a SQLite file into the file."""

from __future__ import annotations

from typing import Any

import click

from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import writable_store
from lastlight_state.cli.output import Answer, Call, command


@command("checkpoint")
@click.option("--mode", metavar="MODE", default="TRUNCATE", help="TRUNCATE, RESTART, FULL or PASSIVE.")
def run(call: Call, mode: Any) -> Answer:
    """Move the write-ahead log of a SQLite file into the file, and free its space.

    If a reader is in the way, the exit code is 1, except with PASSIVE. Postgres maintains its log itself: exit code 0.
    """
    with writable_store(call) as store:
        done = store.maintenance.checkpoint.run(mode)
    failure = Failure(NO, "busy", "a reader was in the way") if done.busy and mode != "PASSIVE" else None
    said = f"busy={int(done.busy)} log={done.log_pages} checkpointed={done.checkpointed_pages}"
    sizes = f"wal: {done.wal_bytes_before} bytes before, {done.wal_bytes_after} after"
    lines = [said, sizes] if done.applicable else ["nothing to do: this database has no log of that kind"]
    return Answer(done.model_dump(), lambda _: lines, failure)
