"""``export``: one run, or one session of a conversation, as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.opening import look
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import Bundle
from lastlight_state.maintenance.bundles.records import KINDS

PARTS = (
    Column("PART", lambda part: part.name),
    Column("ROWS", lambda part: "" if part.rows is None else part.rows, right=True),
    Column("BYTES", lambda part: part.size_bytes, right=True),
)


@command("export")
@click.argument("kind")
@click.argument("key", metavar="ID")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="The new file.")
@click.option("--no-logs", is_flag=True, help="Only rows: no log files.")
def run(call: Call, kind: Any, key: str, out: Path | None, no_logs: bool) -> Answer:
    """Write one `run`, or one `session` of a conversation, with everything that belongs to it into a new file.

    The file is a bundle: `import` loads it into this database or another one. The same state gives the same bytes.
    """
    if kind not in KINDS:
        raise InvalidValue("KIND", f"{kind!r:.80} is not a kind of bundle", permitted=tuple(KINDS))
    if out is None:
        raise InvalidValue("--out", "must be given")
    bundle = look(call, lambda store: store.maintenance.bundles.export(kind, key, out, with_logs=not no_logs))
    return Answer({"file": str(out), "bundle": bundle}, lambda screen: lines(bundle, screen))


def lines(bundle: Bundle, screen: Screen) -> Iterator[object]:
    """What a bundle holds, for people."""
    yield f"{bundle.kind} {bundle.id} at {bundle.revision}"
    yield from screen.table(PARTS, bundle.parts)
    for name, ids in bundle.context.items():
        yield f"{name} that it was forked from: {', '.join(ids)}"
