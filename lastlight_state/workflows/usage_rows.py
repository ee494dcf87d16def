"""Sums over executions, as every total and rollup counts them. NULL counts 0, and integers are exact in any order."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.workflows.execution_rows import EXECUTIONS, MICROS

TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _sum(column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.cast(sa.func.coalesce(sa.func.sum(column), sa.literal_column("0")), sa.BigInteger)


SUMS = (
    sa.func.count().label("executions"),
    _sum(MICROS).label("cost_micros"),
    *(_sum(EXECUTIONS.c[name]).label(name) for name in TOKENS),
)
COUNTED = ("executions", "cost_micros", *TOKENS)
"""The names of the sums."""
