"""``redact``: empties messages of conversations, with a dry run and a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.views.maintenance import redact_or_erase
from lastlight_state.maintenance import RedactPolicy


@command("redact")
@click.option("--older-than", metavar="DAYS", type=click.IntRange(0, 36_500), help="Messages created before that.")
@click.option("--session", metavar="ID", help="Messages of this session.")
@click.option("--message", "messages", metavar="ID", multiple=True, help="This message; several times.")
@click.option("--role", "roles", metavar="ROLE", multiple=True, help="Only messages of this role; several times.")
@click.option("--dry-run", is_flag=True, help="Only say what would be emptied.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run(
    call: Call,
    older_than: int | None,
    session: str | None,
    messages: Sequence[str],
    roles: Sequence[str],
    dry_run: bool,
    yes: bool,
) -> Answer:
    """Empty messages of conversations: contents, embeddings and extra are removed, rows and their order stay.

    Several flags narrow the selection. One of --older-than, --session and --message is required. Messages in sessions
    that run or are held stay unchanged. This cannot be undone.
    """
    age = None if older_than is None else timedelta(days=older_than)
    policy = RedactPolicy(age, roles or None, session, messages or None)
    return redact_or_erase(
        call,
        lambda store: store.maintenance.redact.plan(policy),
        lambda store: store.maintenance.redact.run(policy),
        dry_run=dry_run,
        yes=yes,
    )
