"""Which rows the library's statements lock on Postgres, by the names of the statements.

``make record`` writes them down again, for a lock that is changed on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

import lastlight_state
from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.rows.statements import Family, Shaped, Statement

PAGE = Path(__file__).parents[1] / "fixtures" / "locks.txt"
_LOCK = re.compile(r"FOR (?:NO KEY )?(?:UPDATE|SHARE|KEY SHARE)(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?")
#: The types of parameters, which say nothing of rows.
_TYPE = re.compile(r"""::[A-Z]+(?: WITH TIME ZONE)?| COLLATE "C\"""")
#: How deep statements lie in objects of a module.
_DEPTH = 3


def found() -> dict[str, str]:
    """The locks of all statements that take some, and of which rows, by the name of the statement."""
    locks = ((name, ", ".join(_LOCK.findall(text)), text) for name, text in statements().items())
    return {name: f"{lock}: {_rows(text)}" for name, lock, text in locks if lock}


def _rows(text: str) -> str:
    """What the statement says of the rows, without the columns that it shows."""
    plain = _TYPE.sub("", text[text.find("FROM ") :])
    return re.sub(r"%\((\w+)\)s", r":\1", " ".join(plain.split()))


@cache
def statements() -> dict[str, str]:
    """The texts of all statements that are `named`."""
    return dict(sorted((name, _text(statement)) for name, statement in named().items()))


@cache
def named() -> dict[str, Statement[Any] | Family[Any]]:
    """All statements that stand in a module, a class, or an object of one, by the first of their names."""
    names: dict[Statement[Any] | Family[Any], str] = {}
    for name, statement in _all():
        names.setdefault(statement, name)
    return {name: statement for statement, name in names.items()}


def recorded() -> dict[str, str]:
    """As they were written down."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return {name: lock for name, _, lock in (line.partition(" = ") for line in lines)}


def _all() -> Iterator[tuple[str, Statement[Any] | Family[Any]]]:
    for module in walk_packages(lastlight_state.__path__, "lastlight_state."):
        if not module.name.endswith("__main__") and ".testing" not in module.name:
            for name, value in vars(import_module(module.name)).items():
                yield from _within(f"{module.name.removeprefix('lastlight_state.')}.{name}", value, _DEPTH)


def _within(name: str, value: Any, depth: int) -> Iterator[tuple[str, Statement[Any] | Family[Any]]]:
    if isinstance(value, Shaped):  # of a call that was made, and of no module
        return
    if isinstance(value, Statement | Family):
        yield name, value
    elif isinstance(value, Filtered) and value._beside is None:  # the others want more than filters
        yield name, Statement(value._make([]))
    elif depth:
        for inner, one, left in _parts(value, depth - 1):
            yield from _within(name + inner, one, left)


def _parts(value: Any, depth: int) -> Iterator[tuple[str, Any, int]]:
    """What lies in an object, by the rest of its name, and how deep to look there. Of a class only its own."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", one, depth) for key, one in value.items())
    elif isinstance(value, tuple | list):
        yield from ((f"[{at}]", one, depth) for at, one in enumerate(value))
    elif isinstance(value, type) and value.__module__.startswith("lastlight_state."):
        yield from ((f".{key}", one, 0) for key, one in vars(value).items())
    elif type(value).__module__.startswith("lastlight_state."):
        yield from ((f".{key}", one, depth) for key, one in getattr(value, "__dict__", {}).items())


def _text(statement: Statement[Any] | Family[Any]) -> str:
    made = statement if isinstance(statement, Statement) else statement._make([sa.bindparam(f"{statement._name}_0")])
    element: Any = made.element if isinstance(made, Statement) else made
    return str(element.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    PAGE.write_text("".join(f"{name} = {lock}\n" for name, lock in found().items()), encoding="utf-8")
