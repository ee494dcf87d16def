"""``restore``: creates a database from a backup, with its line files and mailboxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lastlight_state.backends import urls
from lastlight_state.cli import arguments
from lastlight_state.cli.commands.backup import lines
from lastlight_state.cli.opening import other_url, read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import Manifest
from lastlight_state.store import StateStore


@command("restore")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", "target", metavar="URL", help="A file that is not there yet, or an empty schema of Postgres.")
@click.option("--to-file", "target_file", metavar="FILE", type=click.Path(path_type=Path), help="A file with that URL.")
@click.option("--to-schema", "target_schema", metavar="NAME", help="Its schema, on Postgres.")
@click.option(
    "--to-state-dir",
    "target_state_dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where line files and mailboxes go; by default beside the file, and for Postgres nowhere.",
)
@click.option("--no-logs", is_flag=True, help="Leave line files and mailboxes in the backup.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run(
    call: Call,
    folder: Path,
    *,
    target: str | None,
    target_file: Path | None,
    target_schema: str | None,
    target_state_dir: Path | None,
    no_logs: bool,
    yes: bool,
) -> Answer:
    """Create the database of a backup anew, with its line files and mailboxes, after verifying all of its files.

    Nothing that exists is replaced. If any target exists already, nothing is restored.
    """
    if no_logs and target_state_dir is not None:
        raise InvalidValue("--to-state-dir", "must not be given with --no-logs")
    given: dict[str, Any] = {"schema": target_schema, "state_dir": target_state_dir, "with_logs": not no_logs}
    url = other_url(call, target, target_file)
    arguments.ask(f"Restore {folder}?", yes=yes)

    def restore_backup(store: StateStore) -> Manifest:
        call.location = urls.redact_url(url)  # the only database in use
        return store.maintenance.backup.restore(folder, url, **given)

    manifest = read_once(call, restore_backup, verified=False)
    return Answer({"manifest": manifest}, lambda screen: lines(manifest, screen))
