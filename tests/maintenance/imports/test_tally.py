"""What came of the units of an import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.each import with_each

from lastlight_state.errors import BackendUnavailable, ClaimLost, SchemaMismatch, StateError, StoreClosed
from lastlight_state.maintenance.imports.tally import Tally


class Part:
    """A unit that something was read of."""

    key, read = "deep", object()


def raising(error: Exception) -> Callable[[Any], Any]:
    """What fails for every unit."""

    def treat(read: Any) -> Any:
        raise error

    return treat


def test_a_unit_that_runs_out_of_stack_fails_alone() -> None:
    """maintenance OP-38: what is nested as deeply as nobody foresaw ends no import of thousands of units."""
    tally: Any = Tally()
    tally.add(Part(), raising(RecursionError()))
    assert [(one.unit, one.code) for one in tally.failures] == [("deep", "invalid_value")]
    assert tally.counts == {"units.failed": 1}


@with_each(
    "error",
    [
        ClaimLost("r", presented=1, current_epoch=2, held_by="other", status="running", kind="receipt"),
        BackendUnavailable("gone"),
        StoreClosed("closed"),
        SchemaMismatch("another schema"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_no_unit_is_to_blame_for_ends_the_import(error: StateError) -> None:
    """maintenance OP-38: work that somebody has taken over, a database that is gone or closed, another schema."""
    tally: Any = Tally()
    with pytest.raises(type(error)):
        tally.add(Part(), raising(error))
    assert (tally.failures, tally.counts) == ([], {})
