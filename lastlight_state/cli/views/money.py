"""Formatting of amounts of money for people."""

from __future__ import annotations

from decimal import Decimal


def money(amount: Decimal) -> str:
    """Return an amount of US dollars with two decimals, or with four if it is below ten cents."""
    return f"${amount:,.2f}" if not amount or abs(amount) >= Decimal("0.1") else f"${amount:.4f}"
