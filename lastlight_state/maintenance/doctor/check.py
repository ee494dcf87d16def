"""Checks, their context, and their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import sqlalchemy as sa

from lastlight_state.backends.base import Backend
from lastlight_state.backends.facts import Measures
from lastlight_state.db import reconcile
from lastlight_state.db.lists.pages import pages_of
from lastlight_state.db.rows.records import Page, Record
from lastlight_state.db.rows.statements import number, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.settings import Settings

# Records of examinations.


class Finding(Record):
    """A finding: a fault, or a fact that operators should know.

    ``severity`` is ``error``, ``warning`` or ``info``. ``subject`` is a table, file or setting. ``count`` is the number
    of cases (at most 10,000 are counted), and ``samples`` names the first 20. ``remedy`` is the command to run, None if
    no command helps.
    """

    check: str
    severity: str
    subject: str
    message: str
    count: int = 1
    samples: tuple[str, ...] = ()
    remedy: str | None = None


class SkippedCheck(Record):
    """A check that did not run, and the reason."""

    check: str
    reason: str


class Report(Record):
    """The report of an examination: findings, the worst first, and the checks that ran and were skipped."""

    findings: tuple[Finding, ...]
    checks_run: tuple[str, ...]
    checks_skipped: tuple[SkippedCheck, ...]

    def worst(self) -> str | None:
        """Return the severity of the worst finding, or None."""
        return self.findings[0].severity if self.findings else None


RecordT = TypeVar("RecordT", bound=Record)

#: How many faults of one kind are counted, and how many are named.
MOST, SAMPLES = 10_000, 20


@dataclass(frozen=True)
class CheckContext:
    """The context of a check. With ``deep``, every row and line is read."""

    backend: Backend
    settings: Settings
    now: datetime
    deep: bool


class Snapshot:
    """A snapshot of the database, in which checks run."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit

    @cached_property
    def tables(self) -> frozenset[str]:
        """Return the names of this library's existing tables."""
        return frozenset(reconcile.existing_tables(self.unit, METADATA.tables))

    @cached_property
    def measures(self) -> Measures:
        """Return the sizes and settings of the database."""
        return self.unit.backend.measures(self.unit, tuple(METADATA.tables))


@dataclass(frozen=True)
class Check:
    """A check with an id. ``files`` runs without a database, and ``rows`` needs one.

    ``deep`` checks run only when asked for.
    """

    id: str
    files: Callable[[CheckContext], Iterable[Finding]] | None = None
    rows: Callable[[CheckContext, Snapshot], Iterable[Finding]] | None = None
    deep: bool = False


@dataclass(frozen=True)
class Fault:
    """A fault in rows of a table, with a statement that finds them and whose columns identify a row."""

    check: str
    severity: str
    table: sa.Table
    message: str
    find: sa.Select[Any]
    remedy: str | None = None

    def look(self, look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
        """Yield one finding if the table has such rows. A missing table has none."""
        if self.table.name not in snapshot.tables:
            return
        statement = statement_of(self.find.limit(number(MOST)))
        rows = snapshot.unit.rows(statement, {"now": look.now})
        if rows:
            yield make_finding(
                self.check, self.severity, str(self.table.name), self.message, map(row_text, rows), self.remedy
            )


def of_faults(
    check: str, faults: Sequence[Fault], *more: Callable[[CheckContext, Snapshot], Iterable[Finding]]
) -> Check:
    """Return a check that searches for these faults, and that also runs the functions ``more``."""

    def look_for_all(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
        for search in (*(fault.look for fault in faults), *more):
            yield from search(look, snapshot)

    return Check(check, rows=look_for_all)


def make_finding(
    check: str, severity: str, subject: str, message: str, samples: Iterable[str], remedy: str | None = None
) -> Finding:
    """Return a finding with these samples. At least one sample is required."""
    everything = list(samples)
    return Finding(
        check=check,
        severity=severity,
        subject=subject,
        message=message,
        count=len(everything),
        samples=tuple(everything[:SAMPLES]),
        remedy=remedy,
    )


def every(page_of: Callable[..., Page[RecordT]]) -> Iterator[RecordT]:
    """Yield all records of a list call, page by page."""
    for page in pages_of(page_of, limit=500):
        yield from page.items


def row_text(row: Mapping[str, object]) -> str:
    """Return the values of a row as one text that identifies the row in a finding."""
    return " ".join(str(value)[:80] for value in row.values())
