"""What came of the units of an import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lastlight_state.maintenance.imports.tally import Tally


def test_a_unit_that_runs_out_of_stack_fails_alone(tmp_path: Path) -> None:
    """maintenance OP-38: what is nested as deeply as nobody foresaw ends no import of thousands of units."""

    class Part:
        key, read = "deep", object()

    def treat(read: Any) -> Any:
        raise RecursionError

    tally: Any = Tally()
    tally.add(Part(), treat)
    assert [(one.unit, one.code) for one in tally.failures] == [("deep", "invalid_value")]
    assert tally.counts == {"units.failed": 1}
