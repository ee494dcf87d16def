"""Prepares a bundle's rows for loading: refuses bad rows, gives new ids, and compares rows with stored rows.

Stored inboxes fill, stored deliveries are acknowledged, and stored chunks are replaced. So stored rows of these tables
may differ from the bundle, and are not changed. Only two kinds of rows are refused: a delivery at a position where the
inbox has another message, and chunks for a namespace whose embeddings have another length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations import tables as talks
from lastlight_state.conversations.exchange.statements import sorted_names
from lastlight_state.conversations.tables import (
    DELIVERIES,
    INBOXES,
    LINKS,
    NAMESPACES,
    PROGRESSIONS,
    SESSIONS,
    TRANSITIONS,
    VECTORS,
)
from lastlight_state.db.lists.filters import family, rows
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.schema.declarations import vocabularies
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.ids import series
from lastlight_state.journal.models import SCORES, SEQUENCES, SIGNALS, TOOL_CALLS
from lastlight_state.maintenance.backup.restoring import LINES
from lastlight_state.maintenance.bundles import row_lines
from lastlight_state.maintenance.bundles.archive import damaged_bundle
from lastlight_state.maintenance.bundles.row_lines import CLASS
from lastlight_state.maintenance.bundles.selection import TABLES
from lastlight_state.maintenance.copy import row_merge
from lastlight_state.maintenance.copy.contents import key_text
from lastlight_state.maintenance.shared.run_tables import RUN_TABLES
from lastlight_state.maintenance.upkeep.counters import COUNTERS
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.workflows.executions.lists import POINTER
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, REQUESTS, RUNS

# Checks that need all rows of a bundle: foreign keys, run keys, and known words. A bundle may come from anywhere. These
# checks name a bad row before the first write. Otherwise the database would refuse the row without naming it, or store
# a status that nothing acts on.

_r, _same = RUNS.c, RUNS.alias("same")
#: Finds the run that has the run key of a new run.
_HOLDER = statement_of(
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
    """Return a table's foreign keys, without the one to a message's class, because an unknown class is created."""
    return [(key.parent, key.column) for key in table.foreign_keys if key.parent is not CLASS]


_REFERENCES = {name: _references(METADATA.tables[name]) for name in sorted(frozenset().union(*TABLES.values()))}
_TARGETS = {target for references in _REFERENCES.values() for _, target in references}
_STORED = {target: family(lambda keys, column=target: sa.select(column).where(column.in_(keys))) for target in _TARGETS}


class References:
    """A check of the foreign keys in a bundle's rows. Tables must be checked in the order in which they are stored."""

    def __init__(self, view: Unit) -> None:
        self._view = view
        self._seen: dict[sa.Column[Any], set[Any]] = {target: set() for target in _TARGETS}

    def confirm(self, table: sa.Table, given: Iterable[Row]) -> None:
        """Raise `Conflict` ``damaged_bundle`` if the row of a foreign key is neither in the bundle nor stored."""
        for target in _TARGETS:
            if target.table is table:
                self._seen[target].update(row.get(target.name) for row in given)
        for column, target in _REFERENCES.get(table.name, ()):
            asked = {str(row[column.name]) for row in given if row.get(column.name) is not None} - self._seen[target]
            there = {row[target.name] for row in rows(self._view, _STORED[target], asked)}
            if lacking := sorted(asked - there):
                problem = f"refers to {lacking[0]!r:.200} of {target.table.name}, which is neither in it nor stored"
                raise damaged_bundle(f"rows/{table.name}.jsonl", f"{column.name} {problem}")


def refuse_taken_keys(view: Unit, table: sa.Table, given: Iterable[Row]) -> None:
    """Raise `AlreadyExists` for a run whose run key is the key of another stored run of its workflow."""
    for row in given if table is RUNS else ():
        holder = view.value(_HOLDER, {name: row.get(name) for name in ("id", "workflow_name", "run_key")})
        if holder is not None:
            raise AlreadyExists(RUNS.name, row["id"], problem=f"has the key of the run {holder!r:.300}")


def refuse_unknown_words(table: sa.Table, given: Iterable[Row]) -> None:
    """Raise `Conflict` ``unknown_word`` for a status, or a similar word, that this version does not know."""
    for name, known in _WORDS.get(table.name, ()):
        for row in given:
            if row.get(name) is not None and row[name] not in known:
                key = key_text([row[column.name] for column in table.primary_key])
                raise Conflict(
                    f"{table.name} {key}: {name} is {row[name]!r:.80}, which this version does not know",
                    code="unknown_word",
                    table=table.name,
                    key=key,
                    column=name,
                    word=row[name],
                )


# A bundle under new ids: a run or session that is independent of the original. Every row gets a new id, and columns
# that refer to the row get it, too. Ids from outside of the bundle, such as a parent run's, stay. Texts by people and
# models are not searched for ids.

_b, _c, _renaming_d, _e = talks.BRANCHES.c, talks.CHANGES.c, talks.DELIVERIES.c, EXECUTIONS.c
_m, _s, _renaming_t = talks.MESSAGES.c, talks.SESSIONS.c, talks.TRANSITIONS.c

#: The columns with the ids of a bundle, by kind of id. Sessions and branches share a kind, because both have inboxes.
_OWN: tuple[tuple[str, sa.Column[Any]], ...] = (
    ("run", RUNS.c.id),
    ("execution", _e.id),
    ("approval", APPROVALS.c.id),
    ("request", REQUESTS.c.id),
    ("score", SCORES.c.id),
    ("log", _e.session_id),
    ("log", _s.agent_session_id),
    ("talk", _s.id),
    ("talk", _b.id),
    ("order", talks.PROGRESSIONS.c.id),
    ("message", _m.id),
    ("transition", _renaming_t.id),
)
#: The columns with an id of a bundle, including foreign keys and other references.
_NAMING: tuple[tuple[str, sa.Column[Any]], ...] = (
    *_OWN,
    *(("run", column) for column in RUN_TABLES),
    *(("execution", column) for column in (TOOL_CALLS.c.execution_id, SIGNALS.c.consumed_by, APPROVALS.c.consumed_by)),
    *(("talk", column) for column in (_b.session_id, _b.parent_branch_id, _c.session_id, _c.branch_id)),
    *(("talk", column) for column in (_renaming_t.session_id, _renaming_t.branch_id, talks.MEMBERS.c.member)),
    *(
        ("talk", column)
        for column in (
            talks.INBOXES.c.owner,
            _renaming_d.owner,
            _renaming_d.sender,
            _renaming_d.taken_by,
            _renaming_d.acked_by,
        )
    ),
    *(("talk", column) for column in (_m.sender, _m.recipient)),
    *(("order", column) for column in (_s.progression_id, _b.progression_id, _c.progression_id)),
    ("order", talks.LINKS.c.progression_id),
    *(("message", column) for column in (_s.first_msg_id, _s.last_msg_id, _b.system_msg_id)),
    *(("message", column) for column in (talks.LINKS.c.message_id, _c.message_id, _renaming_d.message_id)),
)
_RUN_ID = "run_id"
#: The recorded user of an unused permission in a copy: only the original may use it.
_COPIED = "bundle"


class Renaming:
    """The new ids for one bundle. The same ``seed`` gives the same ids.

    ``owners`` are owners whose inboxes are copied.
    """

    def __init__(
        self,
        tables: Collection[str],
        rows_of: Callable[[sa.Table], Iterator[Row]],
        owners: Collection[str],
        now: datetime,
        seed: str,
    ) -> None:
        self._owners = owners
        self._fresh = series(seed)
        self._rewritten: dict[str, dict[str, Callable[[Any], Any]]] = {
            RUNS.name: {"scratch": self._scratch, **dict.fromkeys(("run_key", "create_digest"), _clear_value)},
            talks.BRANCHES.name: {"node_metadata": self._rename_parent_branch},
        }
        self._now = now
        self._ids: dict[str, dict[str, str]] = {kind: {} for kind, _ in _OWN}
        self._columns: dict[str, list[tuple[str, str]]] = {}
        for kind, column in _NAMING:
            self._columns.setdefault(column.table.name, []).append((kind, column.name))
        for table in dict.fromkeys(column.table for _, column in _OWN if column.table.name in tables):
            names = [(kind, column.name) for kind, column in _OWN if column.table is table]
            for row in rows_of(table):
                self._give(row, names)
        if talks.VECTORS.name in tables:
            about = {**self._ids["talk"], **self._ids["message"]}
            self._ids["chunk"] = {
                key: about.get(key) or next(self._fresh) for key in sorted(_keys(rows_of(talks.VECTORS)))
            }
            self._ids["document"] = about
            self._columns[talks.VECTORS.name] = [("chunk", "id"), ("document", "document_id")]

    def id(self, kind: str, old: str) -> str:
        """Return the new id for an old id of the kind ``run`` or ``talk``."""
        return self._ids[kind].get(old, old)

    def rows(self, table: sa.Table, rows: list[Row]) -> list[Row]:
        """Return the rows under their new ids. Inboxes and deliveries of other owners are left out."""
        if table in (talks.INBOXES, talks.DELIVERIES):
            rows = [row for row in rows if row.get("owner") in self._owners]
        columns = self._columns.get(table.name, [("run", _RUN_ID)] if _RUN_ID in table.c else [])
        return [self._rename_row(table, row, columns) for row in rows]

    def log(self, name: str) -> str:
        """Return the new name of a log. Its folder or file is named after the session of the agent."""
        old = row_lines.session_of(name)
        if old is None:
            return name
        _, project, session, *rest = PurePosixPath(name).relative_to(LINES[0]).parts
        new = self._ids["log"].get(old, old)
        return str(PurePosixPath(LINES[0], "projects", project, session.replace(old, new, 1), *rest))

    def _give(self, row: Row, names: list[tuple[str, str]]) -> None:
        for kind, name in names:
            if isinstance(old := row.get(name), str) and old not in self._ids[kind]:
                self._ids[kind][old] = next(self._fresh)

    def _rename_row(self, table: sa.Table, row: Row, columns: list[tuple[str, str]]) -> Row:
        told = {name: self._ids[kind].get(row[name], row[name]) for kind, name in columns if row.get(name) is not None}
        made = {**row, **told}
        for name, rewritten in self._rewritten.get(table.name, {}).items():
            if name in row:
                made[name] = rewritten(row[name])
        if table is APPROVALS and _is_unused_permission(row):
            made |= {"consumed_at": self._now, "consumed_by": _COPIED}
        return made

    def _scratch(self, scratch: Any) -> Any:
        """Return a run's scratch with the ids of executions replaced by those of the copy."""
        if not isinstance(scratch, dict):
            return scratch
        return {key: self._rename_pointer(value) for key, value in scratch.items()}

    def _rename_pointer(self, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get(POINTER), str):
            return value
        return {**value, POINTER: self._ids["execution"].get(value[POINTER], value[POINTER])}

    def _rename_parent_branch(self, metadata: Any) -> Any:
        """Return the metadata of a branch with the id of its parent branch replaced by that of the copy."""
        name = _b.parent_branch_id.name
        if not isinstance(metadata, dict) or not isinstance(metadata.get(name), str):
            return metadata
        return {**metadata, name: self._ids["talk"].get(metadata[name], metadata[name])}


def _clear_value(_: Any) -> None:
    """Return None, which replaces those keys of the original that a copy must not have."""


def _keys(rows: Iterator[Row]) -> set[str]:
    return {row["id"] for row in rows}


def _is_unused_permission(row: Row) -> bool:
    """True if a gate permits an action that was not done yet. Only the original run may use this permission."""
    used = row.get("consumed_by") is not None
    return row.get("status") == "approved" and row.get("action_digest") is not None and not used


_d, _i, _n, _p, _t = DELIVERIES.c, INBOXES.c, NAMESPACES.c, PROGRESSIONS.c, TRANSITIONS.c

_DELIVERED = family(lambda keys: sa.select(_d.message_id, _d.owner).where(_d.message_id.in_(keys)))
_MOVED = family(lambda keys: sa.select(_t.session_id, _t.seq).where(_t.session_id.in_(keys)))
_ORDERS = family(lambda keys: sa.select(_p.id).where(_p.id.in_(keys)))
_LENGTHS = family(lambda keys: sa.select(_n.namespace, _n.dimensions).where(_n.namespace.in_(keys)))
_next = bind("next_ord", _i.next_ord)
_RAISE = statement_of(
    sa.update(INBOXES).where(_i.owner == bind("owner", _i.owner), _i.next_ord < _next).values(next_ord=_next)
)

#: Counters of runs and sessions. Counters of inboxes and orders are raised when their rows are stored.
_OWN_COUNTERS = [one for one in COUNTERS if one.column.table in (RUNS, SEQUENCES, SESSIONS)]

Row = dict[str, Any]


def storable_rows(unit: Unit, table: sa.Table, given: list[Row], *, keeps: bool) -> list[Row]:
    """Return the rows that can be stored.

    With ``keeps``, chunks with embeddings of another length, and transitions whose number is taken, are left out
    instead of refused.
    """
    if table is DELIVERIES:
        there = {(row["owner"], row["message_id"]) for row in _stored_rows(unit, _DELIVERED, given, "message_id")}
        return [row for row in given if (row["owner"], row["message_id"]) not in there]
    if table is TRANSITIONS and keeps:
        taken = {(row["session_id"], row["seq"]) for row in _stored_rows(unit, _MOVED, given, "session_id")}
        return [row for row in given if (row["session_id"], row.get("seq")) not in taken]
    if table not in (NAMESPACES, VECTORS):
        return given
    lengths = {row["namespace"]: row["dimensions"] for row in _stored_rows(unit, _LENGTHS, given, "namespace")}
    other = [row for row in given if row.get("dimensions") != lengths.get(row["namespace"], row.get("dimensions"))]
    if other and not keeps:
        raise AlreadyExists(NAMESPACES.name, other[0]["namespace"], problem="has embeddings of another length")
    return [row for row in given if row not in other] if other else given


def stored_orders(unit: Unit, given: Sequence[Row]) -> set[str]:
    """Return the ids of those orders that are stored already."""
    return {row["id"] for row in _stored_rows(unit, _ORDERS, given, "id")}


def new_links(unit: Unit, given: Sequence[Row], held: set[str], *, keeps: bool) -> list[Row]:
    """Return the links that can be stored. An order in ``held``, which was stored before this load, gets no new link.

    Raises `AlreadyExists` if such an order lacks a link, unless ``keeps``.
    """
    asked = {LINKS.name: [row for row in given if row["progression_id"] in held]}
    lacking = row_merge.missing_rows(unit, asked, keeps=True).get(LINKS.name, [])
    if lacking and not keeps:
        raise AlreadyExists(PROGRESSIONS.name, lacking[0]["progression_id"], problem="has not this message")
    left_out = {(row["progression_id"], row["ord"]) for row in lacking}
    return [row for row in given if (row["progression_id"], row["ord"]) not in left_out]


def raise_numbers(unit: Unit, inboxes: Iterable[Row]) -> None:
    """Raise the next numbers of inboxes above the bundle's deliveries.

    Locks the inboxes in the order that senders use.
    """
    numbers = {row["owner"]: row.get("next_ord", 0) for row in inboxes}
    for owner in sorted_names(numbers):
        unit.change(_RAISE, {"owner": owner, "next_ord": numbers[owner]})


def raise_counters(unit: Unit, keys: Iterable[str]) -> None:
    """Raise the counters of these runs or sessions above the numbers of their rows, after a load that kept counters."""
    for key in sorted(keys):
        for counter in _OWN_COUNTERS:
            unit.row(counter.mend, {"key": key})


def _stored_rows(unit: Unit, statements: Any, given: Sequence[Row], name: str) -> Iterable[Row]:
    return rows(unit, statements, {row[name] for row in given})
