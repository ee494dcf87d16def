"""A table of a service's own, attached without one of its columns."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state import StateStore


def attach_without_a_column(store: StateStore, raw: Any, run_id: str) -> None:
    """Attach the table ``mine``, with a row of this run. Its column ``hidden`` is not declared."""
    raw.execute("CREATE TABLE mine (run_id text, node_id text, x text, hidden text, PRIMARY KEY (run_id, node_id))")
    columns = [sa.Column(name, sa.Text, primary_key=True) for name in ("run_id", "node_id")]
    store.outputs.catalog.attach("mine", sa.Table("mine", sa.MetaData(), *columns, sa.Column("x", sa.Text)))
    raw.execute(f"INSERT INTO mine VALUES ('{run_id}', 'n', 'seen', 'only here')")
