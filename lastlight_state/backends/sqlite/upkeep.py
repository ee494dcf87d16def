"""Maintenance and migration queries on a SQLite database: its schema, measures, checks and log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Table
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.facts import Catalogue, Form, Measures, Original
from lastlight_state.backends.sql.expressions import quote_name
from lastlight_state.backends.sqlite import checkpoints, originals
from lastlight_state.backends.sqlite.bulk import Moving
from lastlight_state.backends.sqlite.catalogue import catalogue_of, shape_of
from lastlight_state.backends.sqlite.checkpoints import WriteAheadLog
from lastlight_state.backends.sqlite.dbapi import error_name, sqlite3
from lastlight_state.backends.sqlite.driver import read_only_met
from lastlight_state.backends.sqlite.examining import find_problems, read_measures, rebuilt, run_checkpoint
from lastlight_state.backends.sqlite.originals import SqliteOriginal
from lastlight_state.backends.sqlite.pragmas import piece
from lastlight_state.errors import StateError
from lastlight_state.unwinding import block

_log = logging.getLogger("lastlight_state.backends")


class SqliteUpkeep(Moving, Backend):
    """The part of the backend that maintenance and migrations use."""

    _path: Path | None
    _log: WriteAheadLog | None

    def unit_error(self, checkout: Checkout, error: Exception) -> StateError:
        if error_name(error) == "SQLITE_READONLY" and checkout.mode.writes:
            checkout.broken = True  # it stays read-only, even if the rights come back
            return read_only_met(checkout.driver) or super().unit_error(checkout, error)
        return super().unit_error(checkout, error)

    def original(self, connection: Connection) -> Original:
        return SqliteOriginal(connection.connection.dbapi_connection)

    def catalogue(self, connection: Connection) -> Catalogue:
        return catalogue_of(connection.connection.dbapi_connection)

    def shape(self, connection: Connection) -> Catalogue:
        return shape_of(connection.connection.dbapi_connection)

    def column_names(self, checkout: Checkout, table: str) -> frozenset[str]:
        asked = f"PRAGMA table_info({quote_name(table)})"  # as a function it would create a virtual table each time
        found = self._patiently(checkout, lambda: checkout.driver.execute(asked).fetchall())
        return frozenset([row[1] for row in found])

    def damages(self, checkout: Checkout, *, deep: bool) -> list[str]:
        return self._patiently(checkout, lambda: find_problems(checkout.driver, deep=deep))

    def checkpoint(self, checkout: Checkout, mode: str) -> tuple[bool, int, int] | None:
        log = self._log
        if log is None:
            return self._patiently(checkout, lambda: run_checkpoint(checkout.driver, mode))
        with self._second(checkout) as reader:
            seconds = piece(self.options, writes=True)
            return self._patiently(
                checkout, lambda: checkpoints.make_checkpoint(log, checkout.driver, reader, mode, seconds)
            )

    def vacuum(self, checkout: Checkout, tables: Sequence[str], *, analyze: bool, full: bool) -> None:
        self._patiently(checkout, lambda: rebuilt(checkout.driver, self.files))

    def malformed_condition(self, column: ColumnElement[Any], form: Form) -> ColumnElement[bool] | None:
        return originals.malformed_condition(column, form)

    def newest(self, table: Table) -> ColumnElement[Any]:
        return originals.newest(table)

    def measures(self, checkout: Checkout, tables: Sequence[str]) -> Measures:
        mode, pages = self._connections.journal_mode, self.options.wal_autocheckpoint
        return self._patiently(checkout, lambda: read_measures(checkout.driver, self.files, tables, mode, pages))

    def _bring_in(self, log: WriteAheadLog, checkout: Checkout) -> None:
        """Make the checkpoint that is due.

        If something blocks it, leave it to the next unit, because this unit has ended.
        """
        try:
            with self._second(checkout) as reader:
                checkpoints.bring_in(log, checkout.driver, reader)
        except (sqlite3.Error, OSError, SQLAlchemyError, StateError) as error:
            _log.debug("checkpoint after a commit: %s", error)
            checkout.broken |= bool(checkout.driver.in_transaction)

    @block
    def _second(self, checkout: Checkout) -> Iterator[Any]:
        """Lend a second connection to the file of the checkout."""
        if self._path is None:
            with self._connections.second_connection(checkout) as driver:
                yield driver
        else:
            with Checkout(Mode.READ, self) as reading:
                yield reading.driver
