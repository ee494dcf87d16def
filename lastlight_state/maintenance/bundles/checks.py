"""What only all rows of a bundle show: that what they refer to is there, and that their words are known.

A bundle may come from anywhere. What is found here is refused by its name before anything is written; otherwise the
database would refuse it without one, or store a status that nothing acts on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.declarations import vocabularies
from lastlight_state.db.keyed import family, rows
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.maintenance.bundles.lines import CLASS, Row
from lastlight_state.maintenance.bundles.opened import damaged
from lastlight_state.maintenance.bundles.selection import TABLES
from lastlight_state.maintenance.copy.contents import shown
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.workflows.tables import RUNS

_r, _same = RUNS.c, RUNS.alias("same")
#: The run that has the key which a run that is not stored would get.
_HOLDER = prepared(
    sa.select(_r.id).where(
        _r.workflow_name == bind("workflow_name", _r.workflow_name),
        _r.run_key == bind("run_key", _r.run_key),
        ~sa.exists().where(_same.c.id == bind("id", _r.id)),
    )
)

Reference = tuple[sa.Column[Any], sa.Column[Any]]

_WORDS: dict[str, list[tuple[str, Collection[str]]]] = {}
for _column, _known in vocabularies(METADATA.sorted_tables):
    _WORDS.setdefault(_column.table.name, []).append((_column.name, _known))


def _references(table: sa.Table) -> list[Reference]:
    """Return the columns of a table that refer to rows, but for a message's class: it is made where it is unknown."""
    return [(key.parent, key.column) for key in table.foreign_keys if key.parent is not CLASS]


_REFERENCES = {name: _references(METADATA.tables[name]) for name in sorted(frozenset().union(*TABLES.values()))}
_TARGETS = {target for references in _REFERENCES.values() for _, target in references}
_STORED = {target: family(lambda keys, column=target: sa.select(column).where(column.in_(keys))) for target in _TARGETS}


class References:
    """What the rows of a bundle refer to. Tables come in the order in which they are stored."""

    def __init__(self, view: Unit) -> None:
        self._view = view
        self._seen: dict[sa.Column[Any], set[Any]] = {target: set() for target in _TARGETS}

    def confirm(self, table: sa.Table, given: Iterable[Row]) -> None:
        """Raise `Conflict` ``damaged_bundle`` for a row that refers to one that is neither in the bundle nor stored."""
        for target in _TARGETS:
            if target.table is table:
                self._seen[target].update(row.get(target.name) for row in given)
        for column, target in _REFERENCES.get(table.name, ()):
            asked = {str(row[column.name]) for row in given if row.get(column.name) is not None} - self._seen[target]
            there = {row[target.name] for row in rows(self._view, _STORED[target], asked)}
            if lacking := sorted(asked - there):
                problem = f"refers to {lacking[0]!r:.200} of {target.table.name}, which is neither in it nor stored"
                raise damaged(f"rows/{table.name}.jsonl", f"{column.name} {problem}")


def refuse_taken_keys(view: Unit, table: sa.Table, given: Iterable[Row]) -> None:
    """Raise `AlreadyExists` for a run whose key another run of its workflow has."""
    for row in given if table is RUNS else ():
        holder = view.value(_HOLDER, {name: row.get(name) for name in ("id", "workflow_name", "run_key")})
        if holder is not None:
            raise AlreadyExists(RUNS.name, row["id"], problem=f"has the key of the run {holder!r:.300}")


def refuse_unknown_words(table: sa.Table, given: Iterable[Row]) -> None:
    """Raise `Conflict` ``unknown_word`` for a status, or another such word, that this version does not know."""
    for name, known in _WORDS.get(table.name, ()):
        for row in given:
            if row.get(name) is not None and row[name] not in known:
                key = shown([row[column.name] for column in table.primary_key])
                raise Conflict(
                    f"{table.name} {key}: {name} is {row[name]!r:.80}, which this version does not know",
                    code="unknown_word",
                    table=table.name,
                    key=key,
                    column=name,
                    word=row[name],
                )
