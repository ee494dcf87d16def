"""Reads the state database of the third original system: its sessions, each with its branches and messages.

Seconds become exact times, arrays become orders with the same ids, and class numbers become names. The status history
keeps its ids. A session with an unknown status is stored as ended, and counted.

A column that has an equivalent field is stored in that field. Any other column is stored under ``_source`` in
``extra``, which `to_runtime` leaves out. If the source states no first and last message, these are the ends of the
order. Rows that cannot be stored are counted by table. Ids of messages that do not exist are dropped and counted.

A malformed array or text fails only its session. Branches of a missing session are named in the report. An order that
several sessions or branches share is copied for each of them under another id. Columns of later versions may be absent.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lastlight_state.conversations import words
from lastlight_state.conversations.arguments import (
    BranchTree,
    NewBranch,
    NewMessage,
    NewSession,
    Provenance,
    Reason,
    SessionTimes,
    SessionTree,
)
from lastlight_state.conversations.runtime import BRANCHES_PILE, messages_pile
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.maintenance.imports import cells, foreign, session_histories as histories, team_tables
from lastlight_state.maintenance.imports.drafts import Change, Draft, Pool
from lastlight_state.maintenance.imports.foreign import Foreign, Row, key_text, unit_name
from lastlight_state.maintenance.imports.lenient import decode_json
from lastlight_state.maintenance.imports.pieces import ImportTarget, ImportUnit, Kind, SourceUnit
from lastlight_state.maintenance.imports.run_folders import moment_of
from lastlight_state.maintenance.imports.session_histories import Cells
from lastlight_state.maintenance.imports.session_trees import piece_of

#: The tables, and the columns that each table has in every version.
_TABLES = {
    "messages": "id created_at node_metadata content embedding sender recipient channel role lion_class",
    "message_types": "type_id lion_class",
    "progressions": "id created_at collection",
    "sessions": "id created_at node_metadata name user progression_id first_msg_id last_msg_id updated_at",
    "branches": "id created_at node_metadata user name session_id progression_id system_msg_id",
}
_NAMES = ", ".join(_TABLES)
#: The columns that have a field of their own. Values of other columns are kept in ``extra``.
_PROVENANCE = ("playbook_name", "agent_name", "show_topic", "show_play_name", "artifacts_path")
_TIMES = ("updated_at", "started_at", "ended_at", "last_message_at")
_PLACED = {
    *("id", "created_at", "node_metadata", "name", "user", "progression_id", "first_msg_id", "last_msg_id", "status"),
    *("invocation_kind", "source_kind", "project", "cc_session_id", "ended_at_is_approximate"),
    *("artifact_contract_json", "artifact_verification_json", *_PROVENANCE, *_TIMES),
}
_HINTS = ("provider", "model", "agent_name")
_BRANCH = {*_TABLES["branches"].split(), *_HINTS}
_STATUS = {"status", "started_at", "ended_at"}
_MESSAGE = set(_TABLES["messages"].split())
#: The tables that are read, and the table that describes the source's schema.
_READ = {*_TABLES, "status_transitions", "schema_meta"}


def found_at(path: Path) -> bool:
    """True if a path is a state database of that system. The library's own databases store orders in another way."""
    return foreign.holds(path, lambda source: foreign.has(source, _TABLES))


def parts(path: Path) -> Generator[SourceUnit]:
    """Yield the sessions of a database, the oldest first, then the rows and columns that are not imported."""
    with foreign.open_file(path) as source:
        if not foreign.has(source, _TABLES):
            raise Conflict(f"{str(path)!r:.200} has not the tables {_NAMES}", code="unknown_source")
        shared = _shared_orders(source)
        known = set()
        for row in list(source.rows("sessions", "ORDER BY created_at, id")):
            known.add(row["id"])
            yield SourceUnit(key_text(row["id"]), piece_of(partial(_draft, source, row, shared)))
        for missing in sorted(set(source.values("branches", "session_id")) - known, key=repr):
            yield SourceUnit(unit_name("missing_sessions", missing), _without_session)
        yield from team_tables.parts(source)
        yield from foreign.unread_tables(source, _READ | team_tables.read(source))
        yield from foreign.unknown(source, {name: _TABLES[name].split() for name in ("message_types", "progressions")})
        yield from _count_left_rows(source)


def _without_session(_: ImportTarget) -> ImportUnit:
    raise InvalidValue("branches.session_id", "must be the id of a row of sessions")


def _count_left_rows(source: Foreign) -> Generator[SourceUnit]:
    """Yield counts of the rows that belong to no session: orders, messages, and status changes of other records."""
    for table, condition in _LEFT.items():
        if table in _TABLES or {"entity_type", "entity_id"} <= set(source.columns(table)):
            yield from foreign.unstored_rows(source, table, condition)


_OWNED = "SELECT progression_id FROM sessions UNION ALL SELECT progression_id FROM branches"
_LEFT = {
    "progressions": f"id NOT IN ({_OWNED})",
    "messages": f"""id NOT IN (
        SELECT each.value FROM progressions,
            json_each(CASE WHEN json_valid(collection) THEN collection ELSE '[]' END) AS each
        WHERE progressions.id IN ({_OWNED}) AND each.value IS NOT NULL
        UNION ALL SELECT system_msg_id FROM branches WHERE system_msg_id IS NOT NULL
        UNION ALL SELECT first_msg_id FROM sessions WHERE first_msg_id IS NOT NULL
        UNION ALL SELECT last_msg_id FROM sessions WHERE last_msg_id IS NOT NULL)""",
    "status_transitions": """NOT (entity_type = 'session' AND entity_id IN (SELECT id FROM sessions))""",
}


def _shared_orders(source: Foreign) -> frozenset[Any]:
    """Return the ids of orders that several sessions or branches share. Each of these gets its own order."""
    counted = Counter(row["progression_id"] for table in ("sessions", "branches") for row in source.rows(table))
    return frozenset(one for one, count in counted.items() if count > 1)


def _draft(source: Foreign, row: Row, shared: Collection[Any], lenient: bool) -> Draft:
    found = _Session(source, row, shared, lenient=lenient).draft()
    source.confirm()
    return found


class _Session:
    """A session of the source, with the rows of it that have been read so far."""

    def __init__(self, source: Foreign, row: Row, shared: Collection[Any], *, lenient: bool) -> None:
        self._source, self._row, self._shared = source, row, shared
        self._cells = Cells(lenient=lenient)
        self._noticed = self._cells.noticed
        self._seen = hashlib.sha256()
        self._messages: dict[str, NewMessage] = {}
        self._begun: dict[str, Any] = {}

    def draft(self) -> Draft:
        """Return the session as the source states it."""
        rows = list(self._source.rows("branches", "WHERE session_id = ? ORDER BY created_at, id", [self._row["id"]]))
        pool = self._order("session", self._row)
        orders = {row["id"]: self._order(f"branches {row['id']}", row) for row in rows}
        marks = [self._row["first_msg_id"], self._row["last_msg_id"]]
        named = [one for one in (*(row["system_msg_id"] for row in rows), *marks) if one is not None]
        self._read_messages([*pool, *(one for order in orders.values() for one in order), *named])
        branches = [self._branch(row, self._there(orders[row["id"]])) for row in rows]
        ordered = self._there(pool)
        there = [self._messages.get(one) for one in marks]
        self._noticed["bookmark_missing"] += sum(named is not None for named in marks) - sum(map(bool, there))
        changes, says_why = self._changes()
        updated = moment_of(self._row["updated_at"]) or moment_of(self._row["created_at"])
        if updated is None:
            raise InvalidValue("session.updated_at", "must be a time")
        session = self._session(changes, says_why)
        self._note(self._row, rows)
        placed = {message.id for branch in branches for message in branch.messages}
        loose = {one.id: one for one in (*ordered, *there) if one is not None and one.id not in placed}
        return Draft(
            SessionTree(session, branches),
            self._seen.hexdigest(),
            updated,
            tuple(loose.values()),
            self._noticed,
            tuple(changes),
            {row["id"]: change for row in rows if (change := histories.branch_change(self._cells, row)) is not None},
            Pool(tuple(one.id for one in ordered), *(None if one is None else one.id for one in there)),
            self._begun,
        )

    def _note(self, *read: Any) -> None:
        self._seen.update(repr(read).encode("utf-8", "surrogateescape"))

    def _order(self, where: str, row: Row) -> list[str]:
        """Return the message ids in the order of a session or branch."""
        found = list(self._source.rows("progressions", "WHERE id = ?", [row["progression_id"]]))
        self._note(found)
        if not found:
            self._noticed["order_missing"] += 1
            return []
        order = decode_json(f"{where}.collection", found[0]["collection"], None)
        if not isinstance(order, list) or not all(isinstance(one, str) for one in order):
            raise InvalidValue(f"{where}.collection", "expected a list of ids")
        self._begun[row["progression_id"]] = found[0]["created_at"]
        return order

    def _own_order(self, row: Row) -> str | None:
        """Return the id of a row's order, or None if other rows share that order."""
        name = row["progression_id"]
        self._noticed["order_shared"] += name in self._shared
        return None if name in self._shared else name

    def _there(self, order: Sequence[str]) -> list[NewMessage]:
        """Return those messages of an order that exist. Missing messages are counted."""
        found = [self._messages[one] for one in order if one in self._messages]
        self._noticed["order_without_message"] += len(order) - len(found)
        return found

    def _read_messages(self, ids: Sequence[str]) -> None:
        wanted = list(dict.fromkeys(ids))
        classes = {row["type_id"]: row["lion_class"] for row in self._source.rows("message_types")}
        for at in range(0, len(wanted), words.BATCH):
            for row in self._source.among("messages", "id", wanted[at : at + words.BATCH]):
                self._note(row)
                self._messages[row["id"]] = self._message(row, classes)

    def _message(self, row: Row, classes: Mapping[Any, Any]) -> NewMessage:
        where = f"messages {row['id']:.80}"
        texts: Row = {}
        content = self._cells.json(where, row, "content", texts)
        if content is None and not texts:
            self._noticed["content_missing"] += 1
        lion_class = classes.get(row["lion_class"])
        if lion_class is None or lion_class == words.UNKNOWN_CLASS:
            self._noticed["class_unknown"] += lion_class is None
            lion_class = None
        metadata = self._cells.json(where, row, "node_metadata", texts)
        return NewMessage(
            id=row["id"],
            role=row["role"],
            content={} if content is None else content,
            created_at=row["created_at"],
            sender=row["sender"],
            recipient=row["recipient"],
            channel=row["channel"],
            lion_class=lion_class,
            node_metadata=metadata,
            embedding=row["embedding"],
            extra=self._cells.rest(where, row, _MESSAGE, texts) or None,
        )

    def _branch(self, row: Row, messages: list[NewMessage]) -> BranchTree:
        where, texts = f"branches {row['id']}", Row()
        metadata = self._cells.json(where, row, "node_metadata", texts)
        system = None
        if row["system_msg_id"] is not None:
            system = self._messages.get(row["system_msg_id"])
            self._noticed["system_missing"] += system is None
        placed = _BRANCH if row.get("status") is None else _BRANCH | _STATUS
        is_outside = system is not None and all(one.id != system.id for one in messages)
        extra = {**self._cells.rest(where, row, placed, texts), **messages_pile(has_system_outside=is_outside)}
        branch = NewBranch(
            id=row["id"],
            name=row["name"],
            user=row["user"],
            created_at=row["created_at"],
            node_metadata=metadata,
            progression_id=None if _is_fork(metadata) else self._own_order(row),
            system=system,
            extra=extra,
            **{name: row.get(name) for name in _HINTS},
        )
        return BranchTree(branch, messages)

    def _session(self, changes: Sequence[Change], says_why: bool) -> NewSession:
        row, texts = self._row, Row()
        kinds = {"invocation_kind": words.INVOCATION_KINDS, "source_kind": words.SOURCE_KINDS}
        odd = {name for name, known in kinds.items() if row.get(name) not in known}
        self._noticed["kind_unknown"] += "invocation_kind" in odd and row.get("invocation_kind") is not None
        metadata, contract, verification = (
            self._cells.json("session", row, name, texts)
            for name in ("node_metadata", "artifact_contract_json", "artifact_verification_json")
        )
        placed = _PLACED - odd | set(histories.REASON if says_why else ())
        rough = row.get("ended_at_is_approximate")
        return NewSession(
            id=row["id"],
            name=row["name"],
            user=row["user"],
            progression_id=self._own_order(row),
            provenance=Provenance(
                **{name: None if name in odd else row.get(name) for name in kinds},
                **{name: row.get(name) for name in _PROVENANCE},
            ),
            times=SessionTimes(
                created_at=row["created_at"],
                **{name: moment_of(row.get(name)) for name in _TIMES},
                ended_at_is_approximate=None if rough is None else cells.flag("session.ended_at_is_approximate", rough),
            ),
            node_metadata=metadata,
            extra={**self._cells.rest("session", row, placed, texts), **BRANCHES_PILE},
            status=changes[-1].status if changes else None,  # type: ignore[arg-type]
            reason=changes[-1].why if changes else Reason(),
            project=row.get("project"),
            agent_session_id=row.get("cc_session_id"),
            artifact_contract=contract,
            artifact_verification=verification,
        )

    def _changes(self) -> tuple[list[Change], bool]:
        """Return the status history of the session, and True if its last entry gives the current reason."""
        rest = "WHERE entity_type = 'session' AND entity_id = ? ORDER BY created_at, rowid"
        rows = list(self._source.rows("status_transitions", rest, [self._row["id"]]))
        self._note(rows)
        return list(histories.history(self._cells, self._row, rows)), histories.says_why(self._row, rows)


def _is_fork(metadata: Any) -> bool:
    return isinstance(metadata, dict) and "parent_branch_id" in metadata


#: The kind of source.
KIND = Kind("lionagi-db", f"a SQLite file with the tables {_NAMES}", found_at, parts)
