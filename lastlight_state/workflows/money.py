"""Exact money: callers use a Decimal of dollars, the database holds whole picodollars (10^-12) in two integers.

``cost_micros`` are the whole micro-dollars, and ``cost_picos`` what is left below one: no sum of either can pass 64
bits. The seed's column ``cost_usd`` is a float that mirrors both. Foreign rows have the float alone.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import NamedTuple

from lastlight_state.errors import InvalidValue
from lastlight_state.workflows.words import MOST_REPORTED

#: Picodollars of a micro-dollar, and micro-dollars of a dollar.
MILLION = 1_000_000
_TRILLION = Decimal(MILLION * MILLION)
#: Floats below this many dollars tell single picodollars, larger ones micro-dollars.
FINE = 1_000.0
#: The greatest float that counts as a cost: the most that an execution may report. Larger foreign values are ignored.
MOST_MIRRORED = MOST_REPORTED / MILLION
#: A decimal context of our own, wide enough for every float: the caller's context must not change results.
_WIDE = Context(prec=400, rounding=ROUND_HALF_EVEN, traps=[])


class Cost(NamedTuple):
    """An amount as two integers: the whole micro-dollars, and the picodollars below one."""

    micros: int
    picos: int


def cost_of(where: str, dollars: Decimal) -> Cost:
    """An amount in whole picodollars, rounded half to even. Raises `InvalidValue` if it cannot be stored."""
    if not isinstance(dollars, Decimal):
        raise InvalidValue(where, f"expected a Decimal, got {type(dollars).__name__}; floats are not exact")
    if not dollars.is_finite() or dollars < 0:
        raise InvalidValue(where, "must be a finite amount of zero or more")
    if dollars > MOST_REPORTED // MILLION:
        raise InvalidValue(where, f"must be at most {MOST_REPORTED // MILLION} dollars")
    return _split(int(_WIDE.multiply(dollars, _TRILLION).to_integral_value(ROUND_HALF_EVEN, _WIDE)))


def dollars_of(micros: int, picos: int = 0) -> Decimal:
    """An amount of micro-dollars and picodollars in dollars; neither has a bound here, as both may be sums."""
    return _WIDE.divide(Decimal(micros * MILLION + picos), _TRILLION)


def mirrored(cost: Cost) -> float:
    """The nearest float in dollars, for the column that other programs read."""
    return float(dollars_of(*cost))


def stored_cost(micros: int | None, picos: int | None, mirror: float | None) -> Decimal | None:
    """The cost of a row in dollars: the exact amount, or else the float, rounded as the SQL of sums rounds it."""
    if micros is not None:
        return dollars_of(micros, picos or 0)
    if mirror is None or abs(mirror) > MOST_MIRRORED:
        return None
    return dollars_of(0, round(mirror * 1e12)) if abs(mirror) < FINE else dollars_of(round(mirror * 1e6))


def _split(picos: int) -> Cost:
    return Cost(*divmod(picos, MILLION))
