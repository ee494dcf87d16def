"""``export``: writes one run, or one session of a conversation, to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.views.maintenance import bundle_lines
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.bundles.records import KINDS, REDACTIONS


@command("export")
@click.argument("kind")
@click.argument("key", metavar="ID")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="The new file.")
@click.option("--no-logs", is_flag=True, help="Only rows: no log files.")
@click.option("--redact", metavar="NAME", multiple=True, help="Leave this out; several times.")
def run(call: Call, kind: Any, key: str, *, out: Path | None, no_logs: bool, redact: tuple[Any, ...]) -> Answer:
    """Write one `run`, or one `session` of a conversation, with everything that belongs to it into a new file.

    The file is a bundle: `import` loads it into this database or another one. The same state gives the same bytes.
    """
    if kind not in KINDS:
        raise InvalidValue("KIND", f"{kind!r:.80} is not a kind of bundle", permitted=tuple(KINDS))
    if out is None:
        raise InvalidValue("--out", "must be given")
    if unknown := [name for name in redact if name not in REDACTIONS]:
        raise InvalidValue("--redact", f"{unknown[0]!r:.80} is unknown", permitted=tuple(REDACTIONS))
    terms: dict[str, Any] = {"with_logs": not no_logs, "redact": redact}
    bundle = read_once(call, lambda store: store.maintenance.bundles.export(kind, key, out, **terms))
    return Answer({"file": str(out), "bundle": bundle}, lambda screen: bundle_lines(bundle, screen))
