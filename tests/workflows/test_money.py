"""Exact money."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal, Inexact, localcontext
from math import nextafter

import pytest
from hypothesis import given, strategies as st
from support.each import with_each
from support.workflows.steps import Raw, started

from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.workflows.words import (
    MILLION,
    MOST_MIRRORED,
    MOST_REPORTED,
    Cost,
    cost_of,
    dollars_of,
    float_dollars,
    stored_cost,
)


@with_each(
    ("dollars", "cost"),
    [
        ("0", (0, 0)),
        ("0.0000000000005", (0, 0)),
        ("0.0000000000015", (0, 2)),
        ("0.0000000000025", (0, 2)),
        ("0.00000000000250000000000000000000000001", (0, 3)),
        ("0.0000004", (0, 400_000)),
        ("0.0000126", (12, 600_000)),
        ("1.5", (1_500_000, 0)),
        ("0.9999999999999", (1_000_000, 0)),
        ("1000000", (1_000_000_000_000, 0)),
        ("1E-30", (0, 0)),
    ],
)
def test_a_half_of_a_picodollar_goes_to_the_even_one(dollars: str, cost: tuple[int, int]) -> None:
    """workflows W-60."""
    assert cost_of("cost", Decimal(dollars)) == cost


@given(st.integers(0, MOST_REPORTED - 1), st.integers(0, MILLION - 1))
def test_what_is_stored_comes_back(micros: int, picos: int) -> None:
    """workflows W-60."""
    assert cost_of("cost", dollars_of(micros, picos)) == (micros, picos)
    assert stored_cost(micros, picos, None) == dollars_of(micros, picos)
    assert stored_cost(micros, None, None) == dollars_of(micros)


@given(st.integers(0, MOST_REPORTED))
def test_a_mirror_tells_the_same_micro_dollars(micros: int) -> None:
    """workflows W-60: what other programs wrote in millionths of a dollar is read as they wrote it."""
    assert stored_cost(None, None, float_dollars(Cost(micros, 0))) == dollars_of(micros)


NO_AMOUNTS = [*map(Decimal, ("-0.01", "NaN", "sNaN", "-Infinity")), -0.5, float("nan"), True, "1"]


@with_each("bad", NO_AMOUNTS)
def test_what_is_no_amount_is_refused(bad: Decimal) -> None:
    """workflows W-7, W-60."""
    with pytest.raises(InvalidValue, match="cost"):
        cost_of("cost", bad)


def test_the_callers_decimal_context_changes_nothing() -> None:
    """workflows W-60."""
    with localcontext(prec=2, rounding=ROUND_UP) as context:
        context.traps[Inexact] = True
        assert cost_of("cost", Decimal("123.4567890123455")) == (123_456_789, 12_346)
        assert dollars_of(123_456_789, 12_345) == Decimal("123.456789012345")


def test_no_cost_is_none() -> None:
    """workflows W-60."""
    assert stored_cost(None, None, None) is None
    assert stored_cost(0, 0, 3.5) == 0


HALVES = (0.5e-12, 1.5e-12, 2.5e-12, 4e-7, 0.1234565, 0.1234575, -1.5e-6, 0.49999999999999994e-12, 999.9999995, 7e5)
#: From 1,000 dollars on a float tells micro-dollars.
LARGE = (1000.0000005, 1000.0000015, 123456.7890125, -2000.0000015)
#: The last float that is believed.
GREATEST = MOST_MIRRORED
UNBELIEVABLE = (nextafter(MOST_MIRRORED, 1e300), 2**53 / 1_000_000, 1e300, float("inf"))


def test_a_float_alone_says_the_same_amount_in_sql_as_in_a_record(store: StateStore, raw: Raw) -> None:
    """workflows W-60: halves of a picodollar too, and amounts that no one can have spent."""
    run = started(store)
    for index, dollars in enumerate((*HALVES, *LARGE, GREATEST, *UNBELIEVABLE)):
        raw.execution(run.id, f"e-{index:02}")
        raw("UPDATE executions SET cost_usd = ? WHERE id = ?", dollars, f"e-{index:02}")
    costs = [each.cost_usd for each in reversed(store.workflows.executions.list(run_id=run.id).items)]
    assert costs == [
        *(dollars_of(0, round(dollars * 1e12)) for dollars in HALVES[:-1]),
        *(dollars_of(round(dollars * 1e6)) for dollars in (HALVES[-1], *LARGE, GREATEST)),
        *[None] * len(UNBELIEVABLE),
    ]
    assert costs[:5] == [Decimal(each) for each in "0 0.000000000002 0.000000000002 0.0000004 0.1234565".split()]
    [summary] = store.workflows.runs.list()
    assert summary.totals.cost_usd == sum(cost for cost in costs if cost is not None)
