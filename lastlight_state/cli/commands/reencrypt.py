"""``reencrypt``: seals what is stored with the present key of a codec."""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from typing import Any

import click

from lastlight_state.cli.exits import STOPPED, Failure
from lastlight_state.cli.opening import connected, existing, settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.db.schema.sealing import Sealing
from lastlight_state.errors import InvalidValue
from lastlight_state.migrations.verification import verify
from lastlight_state.store import StateStore


@command("reencrypt")
@click.option("--codec", "path", metavar="MODULE:NAME", required=True, help="Where the codec is, as Python imports it.")
@click.option("--dry-run", is_flag=True, help="Only count the rows that are not under the present key.")
@click.option("--batch-rows", metavar="N", type=int, default=50, help="Rows of one transaction; 50 unless given.")
@click.option("--time-limit", metavar="SECONDS", type=float, help="Stop after this time; exit code 7, and do it again.")
def run(call: Call, path: str, dry_run: bool, batch_rows: int, time_limit: float | None) -> Answer:
    """Seal contents of messages, states and checkpoints with the key that the codec uses now.

    So a codec is switched on for a database that is full, and a key is replaced. The same command again does the rest.
    """
    sealing = Sealing(_codec(path))
    settings = settings_of(call, read_only=True) if dry_run else settings_of(call)
    with closing(connected(call, settings)) as backend:
        backend.sealing = sealing
        verify(existing(backend))
        with StateStore(backend, settings) as store:
            if dry_run:
                counts, complete = dict(store.maintenance.reencrypt.plan(batch_rows=batch_rows)), True
            else:
                done = store.maintenance.reencrypt.run(batch_rows=batch_rows, time_limit=time_limit)
                counts, complete = dict(done.counts), done.complete
    data = {"dry_run": dry_run, "counts": counts, "complete": complete}
    lines = [f"{table} {rows}" for table, rows in counts.items()] or ["everything is under the present key"]
    stopped = Failure(STOPPED, "time_limit", "stopped by the time limit: the same command does the rest", {})
    return Answer(data, lambda _: lines, None if complete else stopped)


def _codec(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidValue("--codec", f"cannot be imported: {error}") from error
    except Exception as error:  # what the module does to find its keys; the text may show one
        raise InvalidValue("--codec", f"cannot be imported: {type(error).__name__}") from error
