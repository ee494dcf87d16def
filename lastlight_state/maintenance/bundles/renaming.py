"""A bundle under new ids: a run or session that is independent of the one from which it was made.

What has an id gets a fresh one, and whatever names it is changed along. What names something outside of the bundle,
such as a parent run, stays. Texts that people and models wrote are not searched for ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations import tables as talks
from lastlight_state.ids import series
from lastlight_state.journal.tables import SCORES, SIGNALS, TOOL_CALLS
from lastlight_state.maintenance.backup.records import LINES
from lastlight_state.maintenance.bundles import logs
from lastlight_state.maintenance.bundles.lines import Row
from lastlight_state.maintenance.run_tables import RUN_TABLES
from lastlight_state.workflows.executions.outputs import POINTER
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, REQUESTS, RUNS

_b, _c, _d, _e = talks.BRANCHES.c, talks.CHANGES.c, talks.DELIVERIES.c, EXECUTIONS.c
_m, _s, _t = talks.MESSAGES.c, talks.SESSIONS.c, talks.TRANSITIONS.c

#: The columns that hold the ids of a bundle, by what has them. Sessions and branches have inboxes, and so one series.
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
    ("transition", _t.id),
)
#: The columns that name one of these.
_NAMING: tuple[tuple[str, sa.Column[Any]], ...] = (
    *_OWN,
    *(("run", column) for column in RUN_TABLES),
    *(("execution", column) for column in (TOOL_CALLS.c.execution_id, SIGNALS.c.consumed_by, APPROVALS.c.consumed_by)),
    *(("talk", column) for column in (_b.session_id, _b.parent_branch_id, _c.session_id, _c.branch_id)),
    *(("talk", column) for column in (_t.session_id, _t.branch_id, talks.MEMBERS.c.member)),
    *(("talk", column) for column in (talks.INBOXES.c.owner, _d.owner, _d.sender, _d.taken_by, _d.acked_by)),
    *(("talk", column) for column in (_m.sender, _m.recipient)),
    *(("order", column) for column in (_s.progression_id, _b.progression_id, _c.progression_id)),
    ("order", talks.LINKS.c.progression_id),
    *(("message", column) for column in (_s.first_msg_id, _s.last_msg_id, _b.system_msg_id)),
    *(("message", column) for column in (talks.LINKS.c.message_id, _c.message_id, _d.message_id)),
)
_RUN_ID = "run_id"
#: Who has used a permission that was given to the original.
_COPIED = "bundle"


class Renaming:
    """The new ids of one bundle: the same ones for the same ``seed``. ``owners`` have inboxes that are copied."""

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
            RUNS.name: {"scratch": self._scratch, **dict.fromkeys(("run_key", "create_digest"), _nothing)},
            talks.BRANCHES.name: {"node_metadata": self._mirrored},
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
        """The new id of a ``run`` or ``talk``."""
        return self._ids[kind].get(old, old)

    def rows(self, table: sa.Table, rows: list[Row]) -> list[Row]:
        """The rows under their new ids, without what belongs to others: their inboxes and what was delivered there."""
        if table in (talks.INBOXES, talks.DELIVERIES):
            rows = [row for row in rows if row.get("owner") in self._owners]
        columns = self._columns.get(table.name, [("run", _RUN_ID)] if _RUN_ID in table.c else [])
        return [self._renamed(table, row, columns) for row in rows]

    def log(self, name: str) -> str:
        """The new name of a log: the folder, or the file, that has the name of an agent's session."""
        old = logs.session_of(name)
        if old is None:
            return name
        _, project, session, *rest = PurePosixPath(name).relative_to(LINES[0]).parts
        new = self._ids["log"].get(old, old)
        return str(PurePosixPath(LINES[0], "projects", project, session.replace(old, new, 1), *rest))

    def _give(self, row: Row, names: list[tuple[str, str]]) -> None:
        for kind, name in names:
            if isinstance(old := row.get(name), str) and old not in self._ids[kind]:
                self._ids[kind][old] = next(self._fresh)

    def _renamed(self, table: sa.Table, row: Row, columns: list[tuple[str, str]]) -> Row:
        told = {name: self._ids[kind].get(row[name], row[name]) for kind, name in columns if row.get(name) is not None}
        made = {**row, **told}
        for name, rewritten in self._rewritten.get(table.name, {}).items():
            if name in row:
                made[name] = rewritten(row[name])
        if table is APPROVALS and _is_unused_permission(row):
            made |= {"consumed_at": self._now, "consumed_by": _COPIED}
        return made

    def _scratch(self, scratch: Any) -> Any:
        """Scratch whose pointers are to the executions of the copy."""
        if not isinstance(scratch, dict):
            return scratch
        return {key: self._pointing(value) for key, value in scratch.items()}

    def _pointing(self, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get(POINTER), str):
            return value
        return {**value, POINTER: self._ids["execution"].get(value[POINTER], value[POINTER])}

    def _mirrored(self, metadata: Any) -> Any:
        """Metadata of a fork, which repeat its parent."""
        name = _b.parent_branch_id.name
        if not isinstance(metadata, dict) or not isinstance(metadata.get(name), str):
            return metadata
        return {**metadata, name: self._ids["talk"].get(metadata[name], metadata[name])}


def _nothing(_: Any) -> None:
    """What a copy has of a key that names one run."""


def _keys(rows: Iterator[Row]) -> set[str]:
    return {row["id"] for row in rows}


def _is_unused_permission(row: Row) -> bool:
    """Whether it permits an action that nobody has done yet. It is given once, and to the original."""
    used = row.get("consumed_by") is not None
    return row.get("status") == "approved" and row.get("action_digest") is not None and not used
