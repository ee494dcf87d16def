"""Exact money."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal, Inexact, localcontext
from math import nextafter

import pytest
from hypothesis import given, strategies as st
from support.workflows.steps import Raw, started

from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.workflows.money import MOST_MIRRORED, dollars_of, micros_of, mirrored, stored_cost
from lastlight_state.workflows.words import MOST_REPORTED


@pytest.mark.parametrize(
    ("dollars", "micros"),
    [
        ("0", 0),
        ("0.0000005", 0),
        ("0.0000015", 2),
        ("0.0000025", 2),
        ("0.00000250000000000000000000000000000001", 3),
        ("1.5", 1_500_000),
        ("1000000", 1_000_000_000_000),
        ("1E-30", 0),
    ],
)
def test_a_half_of_a_micro_dollar_goes_to_the_even_one(dollars: str, micros: int) -> None:
    """workflows W-60."""
    assert micros_of("cost", Decimal(dollars)) == micros


@given(st.integers(0, MOST_REPORTED) | st.integers(0, 2**63 - 1))
def test_what_is_stored_comes_back(micros: int) -> None:
    """workflows W-60."""
    if micros <= MOST_REPORTED:
        assert micros_of("cost", dollars_of(micros)) == micros
    assert stored_cost(micros, None) == dollars_of(micros)


@given(st.integers(0, 10**12))
def test_a_mirror_tells_the_same_micro_dollars(micros: int) -> None:
    """workflows W-60."""
    assert stored_cost(None, mirrored(micros)) == dollars_of(micros)


@pytest.mark.parametrize("bad", [Decimal("-0.01"), Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"), 1.5, 1, "1"])
def test_what_is_no_amount_is_refused(bad: Decimal) -> None:
    """workflows W-7, W-60."""
    with pytest.raises(InvalidValue, match="cost"):
        micros_of("cost", bad)


def test_the_callers_decimal_context_changes_nothing() -> None:
    """workflows W-60."""
    with localcontext(prec=2, rounding=ROUND_UP) as context:
        context.traps[Inexact] = True
        assert micros_of("cost", Decimal("123.4567895")) == 123_456_790
        assert dollars_of(123_456_789) == Decimal("123.456789")


def test_no_cost_is_none() -> None:
    """workflows W-60."""
    assert stored_cost(None, None) is None
    assert stored_cost(0, 3.5) == 0


HALVES = (0.0000005, 0.0000015, 0.0000025, 0.1234565, 0.1234575, -0.0000015, -0.0000025, 0.49999999999999994e-6, 7e5)
#: The last float that is believed.
GREATEST = MOST_MIRRORED
UNBELIEVABLE = (nextafter(MOST_MIRRORED, 1e300), 2**53 / 1_000_000, 1e300, float("inf"))


def test_a_float_alone_says_the_same_amount_in_sql_as_in_a_record(store: StateStore, raw: Raw) -> None:
    """workflows W-60, case 52: halves of a micro-dollar too, and amounts that no one can have spent."""
    run = started(store)
    for index, dollars in enumerate((*HALVES, GREATEST, *UNBELIEVABLE)):
        raw.execution(run.id, f"e-{index:02}")
        raw("UPDATE executions SET cost_usd = ? WHERE id = ?", dollars, f"e-{index:02}")
    costs = [each.cost_usd for each in reversed(store.workflows.executions.list(run_id=run.id).items)]
    assert costs == [
        *(dollars_of(round(dollars * 1e6)) for dollars in (*HALVES, GREATEST)),
        *[None] * len(UNBELIEVABLE),
    ]
    assert costs[:7] == [
        Decimal(each) for each in ("0 0.000002 0.000002 0.123456 0.123458 -0.000002 -0.000002".split())
    ]
    [summary] = store.workflows.runs.list()
    assert summary.totals.cost_usd == sum(cost for cost in costs if cost is not None)
