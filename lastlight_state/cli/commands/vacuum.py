"""``vacuum``: frees the space of deleted rows."""

from __future__ import annotations

import click

from lastlight_state.cli import arguments
from lastlight_state.cli.opening import writable_store
from lastlight_state.cli.output import Answer, Call, command


@command("vacuum")
@click.option("--no-analyze", is_flag=True, help="Do not renew the planner's statistics (Postgres).")
@click.option("--full", is_flag=True, help="Rewrite the tables, each locked meanwhile (Postgres).")
@click.option("--yes", "-y", is_flag=True, help="With --full: do not ask.")
def run(call: Call, no_analyze: bool, full: bool, yes: bool) -> Answer:
    """Free the space of deleted rows. SQLite rebuilds its file, and needs twice its size in free space."""
    if full:
        arguments.ask("Rewrite the tables, with each of them locked meanwhile?", yes=yes)
    with writable_store(call) as store:
        done = store.maintenance.vacuum.run(analyze=not no_analyze, full=full)
    return Answer(done.model_dump(), lambda _: [f"{done.bytes_before} bytes before, {done.bytes_after} after"])
