"""``reencrypt``: encrypts stored contents anew with the codec's current key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

import click

from lastlight_state.cli.exits import NO, STOPPED, Failure
from lastlight_state.cli.opening import backend_for_call, existing_backend, settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.db.schema.sealing import Sealing
from lastlight_state.errors import InvalidValue
from lastlight_state.migrations.verification import verify
from lastlight_state.reprs import repr_of
from lastlight_state.store import StateStore


@command("reencrypt")
@click.option("--codec", "path", metavar="MODULE:NAME", required=True, help="Where the codec is, as Python imports it.")
@click.option("--dry-run", is_flag=True, help="Only count the rows that are not under the present key.")
@click.option("--batch-rows", metavar="N", type=int, default=50, help="Rows of one transaction; 50 unless given.")
@click.option("--time-limit", metavar="SECONDS", type=float, help="Stop after this time; exit code 7, and do it again.")
def run(call: Call, path: str, dry_run: bool, batch_rows: int, time_limit: float | None) -> Answer:
    """Encrypt contents of messages, states and checkpoints anew with the codec's current key.

    Use it to switch a codec on for a filled database, or to replace a key. Repeating the command does what is left.
    Values that the codec cannot decrypt stay as they are, and give exit code 1.
    """
    sealing = codec_of(path)
    settings = settings_of(call, read_only=True) if dry_run else settings_of(call)
    with closing(backend_for_call(call, settings)) as backend:
        backend.sealing = sealing
        verify(existing_backend(backend))
        with StateStore(backend, settings) as store:
            if dry_run:
                counts = dict(store.maintenance.reencrypt.plan(batch_rows=batch_rows))
                data: dict[str, Any] = {"counts": counts, "complete": True, "unopened": {}, "damaged": []}
            else:
                data = store.maintenance.reencrypt.run(batch_rows=batch_rows, time_limit=time_limit).model_dump()
    return Answer({"dry_run": dry_run, **data}, lambda _: _lines(data), _failure(data))


def _lines(data: dict[str, Any]) -> Iterator[str]:
    yield from (f"{table} {rows}" for table, rows in data["counts"].items())
    for key_id, values in data["unopened"].items():
        yield f"{values} {'values under the key ' + repr_of(key_id) if key_id else 'plain values'}: not opened"
    yield from (row["problem"] for row in data["damaged"])
    if not data["counts"] and data["complete"]:
        yield "everything is under the present key"


def _failure(data: dict[str, Any]) -> Failure | None:
    if data["damaged"]:
        count = max(sum(data["unopened"].values()), len(data["damaged"]))
        return Failure(NO, "unopened", f"{count} values could not be opened, and stay as they are")
    if not data["complete"]:
        return Failure(STOPPED, "time_limit", "stopped by the time limit: the same command does the rest")
    return None


def codec_of(path: str) -> Sealing:
    """Import the codec that ``MODULE:NAME`` names.

    Raises `InvalidValue` without the module's error text: it may hold a key.
    """
    module, _, name = path.partition(":")
    try:
        codec = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidValue("--codec", f"cannot be imported: {error}") from error
    except Exception as error:  # the module's error text may contain a key
        raise InvalidValue("--codec", f"cannot be imported: {type(error).__name__}") from error
    return Sealing(codec)
