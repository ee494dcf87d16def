"""The base of all repositories: a scope for statements, the clock, common reads, and the sentinel for "not given"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from inspect import isfunction
from typing import Any, Final, Literal, TypeVar, cast

from lastlight_state.backends.base import Backend
from lastlight_state.clock import Clock
from lastlight_state.db import valid
from lastlight_state.db.gate import guard_arguments
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.lists.pages import map_page
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.records import Page, Record
from lastlight_state.db.rows.statements import NO_VALUES, RowT, Statement, Values
from lastlight_state.db.units.scope import Scope
from lastlight_state.db.units.unit import Reader
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings

T = TypeVar("T")
K = TypeVar("K")
R = TypeVar("R", bound=Record)


class _Unset(Enum):
    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


#: An argument that was not given, where None means "clear it".
UNSET: Final = _Unset.UNSET
UnsetType = Literal[_Unset.UNSET]


class Context:
    """The objects that the repositories of one store or transaction share."""

    __slots__ = ("clock", "listeners", "remembered", "scope", "settings")

    def __init__(
        self,
        scope: Scope,
        clock: Clock,
        settings: Settings,
        listeners: Listeners,
        remembered: dict[type[Any], Any] | None = None,
    ) -> None:
        self.scope = scope
        self.clock = clock
        self.settings = settings
        self.listeners = listeners
        #: What this store has learned and does not ask the database again, by class.
        self.remembered: dict[type[Any], Any] = {} if remembered is None else remembered

    def within(self, scope: Scope) -> Context:
        """Return a context of the same store whose calls run in another scope."""
        return Context(scope, self.clock, self.settings, self.listeners, self.remembered)

    def remember(self, kind: type[K]) -> K:
        """Return the store's only object of this class. It is created at its first use."""
        found = self.remembered.get(kind)
        return found if found is not None else cast("K", self.remembered.setdefault(kind, kind()))


class Face:
    """The attribute ``store.<domain>``, which has the domain's repositories.

    Each is loaded and created at its first use.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def _make_part(self, kind: type[Any], name: str) -> Any:
        return kind(self._context)


class Repository:
    """Base of all repositories: a method checks its arguments, then runs a statement or a work.

    `_find`, `_get_row`, `_list_rows`, `_value` and `_page` read with one statement, `_change_row` writes with one. They
    return rows of the type that the statement names. The methods with the suffix ``_as`` convert each row. If a
    decision is needed between statements, the method passes a work (a function of the `Unit` in which it runs) to
    ``_reading``, ``_viewing``, ``_once``, ``_apart``, ``_writing`` or ``_chained`` (`units.scope`). `guard_arguments`
    wraps public methods: an argument of the wrong type raises `InvalidValue`, even if a method does not check the type
    itself.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and isfunction(method):
                setattr(cls, name, guard_arguments(method))

    def __init__(self, context: Context) -> None:
        scope = context.scope
        self._clock = context.clock
        self._now = context.clock.now
        self._settings = context.settings
        self._listeners = context.listeners
        self._scope = scope
        self._remember = context.remember
        self._reading = scope.read
        self._viewing = scope.view
        self._once = scope.one_statement
        self._apart = scope.outside_transaction
        self._writing = scope.write
        self._chained = scope.chain_runner

    @property
    def _backend(self) -> Backend:
        return self._scope.backend

    @property
    def _metrics(self) -> Metrics:
        return self._scope.metrics

    def _find(self, statement: Statement[RowT], values: Values = NO_VALUES) -> RowT | None:
        """Return the first row, or None."""
        return self._reading(lambda unit: unit.row(statement, values))

    def _get_row(self, statement: Statement[RowT], values: Values, *, kind: str, key: Any) -> RowT:
        """Return the row. If there is none, raise `NotFound` with the ``kind`` and ``key`` of the missing object."""
        found = self._find(statement, values)
        if found is None:
            raise valid.not_found(kind, key)
        return found

    def _list_rows(self, statement: Statement[RowT], values: Values = NO_VALUES) -> list[RowT]:
        """Return all rows. For statements that limit their result themselves."""
        return self._reading(lambda unit: unit.rows(statement, values))

    def _change_row(
        self, statement: Statement[RowT], values: Values = NO_VALUES, *, repeatable: bool = False
    ) -> RowT | None:
        """Run a write that is one statement. Return the row that it returned, or None if it changed nothing."""
        return self._once(lambda unit: unit.row(statement, values), repeatable=repeatable)

    def _page(
        self,
        listing: Listing[RowT],
        given: Mapping[str, Any] | None,
        limit: int,
        page_token: str | None,
        *,
        also: Values = NO_VALUES,
    ) -> Page[RowT]:
        """Return a page of a list with the filters ``given``, as `Listing.page` does. Checks the limit."""
        valid.page_limit(limit)
        return self._reading(
            lambda unit: listing.page(unit, limit=limit, page_token=page_token, given=given, also=also)
        )

    def _find_as(self, read: Reader[R, RowT], statement: Statement[RowT], values: Values = NO_VALUES) -> R | None:
        """Return the first row as a record, or None."""
        return self._reading(lambda unit: unit.find(read, statement, values))

    def _get_row_as(
        self, read: Reader[R, RowT], statement: Statement[RowT], values: Values, *, kind: str, key: Any
    ) -> R:
        """Return the row as a record.

        If there is none, raise `NotFound` with the ``kind`` and ``key`` of the missing object.
        """
        found = self._find_as(read, statement, values)
        if found is None:
            raise valid.not_found(kind, key)
        return found

    def _list_rows_as(self, read: Reader[R, RowT], statement: Statement[RowT], values: Values = NO_VALUES) -> list[R]:
        """Return all rows as records. For statements that limit their result themselves."""
        return self._reading(lambda unit: unit.records(read, statement, values))

    def _value(self, statement: Statement[Any], values: Values = NO_VALUES) -> Any:
        """Return the first column of the first row, or None without a row."""
        return self._reading(lambda unit: unit.value(statement, values))

    def _change_row_as(
        self,
        read: Reader[R, RowT],
        statement: Statement[RowT],
        values: Values = NO_VALUES,
        *,
        repeatable: bool = False,
    ) -> R | None:
        """Run a write that is one statement.

        Return the row that it returned, as a record, or None if it changed nothing.
        """
        return self._once(lambda unit: unit.find(read, statement, values), repeatable=repeatable)

    def _page_as(
        self,
        listing: Listing[RowT],
        make: Callable[[RowT], T],
        given: Mapping[str, Any] | None,
        limit: int,
        page_token: str | None,
        *,
        also: Values = NO_VALUES,
    ) -> Page[T]:
        """Return a page as `_page` does, with ``make`` applied to each row."""
        return map_page(self._page(listing, given, limit, page_token, also=also), make)
