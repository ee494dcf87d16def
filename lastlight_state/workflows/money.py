"""Exact money: a Decimal of dollars outside, whole micro-dollars inside.

Pure. The seed's ``cost_usd`` column is a float that mirrors the exact ``cost_micros``; rows of other programs have the
float alone.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

from lastlight_state.errors import InvalidValue

_MILLION = Decimal(1_000_000)
_MOST_MICROS = 2**63 - 1
#: The dollars up to which a float says a micro-dollar. What a foreign row claims to have cost beyond counts nothing.
MOST_MIRRORED = 2.0**53 / 1_000_000
#: Wide enough for every float, and ours: a caller's own decimal context changes nothing here.
_WIDE = Context(prec=400, rounding=ROUND_HALF_EVEN, traps=[])


def micros_of(where: str, dollars: Decimal) -> int:
    """Whole micro-dollars of an amount, half to even. Raises `InvalidValue` for what cannot be stored."""
    if not isinstance(dollars, Decimal):
        raise InvalidValue(where, f"a Decimal is needed, not {type(dollars).__name__}: floats are not exact")
    if not dollars.is_finite() or dollars < 0:
        raise InvalidValue(where, "not a finite amount of zero or more")
    if dollars > _MOST_MICROS // 1_000_000:
        raise InvalidValue(where, "more than can be stored")
    return _whole(dollars)


def dollars_of(micros: int) -> Decimal:
    """The amount of so many micro-dollars."""
    return _WIDE.divide(Decimal(micros), _MILLION)


def mirrored(micros: int) -> float:
    """The nearest float, for the column that older programs read."""
    return float(dollars_of(micros))


def stored_cost(micros: int | None, mirror: float | None) -> Decimal | None:
    """The amount of a row: what is exact, else what the float says, in the micro-dollars that SQL finds in it."""
    if micros is None and mirror is not None and abs(mirror) < MOST_MIRRORED:
        micros = round(mirror * 1_000_000.0)
    return None if micros is None else dollars_of(micros)


def _whole(dollars: Decimal) -> int:
    return int(_WIDE.multiply(dollars, _MILLION).to_integral_value(ROUND_HALF_EVEN, _WIDE))
