"""Which rows of two tables differ, found by reading both in the order of their keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.copy.contents import MOST_NAMED, forms, shown
from lastlight_state.maintenance.copy.subjects import Subject

Form = tuple[list[Any], bytes | str]


def differing(source: Unit, target: Unit, subject: Subject, *, without: str) -> list[str]:
    """The first keys of rows that are not equal in both, or not in both. The row of the key ``without`` is left out."""
    found: list[str] = []
    for key in _differing(forms(source, subject), forms(target, subject)):
        if key != [without]:
            found.append(shown(key))
        if len(found) == MOST_NAMED:
            break
    return found


def _differing(mine: Iterator[Form], theirs: Iterator[Form]) -> Iterator[list[Any]]:
    left, right = next(mine, None), next(theirs, None)
    while left is not None and right is not None:
        if left != right:
            yield min(left[0], right[0])
        step = left[0], right[0]
        if step[0] <= step[1]:
            left = next(mine, None)
        if step[1] <= step[0]:
            right = next(theirs, None)
    for rest in (left, right):
        if rest is not None:
            yield rest[0]
    for key, _ in chain(mine, theirs):
        yield key
