"""The outputs domain: the inputs of runs, and the outputs that their tasks produced."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lastlight_state.db.repository import Face
from lastlight_state.lazy import Part, public

if TYPE_CHECKING:
    from lastlight_state.outputs.cache import Cache, CacheKey as CacheKey
    from lastlight_state.outputs.catalog import Catalog
    from lastlight_state.outputs.inputs import Inputs
    from lastlight_state.outputs.query import Query
    from lastlight_state.outputs.records import (
        CachedOutput as CachedOutput,
        CacheSummary as CacheSummary,
        Output as Output,
        OutputPlan as OutputPlan,
        OutputRevision as OutputRevision,
        OutputSummary as OutputSummary,
        OutputTableSummary as OutputTableSummary,
        QueryRows as QueryRows,
        RunInput as RunInput,
        RunInputSummary as RunInputSummary,
        RunOutputs as RunOutputs,
        RunSnapshot as RunSnapshot,
    )
    from lastlight_state.outputs.results import Results
    from lastlight_state.outputs.snapshot import Snapshot
    from lastlight_state.outputs.table import OutputTable as OutputTable
    from lastlight_state.outputs.values import Issue as Issue

M = TypeVar("M")

public(
    globals(),
    {
        "cache": "CacheKey",
        "records": "CachedOutput CacheSummary Output OutputPlan OutputRevision OutputSummary OutputTableSummary "
        "QueryRows RunInput RunInputSummary RunOutputs RunSnapshot",
        "table": "OutputTable",
        "values": "Issue",
    },
    "Outputs",
)


class Outputs(Face):
    """``store.outputs``: the inputs and outputs of runs."""

    #: Inputs of runs, each stored once.
    inputs: Part[Inputs] = Part("lastlight_state.outputs.inputs.Inputs")
    #: Output schemas: a model becomes a table.
    catalog: Part[Catalog] = Part("lastlight_state.outputs.catalog.Catalog")
    #: Outputs of tasks: one row for each run, node and iteration.
    results: Part[Results] = Part("lastlight_state.outputs.results.Results")

    #: Results that may be reused while their schema stays the same.
    cache: Part[Cache] = Part("lastlight_state.outputs.cache.Cache")
    #: The input and all outputs of a run at one moment.
    snapshot: Part[Snapshot] = Part("lastlight_state.outputs.snapshot.Snapshot")

    #: Read-only SQL for people.
    query: Part[Query] = Part("lastlight_state.outputs.query.Query")

    def define(
        self, key: str, model: type[M], *, table: str | None = None, max_bytes: int | None = None
    ) -> OutputTable[M]:
        """Define an output table, as `catalog.define` does."""
        return self.catalog.define(key, model, table=table, max_bytes=max_bytes)
