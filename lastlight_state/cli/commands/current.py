"""``current``: prints the revision of the database. Never writes."""

from __future__ import annotations

from lastlight_state.cli.opening import existing_backend, read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.migrations import SchemaState, read_state
from lastlight_state.store import StateStore


@command("current")
def run(call: Call) -> Answer:
    """Print the revision of the database, and how it compares to the newest that this version knows."""
    state = read_once(call, _state, verified=False)
    data = {"state": state.state, "from": state.revision, "to": state.head}
    return Answer(data, lambda _: [f"{state.revision or '-'}  {state.state}  (newest: {state.head})"])


def _state(store: StateStore) -> SchemaState:
    return read_state(existing_backend(store.backend))
