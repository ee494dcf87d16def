"""Exact money: callers use a Decimal of dollars, the database holds whole micro-dollars.

The seed's column ``cost_usd`` is a float that mirrors the exact ``cost_micros``. Foreign rows have the float alone.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

from lastlight_state.errors import InvalidValue
from lastlight_state.workflows.words import MOST_REPORTED

_MILLION = Decimal(1_000_000)
#: The greatest float that counts as a cost: the most that an execution may report. Larger foreign values are ignored.
MOST_MIRRORED = MOST_REPORTED / 1_000_000
#: A decimal context of our own, wide enough for every float: the caller's context must not change results.
_WIDE = Context(prec=400, rounding=ROUND_HALF_EVEN, traps=[])


def micros_of(where: str, dollars: Decimal) -> int:
    """An amount in whole micro-dollars, rounded half to even. Raises `InvalidValue` if it cannot be stored."""
    if not isinstance(dollars, Decimal):
        raise InvalidValue(where, f"expected a Decimal, got {type(dollars).__name__}; floats are not exact")
    if not dollars.is_finite() or dollars < 0:
        raise InvalidValue(where, "must be a finite amount of zero or more")
    if dollars > MOST_REPORTED // 1_000_000:
        raise InvalidValue(where, f"must be at most {MOST_REPORTED // 1_000_000} dollars")
    return _whole(dollars)


def dollars_of(micros: int) -> Decimal:
    """An amount of micro-dollars in dollars."""
    return _WIDE.divide(Decimal(micros), _MILLION)


def mirrored(micros: int) -> float:
    """The nearest float in dollars, for the column that other programs read."""
    return float(dollars_of(micros))


def stored_cost(micros: int | None, mirror: float | None) -> Decimal | None:
    """The cost of a row in dollars: the exact amount, or else the float, rounded as the SQL of sums rounds it."""
    if micros is None and mirror is not None and abs(mirror) <= MOST_MIRRORED:
        micros = round(mirror * 1_000_000.0)
    return None if micros is None else dollars_of(micros)


def _whole(dollars: Decimal) -> int:
    return int(_WIDE.multiply(dollars, _MILLION).to_integral_value(ROUND_HALF_EVEN, _WIDE))
