"""``grants``: prints the SQL that gives a service's role exactly the rights it needs. Executes none of it."""

from __future__ import annotations

import click

from lastlight_state import migrations
from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command


@command("grants")
@click.option("--role", metavar="ROLE", required=True, help="The role that a service logs in as.")
def run(call: Call, role: str) -> Answer:
    """Print the SQL that gives a role the rights to open the store and work, but not to change the schema.

    The owner of the tables executes it, and does so again after a migration that creates tables. Postgres only.
    """
    statements = read_once(call, lambda store: migrations.grants(store.backend, role), verified=False)
    sql = "".join(f"{statement};\n" for statement in statements)
    return Answer({"role": role, "sql": sql}, lambda _: sql.splitlines())
