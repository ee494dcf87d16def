"""``restore``: a database from a backup."""

from __future__ import annotations

from pathlib import Path

import click

from lastlight_state.cli import consent
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.commands.backup import lines
from lastlight_state.cli.opening import look, other_url


@command("restore")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", "target", metavar="URL", help="A file that is not there yet, or an empty schema of Postgres.")
@click.option("--to-file", "target_file", metavar="FILE", type=click.Path(path_type=Path), help="A file with that URL.")
@click.option("--to-schema", "target_schema", metavar="NAME", help="Its schema, on Postgres.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run(
    call: Call, folder: Path, target: str | None, target_file: Path | None, target_schema: str | None, yes: bool
) -> Answer:
    """Make the database of a backup anew, after every file of the backup was verified.

    Nothing that exists is replaced. Logs stay in the backup's folder `logs`, to be copied to where they are wanted.
    """
    url = other_url(call, target, target_file)
    consent.ask(f"Restore {folder}?", yes=yes)
    manifest = look(
        call, lambda store: store.maintenance.backup.restore(folder, url, schema=target_schema), verified=False
    )
    return Answer({"manifest": manifest}, lambda screen: lines(manifest, screen))
