"""Triggers by which the database refuses changes of inputs, of the registry and of the history of outputs."""

from __future__ import annotations

from lastlight_state.db.guards import append_only, declare, no_replacement, no_update

HISTORY_KEY = ("run_id", "table_name", "node_id", "iteration", "revision")

OUTPUTS = declare(
    [
        *append_only("run_inputs"),
        *no_update("run_inputs"),
        *no_replacement("run_inputs", key=("run_id", "revision")),
        *append_only("output_history"),
        *no_update("output_history"),
        *no_replacement("output_history", key=HISTORY_KEY),
        *append_only("output_tables"),
        *no_replacement("output_tables", key=("key",)),
        *no_replacement("output_tables", key=("table_name",), name="table"),
    ]
)
