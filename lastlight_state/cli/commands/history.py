"""``history``: lists the revisions that this version of the library knows. Reads no database."""

from __future__ import annotations

from lastlight_state import migrations
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column

COLUMNS: tuple[Column[migrations.Revision], ...] = (
    Column("REVISION", lambda revision: revision.revision, keep=True),
    Column("AFTER", lambda revision: revision.down_revision, keep=True),
    Column("WHAT", lambda revision: revision.summary, below=True),
)


@command("history")
def run(_: Call) -> Answer:
    """List the revisions that this version knows, oldest first. No database is read."""
    revisions = migrations.history()
    shown = [
        {"revision": known.revision, "after": known.down_revision, "summary": known.summary} for known in revisions
    ]
    return Answer({"revisions": shown}, lambda screen: screen.table(COLUMNS, revisions))
