"""``erase``: removes one person from conversations and chats, with a dry run and a receipt."""

from __future__ import annotations

import click

from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.views.maintenance import redact_or_erase


@command("erase")
@click.argument("person")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run(call: Call, person: str, dry_run: bool, yes: bool) -> Answer:
    """Remove a PERSON from conversations and chats of connectors. PERSON is the name of a user, sender or recipient.

    Messages and executions are emptied, sessions lose their user, and chats and chunks are deleted. Log files of agents
    are not changed: the names of their sessions are printed. This cannot be undone. An interrupted erasure continues
    when you repeat it.
    """
    return redact_or_erase(
        call,
        lambda store: store.maintenance.erase.plan(person),
        lambda store: store.maintenance.erase.run(person),
        dry_run=dry_run,
        yes=yes,
    )
