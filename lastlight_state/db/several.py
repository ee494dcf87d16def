"""Filters of lists by several values, each of which is compared with more than one column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa

#: Conditions of which a row meets one, and the condition that it meets any.
Alternatives: TypeAlias = tuple[Sequence[sa.ColumnElement[bool]], sa.ColumnElement[bool]]


@dataclass(frozen=True)
class Several:
    """A filter of several values that each are several parameters; a value lacks those that are NULL.

    ``conditions`` gives those of one value, of which a row must meet one; its argument ends the parameters' names.
    With ``ranges`` each condition is an index range of its own as long as no column is spread.
    """

    parameters: tuple[str, ...]
    conditions: Callable[[str], Sequence[sa.ColumnElement[bool]]]
    ranges: bool = True

    def filled(self, values: Sequence[Mapping[str, Any]], size: int) -> dict[str, Any]:
        """The parameters of these values. Those left over are None, which equals nothing."""
        padding: list[Mapping[str, Any]] = [{}] * (size - len(values))
        given = enumerate([*values, *padding])
        return {f"{name}_{i}": value.get(name) for i, value in given for name in self.parameters}

    def alternatives(self, size: int) -> Alternatives:
        """The conditions of that many values."""
        each = [condition for i in range(size) for condition in self.conditions(f"_{i}")]
        any_of_them = sa.or_(*each)
        return (each if self.ranges else [any_of_them]), any_of_them
