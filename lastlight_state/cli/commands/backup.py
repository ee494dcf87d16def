"""``backup``: writes a snapshot of everything into a folder, or verifies such a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import existing_backend, read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import BackedFile, Manifest
from lastlight_state.maintenance.backup.restoring import LINES
from lastlight_state.store import StateStore

FILES: tuple[Column[BackedFile], ...] = (
    Column("FILE", lambda file: file.path, keep=True),
    Column("BYTES", lambda file: file.size_bytes, right=True),
    Column("SHA-256", lambda file: file.sha256[:16], rank=1),
)


@command("backup")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Compare the files of a backup with its manifest; needs no database.")
@click.option("--no-logs", is_flag=True, help="Only the database: no line files, no mailboxes.")
def run(call: Call, folder: Path, verify: bool, no_logs: bool) -> Answer:
    """Write a snapshot of everything into a new folder, while services run: the database, line files, mailboxes.

    The copy is verified before the folder gets its name. A damaged mailbox is left out and named, with exit code 1. A
    database that is behind can be backed up: do so before `migrate`.
    """
    if verify and no_logs:
        raise InvalidValue("--no-logs", "must not be given with --verify")

    def work(store: StateStore) -> Manifest:
        if verify:
            return store.maintenance.backup.verify(folder)
        existing_backend(store.backend)
        return store.maintenance.backup.create(folder, with_logs=not no_logs)

    manifest = read_once(call, work, verified=False)
    left, failure = len(manifest.left_out), None
    if left:
        text = f"{left} damaged or unreadable files are no part of the backup"
        failure = Failure(NO, "incomplete", text, {"left_out": dict(manifest.left_out)})
    return Answer({"manifest": manifest}, lambda screen: lines(manifest, screen), failure)


def lines(manifest: Manifest, screen: Screen) -> Iterator[object]:
    """Return the backup's manifest as lines for people."""
    revision = manifest.revision or "no version"
    told = f"{manifest.source} at {revision}, {screen.format_value(manifest.created_at)}: {manifest.size_bytes} bytes"
    yield from screen.wrapped_lines(told)
    yield from screen.table(FILES, manifest.files)
    for path, reason in manifest.left_out.items():
        kind = "" if path.startswith(LINES) else "mailbox "
        yield f"left out: {kind}{path}: {reason}"
