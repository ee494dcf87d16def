"""The kinds of record of outputs: tables and what wrote them, inputs of runs, the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.cli.views.kind import Filters, Kind, Store, column
from lastlight_state.db.records import Page

OUTPUTS = (
    column("KEY", keep=True),
    column("TABLE", "table_name", keep=True, rank=1),
    column("KIND", rank=2),
    column("UPDATED", "updated_at", keep=True),
)
ROWS = (
    column("RUN", "run_id", is_id=True),
    column("NODE", "node_id", keep=True),
    column("ITERATION", right=True),
    column("WRITTEN", "updated_at", keep=True),
)
INPUTS = (
    column("REVISION", keep=True, right=True),
    column("GIVEN", "created_at", keep=True),
    column("BY", "created_by"),
    column("REASON"),
)
CACHE = (
    column("KEY", "cache_key", is_id=True),
    column("WORKFLOW", "workflow_name"),
    column("NODE", "node_id", rank=2),
    column("OUTPUT", "output_key", rank=3),
    column("STORED", "created_at", keep=True),
    column("EXPIRES", "expires_at", keep=True, rank=1),
)


def _outputs(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("outputs", "status", "since", "run")
    return store.outputs.catalog.list(**filters.paging)


def _inputs(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("inputs", "status", "since")
    return store.outputs.inputs.list(filters.run("inputs"), **filters.paging)


def _cache(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("cached results", "status", "since", "run")
    return store.outputs.cache.list(**filters.paging)


def _of_output(store: Store, table: Any) -> Mapping[str, Page[Any]]:
    return {"rows": store.outputs.results.list(table.key)}


def _of_input(store: Store, found: Any) -> Mapping[str, Page[Any]]:
    return {"revisions": store.outputs.inputs.list(found.run_id)}


#: By the word that ``ls`` takes.
KINDS = {
    "outputs": Kind(
        "output",
        OUTPUTS,
        _outputs,
        "(no outputs)",
        lambda store, key: store.outputs.catalog.entry(key),
        children=_of_output,
    ),
    "inputs": Kind(
        "input", INPUTS, _inputs, "(no inputs)", lambda store, key: store.outputs.inputs.get(key), children=_of_input
    ),
    "cache": Kind("cached result", CACHE, _cache, "(no cached results)"),
}

#: The columns of children, by their name in ``Kind.children``.
COLUMNS = {"rows": ROWS, "revisions": INPUTS}
