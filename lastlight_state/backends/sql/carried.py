"""What the original program's rows say in its own columns, written to the columns that revision 0002 adds.

The number of phases is that of the history. That program kept the error of a run in the run's context, where it stays.
"""

from __future__ import annotations

_ENDED = "status IN ('failed', 'cancelled') AND error IS NULL"

_SQLITE_PHASES = (
    "UPDATE workflow_runs SET phase_count = CASE WHEN typeof(phase_history) = 'text' AND json_valid(phase_history) "
    "THEN json_array_length(phase_history) ELSE 0 END WHERE phase_history <> '[]'"
)
_SQLITE_ERROR = (
    f"UPDATE workflow_runs SET error = json_extract(context, '$.error') WHERE {_ENDED} "
    "AND CASE WHEN typeof(context) = 'text' AND json_valid(context) "
    "THEN json_type(context, '$.error') = 'text' ELSE 0 END"
)
_POSTGRES_PHASES = (
    "UPDATE workflow_runs SET phase_count = CASE WHEN jsonb_typeof(phase_history) = 'array' "
    "THEN jsonb_array_length(phase_history) ELSE 0 END WHERE phase_history <> CAST('[]' AS jsonb)"
)
_POSTGRES_ERROR = (
    f"UPDATE workflow_runs SET error = context ->> 'error' WHERE {_ENDED} "
    "AND jsonb_typeof(context -> 'error') = 'string'"
)
_STATEMENTS = {
    "sqlite": (_SQLITE_PHASES, _SQLITE_ERROR),
    "postgresql": (_POSTGRES_PHASES, _POSTGRES_ERROR),
}


def carried(product: str) -> tuple[str, ...]:
    """The statements that do it, none for other products. Called once the columns are there."""
    return _STATEMENTS.get(product, ())
