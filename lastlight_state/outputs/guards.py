"""Triggers by which the database refuses changes of inputs, of the registry and of the history of outputs."""

from __future__ import annotations

from lastlight_state.db.guards import Key, append_only, declare, no_replacement, no_replacing_insert, no_update

HISTORY_KEY = ("run_id", "table_name", "node_id", "iteration", "revision")

OUTPUTS = declare(
    [
        *append_only("run_inputs"),
        *no_update("run_inputs"),
        *no_replacing_insert("run_inputs"),
        *append_only("output_history"),
        *no_update("output_history"),
        *no_replacing_insert("output_history"),
        *append_only("output_tables"),
        *no_replacement("output_tables", Key(("key",)), Key(("table_name",))),
    ]
)
