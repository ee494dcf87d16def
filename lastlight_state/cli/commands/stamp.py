"""``stamp``: writes the version into a database whose schema is that of a revision."""

from __future__ import annotations

from contextlib import closing

import click

from lastlight_state import migrations
from lastlight_state.cli.opening import backend_for_call, existing_backend, settings_of
from lastlight_state.cli.output import Answer, Call, command


@command("stamp")
@click.option("--to", metavar="REVISION", default="head", help="The revision that the schema has.")
@click.option("--force", is_flag=True, help="Do not compare the schema with the revision.")
def run(call: Call, to: str, force: bool) -> Answer:
    """Write that the database is at a revision, and change nothing else.

    Use it for a database that lost its version or got a wrong one. First the schema is compared with the revision. If
    it differs, the stamp is refused and every difference is listed.
    """
    with closing(backend_for_call(call, settings_of(call))) as backend:
        result = migrations.stamp(existing_backend(backend), to, force=force)
    data = {"state": result.state, "from": result.from_revision, "to": result.to_revision}
    return Answer(data, lambda _: [f"{result.to_revision}  {result.state}  (was: {result.from_revision or '-'})"])
