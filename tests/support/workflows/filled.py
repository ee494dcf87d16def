"""A database where a planner counts: many executions, and the runs that made them."""

from __future__ import annotations

from support.workflows.steps import Raw


def fill(raw: Raw, rows: int) -> None:
    """So many executions, a minute apart, of a tenth as many runs; every fiftieth is a chat turn."""
    at = "to_timestamp(1700000000 + n.i * 60)"
    if raw.name == "sqlite":
        at = "strftime('%Y-%m-%dT%H:%M:%S.000Z', 1700000000 + n.i * 60, 'unixepoch')"
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
    raw(
        f"{numbers}INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, finished_at, success, "
        "outcome, owner, repo, workflow_run_id, cost_micros, output_text) "
        "SELECT 'e-' || n.i, 'api', 't-' || (n.i % 70), CASE n.i % 50 WHEN 0 THEN 'chat' ELSE 'w' || (n.i % 7) ||"
        f" ':' || (n.i % 3) END, {at}, {at}, {'true' if raw.name == 'postgresql' else '1'}, 'succeeded', 'acme',"
        " 'x' || (n.i % 9), 'r-' || (n.i / 10), n.i, 'text' FROM n"
    )
    raw(
        f"{numbers}INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, status, started_at,"
        f" updated_at) SELECT 'r-' || n.i, 'w' || (n.i % 7), 't-' || (n.i % 70), 'plan', 'succeeded', {at}, {at}"
        f" FROM n WHERE n.i <= {rows // 10}"
    )
    raw("ANALYZE")
