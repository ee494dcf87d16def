"""A statement for some keys asks for these keys, and does not read or change the rows of all others."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from support import locks

from lastlight_state.db.rows.statements import Family, Statement

#: Of kinds of records without children, which have nothing to count.
_EMPTY = {f"maintenance.erase.STATEMENTS['{name}'].measured" for name in ("executions", "fires")}


def test_every_statement_of_a_family_compares_with_its_keys() -> None:
    families = {name: one for name, one in locks.named().items() if isinstance(one, Family)}
    assert len(families) > 150
    asking = {name for name, one in families.items() if "key_0" in _parameters(one)}
    assert families.keys() - asking == _EMPTY


def _parameters(family: Family) -> set[str]:
    _, values = family.of(["key"])
    made = family._make([sa.bindparam(name) for name in values])
    element: Any = made.element if isinstance(made, Statement) else made
    compiled = element.compile(dialect=postgresql.dialect())  # type: ignore[no-untyped-call]
    return {name.replace(only, "key_0") for only in values for name in compiled.params}
