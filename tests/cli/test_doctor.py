"""``doctor`` from the command line."""

from __future__ import annotations

import re
from datetime import timedelta

from support.cli.calls import lastlight_state
from support.maintenance.rows import insert, run_row

from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.testing import Database

#: Throw-away servers do not wait for their disk, which is a warning.
SKIP = ("--skip", "DOC-03")


def test_errors_are_exit_code_1_and_warnings_with_strict(database: Database) -> None:
    """maintenance OP-15, OP-72, OP-17."""
    said = lastlight_state("doctor", *SKIP, "--url", database.url)
    assert (said.code, "0 findings" in said.out) == (0, True)
    old = SYSTEM_CLOCK.now() - timedelta(days=2)
    row = run_row("r", old, "running", lease_expires_at=old)
    insert(database.raw(), "workflow_runs", row)
    warned = lastlight_state("doctor", *SKIP, "--url", database.url, "--json")
    assert (warned.code, {found["check"] for found in warned.data["findings"]}) == (0, {"DOC-15"})
    shown = lastlight_state("doctor", "--strict", "--url", database.url)
    assert (shown.code, re.search(r"and \d+ more", shown.out)) == (1, None)
    assert lastlight_state("doctor", "--strict", "--skip", "DOC-15", *SKIP, "--url", database.url).code == 0
    insert(database.raw(), "workflow_runs", *({**row, "id": f"r{n}"} for n in range(30)))
    assert "and 11 more" in lastlight_state("doctor", *SKIP, "--url", database.url).out


def test_a_missing_database_is_a_finding_with_its_remedy() -> None:
    """maintenance OP-5, OP-72."""
    said = lastlight_state("doctor", "--url", "none.db")
    assert said.code == 1
    assert "run: lastlight-state migrate" in said.out


def test_checks_that_were_not_made_in_time_are_exit_code_7(database: Database) -> None:
    """maintenance OP-72."""
    said = lastlight_state("doctor", "--time-limit", 0, "--url", database.url, "--json")
    assert (said.code, said.error) == (7, "time_limit")
