"""``export``: one run, or one session of a conversation, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.opening import look
from lastlight_state.cli.views.bundles import shown
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.bundles.records import KINDS


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
    return Answer({"file": str(out), "bundle": bundle}, lambda screen: shown(bundle, screen))
