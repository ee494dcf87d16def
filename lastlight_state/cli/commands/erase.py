"""``erase``: takes one person out of conversations and chats, with a dry run and a receipt."""

from __future__ import annotations

import click

from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.views.maintenance import emptied


@command("erase")
@click.argument("person")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run(call: Call, person: str, dry_run: bool, yes: bool) -> Answer:
    """Take a PERSON, named as users, senders and recipients are, out of conversations and chats of connectors.

    Messages and executions are emptied, sessions forget whose they were, and chats and chunks are removed. Log files
    of agents are not touched: the names of their sessions are printed. There is no undo, and doing it again goes on
    where it was interrupted.
    """
    return emptied(
        call,
        lambda store: store.maintenance.erase.plan(person),
        lambda store: store.maintenance.erase.run(person),
        dry_run=dry_run,
        yes=yes,
    )
