"""Selects the rows of a bundle: for each table, statements and the keys that find its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.records import MessageType
from lastlight_state.conversations.shared import references
from lastlight_state.conversations.tables import (
    BRANCHES,
    CHANGES,
    DELIVERIES,
    INBOXES,
    LINKS,
    MEMBERS,
    MESSAGES,
    NAMESPACES,
    PROGRESSIONS,
    SESSIONS,
    TRANSITIONS,
    TYPES,
    VECTORS,
)
from lastlight_state.conversations.words import SESSION
from lastlight_state.db import reconcile
from lastlight_state.db.lists import filters
from lastlight_state.db.lists.filters import family, rows
from lastlight_state.db.rows.statements import Family, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, NotFound
from lastlight_state.maintenance.bundles import row_lines
from lastlight_state.maintenance.copy import tables
from lastlight_state.maintenance.copy.tables import Subject, batches, subjects
from lastlight_state.maintenance.copy.transfer import output_tables
from lastlight_state.maintenance.shared.run_tables import RUN_TABLES
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.outputs.models import REGISTRY
from lastlight_state.workflows.tables import EXECUTIONS, RUNS

# Rows that belong to a session's messages, besides its orders: deliveries, inboxes, memberships and chunks of text. A
# chunk belongs to its document: a message, a branch or the session. A chunk without a document belongs to the row that
# has its id.

_d, _v, _n = DELIVERIES.c, VECTORS.c, NAMESPACES.c

#: The tables of deliveries, inboxes, memberships, and chunks with their namespaces.
RELATED_TABLES = (INBOXES, DELIVERIES, MEMBERS, NAMESPACES, VECTORS)

_DELIVERED = family(lambda keys: sa.select(_d.message_id).where(_d.owner.in_(keys)))
_OWNERS = family(lambda keys: sa.select(_d.owner).where(_d.message_id.in_(keys)).distinct())
#: Joins chunks by namespace, because their indexes begin with the namespace. There are few namespaces.
_CHUNKS = NAMESPACES.join(VECTORS, _v.namespace == _n.namespace)


def _about(keys: Any) -> sa.ColumnElement[bool]:
    return sa.or_(_v.document_id.in_(keys), sa.and_(_v.document_id.is_(None), _v.id.in_(keys)))


_SPACES = family(lambda keys: sa.select(_n.namespace).select_from(_CHUNKS).where(_about(keys)).distinct())
#: Reads the chunks of these messages, branches and sessions.
CHUNKS = family(
    lambda keys: sa.select(*_v).select_from(_CHUNKS).where(_about(keys)).order_by(*Subject(VECTORS).sort_order)
)


def delivered_messages(unit: Unit, owners: Iterable[str]) -> set[str]:
    """Return the ids of the messages in the inboxes of these owners."""
    return _related_values(unit, _DELIVERED, owners)


def inboxes(unit: Unit, owners: Iterable[str], messages: Iterable[str]) -> set[str]:
    """Return the inboxes of these owners, and all inboxes that contain these messages."""
    return _related_values(unit, _OWNERS, messages) | set(owners)


def namespaces(unit: Unit, keys: Iterable[str]) -> set[str]:
    """Return the namespaces that have chunks of these messages, branches and sessions."""
    return _related_values(unit, _SPACES, keys)


def _related_values(unit: Unit, statements: Family, keys: Iterable[str]) -> set[str]:
    return {value for row in rows(unit, statements, keys) for value in row.values()}


#: Returns the row to write in place of a row.
Marking = Callable[[row_lines.Row], row_lines.Row]

#: How many rows are decoded together.
_ROWS = 100

_INVOCATION_KINDS, _SOURCE_KINDS = METADATA.tables["invocation_kinds"], METADATA.tables["source_kinds"]

_e, _s, _b, _p = EXECUTIONS.c, SESSIONS.c, BRANCHES.c, PROGRESSIONS.c
_CLASSES = statement_of(sa.select(TYPES.c.type_id, TYPES.c.lion_class), MessageType)
_RUN_THERE = filters.family(lambda keys: sa.select(RUNS.c.id.label("key")).where(RUNS.c.id.in_(keys)))
_AGENT_SESSIONS = filters.family(lambda keys: sa.select(_e.session_id.label("key")).where(_e.workflow_run_id.in_(keys)))
_SESSION: Family[tuple[str, str | None]] = filters.family(
    lambda keys: sa.select(_s.id, _s.agent_session_id).where(_s.id.in_(keys)), tuple
)


_HEAD = (_b.id, _b.parent_branch_id, _b.session_id)
#: A branch: its id, the branch that it was forked from, and its session.
_Head = tuple[str, str | None, str]
_OWN: Family[_Head] = filters.family(lambda keys: sa.select(*_HEAD).where(_b.session_id.in_(keys)), tuple)
_AMONG: Family[_Head] = filters.family(lambda keys: sa.select(*_HEAD).where(_b.id.in_(keys)), tuple)
_WORDS = {
    table.c.word: filters.family(lambda keys, column=column: sa.select(column.label("key")).where(_s.id.in_(keys)))
    for table, column in ((_INVOCATION_KINDS, _s.invocation_kind), (_SOURCE_KINDS, _s.source_kind))
}
_ORDERS = (
    filters.family(lambda keys: sa.select(_s.progression_id.label("key")).where(_s.id.in_(keys))),
    filters.family(lambda keys: sa.select(_b.progression_id.label("key")).where(_b.id.in_(keys))),
)
_POINTED = (
    filters.family(lambda keys: sa.select(_s.first_msg_id.label("key"), _s.last_msg_id).where(_s.id.in_(keys))),
    filters.family(lambda keys: sa.select(_b.system_msg_id.label("key")).where(_b.id.in_(keys))),
)
#: The tables of a bundle, by its kind. A run also has output tables.
TABLES = {
    "run": frozenset({RUNS.name, REGISTRY.name, *(column.table.name for column in RUN_TABLES)}),
    "session": frozenset(
        table.name
        for table in (
            SESSIONS,
            BRANCHES,
            PROGRESSIONS,
            LINKS,
            MESSAGES,
            TRANSITIONS,
            CHANGES,
            _INVOCATION_KINDS,
            _SOURCE_KINDS,
            *RELATED_TABLES,
        )
    ),
}


@dataclass(frozen=True)
class Selection:
    """The rows of a bundle, by table. ``logs`` are the ids of the agent sessions whose logs belong to the bundle."""

    rows: Sequence[tuple[Subject, Family, Sequence[str]]]
    logs: Sequence[str]
    context: dict[str, tuple[str, ...]] = field(default_factory=dict)


def select_rows(unit: Unit, kind: str, key: str) -> Selection:
    """Return the selection for a run or session. Raises `NotFound`."""
    return _run(unit, key) if kind == "run" else _session(unit, key)


def rows_of(
    unit: Unit, subject: Subject, reading: Family, keys: Sequence[str], marked: Marking | None = None
) -> Iterator[bytes]:
    """Yield the lines of the rows that these statements find, read lazily. ``marked`` changes each row."""
    names = {one.type_id: one.lion_class for one in unit.rows(_CLASSES)} if subject.table is MESSAGES else None
    for chunk in filters.chunks(keys):
        statement, values = reading.of(chunk)
        compiled = statement.on(unit.backend)
        stored = unit.backend.stream(unit, compiled.sql, compiled.parameters(values), subject.shown)
        for batch in batches(stored, _ROWS):
            found = compiled.rows(batch)
            found = found if names is None else row_lines.translate_classes(found, names)
            yield from map(row_lines.line_of, found if marked is None else map(marked, found))


def refuse_unregistered(unit: Unit, names: Collection[str] | None = None) -> None:
    """Raise `Conflict` ``unregistered_columns`` if an output table has columns that a bundle would not include.

    ``names`` are the names of the tables to check; None for every output table.
    """
    tables = [table for table in output_tables(unit) if names is None or table.name in names]
    there = reconcile.present(unit, [table.name for table in tables])
    for table in tables:
        if table.name in there and (more := sorted(there[table.name].columns.keys() - set(table.columns.keys()))):
            raise Conflict(
                f"{table.name}.{more[0]} is not declared to the library: attach the table with all its columns",
                code="unregistered_columns",
            )


def left_columns(unit: Unit, kind: str) -> list[str]:
    """Return columns with values that other programs added to tables of this kind. Bundles do not include them."""
    return tables.filled_columns(unit, [METADATA.tables[name] for name in sorted(TABLES[kind])])


def classes(unit: Unit, names: Iterable[str]) -> dict[str, int]:
    """Return this database's number of each class, -1 for an unknown class."""
    known = {one.lion_class: one.type_id for one in unit.rows(_CLASSES)}
    return {name: known.get(name, -1) for name in names}


def registry_lines(unit: Unit, tables: Sequence[str]) -> Iterator[bytes]:
    """Yield the registry rows of these output tables as lines."""
    return rows_of(unit, Subject(REGISTRY), _key_family(REGISTRY.c.table_name), tables)


@lru_cache(maxsize=256)
def _key_family(column: sa.Column[Any]) -> Family:
    subject = Subject(column.table)
    return Family("key", lambda keys: sa.select(*subject.shown).where(column.in_(keys)).order_by(*subject.sort_order))


def _run(unit: Unit, run_id: str) -> Selection:
    if not _values(unit, _RUN_THERE, {run_id}):
        raise NotFound("workflow_run", run_id)
    tables = {table.name: table for table in output_tables(unit)}
    outputs = [tables[name] for name in reconcile.existing_tables(unit, sorted(tables))]
    columns = {column.table.name: column for column in (RUNS.c.id, *RUN_TABLES, *(one.c.run_id for one in outputs))}
    chosen = [(one, _key_family(columns[one.name]), [run_id]) for one in subjects(outputs) if one.name in columns]
    return Selection(chosen, sorted(_values(unit, _AGENT_SESSIONS, {run_id})))


def _session(unit: Unit, session_id: str) -> Selection:
    found = list(filters.rows(unit, _SESSION, {session_id}))
    if not found:
        raise NotFound(SESSION, session_id)
    branches, sessions = _family_of(unit, session_id)
    orders = _values(unit, _ORDERS[0], sessions) | _values(unit, _ORDERS[1], branches.keys())
    messages = {message for order in orders for _, message in references.links(unit, order)}
    messages |= _values(unit, _POINTED[0], sessions) | _values(unit, _POINTED[1], branches.keys())
    owners = {session_id, *(branch for branch, owner in branches.items() if owner == session_id)}
    messages |= delivered_messages(unit, owners)
    keys: dict[sa.Column[Any], set[str]] = {
        _s.id: sessions,
        _b.id: set(branches),
        _p.id: orders,
        LINKS.c.progression_id: orders,
        MESSAGES.c.id: messages,
        TRANSITIONS.c.session_id: sessions,
        CHANGES.c.session_id: sessions,
        **{word: _values(unit, family, sessions) for word, family in _WORDS.items()},
        INBOXES.c.owner: inboxes(unit, owners, messages),
        DELIVERIES.c.message_id: messages,
        MEMBERS.c.member: owners,
        NAMESPACES.c.namespace: namespaces(unit, messages | owners),
    }
    found_by = {column.table.name: (_key_family(column), values) for column, values in keys.items()}
    found_by[VECTORS.name] = (CHUNKS, messages | owners)
    others = {"sessions": sessions - {session_id}, "branches": branches.keys() - owners}
    return Selection(
        [(one, found_by[one.name][0], sorted(found_by[one.name][1])) for one in subjects(()) if one.name in found_by],
        [agent_session_id for _, agent_session_id in found if agent_session_id is not None],
        {name: tuple(sorted(ids)) for name, ids in others.items() if ids},
    )


def _family_of(unit: Unit, session_id: str) -> tuple[dict[str, str], set[str]]:
    """Return the session's branches and their ancestors, each with its session's id, and all these session ids."""
    found: dict[str, str] = {}
    looked = list(filters.rows(unit, _OWN, {session_id}))
    while looked:
        found |= {branch_id: owner for branch_id, _, owner in looked}
        named = {parent for _, parent, _ in looked if parent is not None}
        parents = named - found.keys()
        looked = list(filters.rows(unit, _AMONG, parents))
    return found, {session_id, *found.values()}


def _values(unit: Unit, family: Family, keys: Any) -> set[str]:
    return {value for row in filters.rows(unit, family, keys) for value in row.values() if value is not None}
