"""Models that sessions only read: what would write one is refused, with the call of the store that does it.

A row that a session writes passes the claim of a run's holder, and leaves no entry in a history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NoReturn

from sqlalchemy import event, inspect
from sqlalchemy.orm import Mapper, ORMExecuteState, Session

from lastlight_state.db.base import Base
from lastlight_state.errors import MisuseError

Deed = Literal["add", "change", "remove"]

#: The calls that write rows of a model, as paths in a store.
_CALLS: dict[type[Base], dict[Deed, tuple[str, ...]]] = {}


def only_read(model: type[Base], add: str, change: str | None, remove: str | None) -> None:
    """Refuse writes of a model by sessions. The others are paths of calls that do it, or None where none does."""
    _CALLS[model] = {"add": _paths(add), "change": _paths(change), "remove": _paths(remove)}
    event.listen(model, "before_insert", _refusing("add"))
    event.listen(model, "before_update", _refuse_changes)
    event.listen(model, "before_delete", _refusing("remove"))


def calls_of(model: type[Base]) -> dict[Deed, tuple[str, ...]]:
    """Return the calls that write rows of a model."""
    return _CALLS[model]


def _refusing(deed: Deed) -> Callable[[Mapper[Any], object, Base], None]:
    def refuse(mapper: Mapper[Any], _connection: object, row: Base) -> None:
        _refuse(mapper.class_, deed, repr(row))

    return refuse


def _refuse_changes(mapper: Mapper[Any], _connection: object, row: Base) -> None:
    """Refuse an object that differs from its row. Other ones of the session are asked, too."""
    state: Any = inspect(row)
    changed = [name for name in mapper.column_attrs.keys() if state.attrs[name].history.has_changes()]  # noqa: SIM118
    if changed:
        _refuse(mapper.class_, "change", f"{', '.join(changed)} of {row!r}")


@event.listens_for(Session, "do_orm_execute")
def _refuse_statements(statement: ORMExecuteState) -> None:
    """Refuse ``session.execute(update(Model))`` and the like, which no object is part of."""
    if statement.is_select:
        return
    model = getattr(statement.bind_mapper, "class_", None)
    if model in _CALLS:
        deed: Deed = "add" if statement.is_insert else "change" if statement.is_update else "remove"
        _refuse(model, deed, f"rows of {model.__name__}")


def _refuse(model: type[Base], deed: Deed, what: str) -> NoReturn:
    calls = [f"store.{path}" for path in _CALLS[model][deed]]
    instead = f"use {' or '.join(calls)}" if calls else "nothing does, as others rely on it"
    raise MisuseError(f"a session does not {deed} {what}: {instead}")


def _paths(written: str | None) -> tuple[str, ...]:
    return tuple((written or "").split())
