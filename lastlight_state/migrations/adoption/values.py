"""Finds values of the original program's tables that are in another form than this library stores.

Statements compare stored values as they stand. A time or a flag that is spelled another way would be read rightly and
compared wrongly, so it is brought into its form, or refused by name. Numbers and JSON in a wrong form cannot be read at
all: they stay, and their rows are told to be damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lastlight_state.backends.facts import Catalogue, Form, Malformed, Original
from lastlight_state.db.columns import form_of
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.migrations.state import SEED_TABLES

_MEANT: dict[Form, str] = {"time": "as times are here, like 2026-02-03T12:34:56.789Z", "flag": "as 0 or 1"}


@dataclass(frozen=True)
class Misspelt:
    """Values of a column that are in another form than its own."""

    table: str
    column: str
    form: Form
    found: Malformed

    @property
    def change(self) -> str:
        """What an adoption does with them."""
        return f"writes {self.column} {_MEANT[self.form]}; found {self._samples}"

    @property
    def remark(self) -> str:
        """That they stay."""
        return (
            f"{self.found.values} values of {self.table}.{self.column} are no {self.form}, such as {self._samples}; "
            "lists mark their rows as damaged"
        )

    @property
    def refusals(self) -> tuple[str, ...]:
        """One line for each value for which the database is not taken over, as far as they are named."""
        return tuple(
            f"{self.table}.{self.column} is {lost}, which is no {self.form} that can be read: correct it, then repeat"
            for lost in self.found.lost
        )

    @property
    def _samples(self) -> str:
        return ", ".join(map(repr, self.found.samples))


def malformed(original: Original, found: Catalogue) -> Iterator[Misspelt]:
    """Look for such values in all columns of the original program that the database has."""
    for table in SEED_TABLES:
        key = [column.name for column in METADATA.tables[table].primary_key.columns]
        for column in METADATA.tables[table].columns:
            form = form_of(column)
            if form is None or ("column", table, column.name) not in found:
                continue
            there = original.malformed(table, key, column.name, form)
            if there.values:
                yield Misspelt(table, column.name, form, there)
