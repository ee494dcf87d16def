"""Reads the state database of the third original system: its sessions, each with its branches and messages."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
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
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.maintenance.imports import foreign
from lastlight_state.maintenance.imports.drafts import Change, Draft
from lastlight_state.maintenance.imports.foreign import Foreign, Row, key_text, unit_name
from lastlight_state.maintenance.imports.lenient import ADAPTED, decoded, with_text
from lastlight_state.maintenance.imports.pieces import Into, Kind, Part, Piece
from lastlight_state.maintenance.imports.run_folders import known_status, moment_of
from lastlight_state.maintenance.imports.session_trees import piece_of

#: The tables, and the columns that each has in every version.
_TABLES = {
    "messages": "id created_at node_metadata content embedding sender recipient channel role lion_class",
    "message_types": "type_id lion_class",
    "progressions": "id created_at collection",
    "sessions": "id created_at node_metadata name user progression_id updated_at",
    "branches": "id created_at node_metadata user name session_id progression_id system_msg_id",
}
_NAMES = ", ".join(_TABLES)
#: The columns without which a history of statuses cannot be read.
_CHANGED = {"status", "previous_status", "created_at"}
#: The reason of a status whose own is not known.
_IMPORTED = "legacy.imported"
#: The columns of a session that have a place of their own; what the others hold is kept in ``extra``.
_PLACED = {
    *("id", "created_at", "updated_at", "started_at", "ended_at", "last_message_at", "node_metadata", "name", "user"),
    *("progression_id", "first_msg_id", "last_msg_id", "playbook_name", "agent_name", "invocation_kind", "show_topic"),
    *("show_play_name", "artifacts_path", "source_kind", "status", "project", "artifact_contract_json"),
    *("status_reason_code", "status_reason_summary", "status_evidence_refs"),
}
_BRANCH = {
    *("id", "created_at", "node_metadata", "user", "name", "session_id", "progression_id", "system_msg_id", "model"),
    *("provider", "agent_name", "status", "started_at", "ended_at"),
}


def found_at(path: Path) -> bool:
    """Whether this is a state database of that system. One of ours keeps orders in another way."""
    return foreign.holds(path, lambda source: foreign.has(source, _TABLES))


def parts(path: Path) -> Generator[Part]:
    """The sessions of a database, the oldest first."""
    with foreign.opened(path) as source:
        if not foreign.has(source, _TABLES):
            raise Conflict(f"{str(path)!r:.200} has not the tables {_NAMES}", code="unknown_source")
        shared = _shared(source)
        known = set()
        for row in list(source.rows("sessions", "ORDER BY created_at, id")):
            known.add(row["id"])
            yield Part(key_text(row["id"]), piece_of(partial(_draft, source, row, shared)))
        for missing in sorted(set(source.values("branches", "session_id")) - known, key=repr):
            yield Part(unit_name("missing_sessions", missing), _without_session)


def _without_session(_: Into) -> Piece:
    raise InvalidValue("branches.session_id", "must be the id of a row of sessions")


def _shared(source: Foreign) -> frozenset[Any]:
    """The orders that several sessions or branches have: each of these gets one of its own."""
    counted = Counter(row["progression_id"] for table in ("sessions", "branches") for row in source.rows(table))
    return frozenset(one for one, count in counted.items() if count > 1)


def _draft(source: Foreign, row: Row, shared: Collection[Any], lenient: bool) -> Draft:
    found = _Session(source, row, shared, lenient=lenient).draft()
    source.confirm()
    return found


class _Session:
    """One session of the source, and what was read of it so far."""

    def __init__(self, source: Foreign, row: Row, shared: Collection[Any], *, lenient: bool) -> None:
        self._source, self._row, self._shared = source, row, shared
        self._noticed: Counter[str] = Counter()
        self._adapts = self._noticed if lenient else None
        self._seen = hashlib.sha256()
        self._messages: dict[str, NewMessage] = {}

    def draft(self) -> Draft:
        """The session as it stands in the source."""
        rows = list(self._source.rows("branches", "WHERE session_id = ? ORDER BY created_at, id", [self._row["id"]]))
        pool = self._order("session", self._row)
        orders = {row["id"]: self._order(f"branches {row['id']}", row) for row in rows}
        named = [row["system_msg_id"] for row in rows if row["system_msg_id"] is not None]
        self._read_messages([*pool, *(one for order in orders.values() for one in order), *named])
        branches = [self._branch(row, self._there(orders[row["id"]])) for row in rows]
        placed = {message.id for branch in branches for message in branch.messages}
        loose = [message for message in self._there(pool) if message.id not in placed]
        changes = list(self._changes())
        updated = moment_of(self._row["updated_at"]) or moment_of(self._row["created_at"])
        if updated is None:
            raise InvalidValue("session.updated_at", "must be a time")
        session = self._session(changes)
        self._note(self._row, rows)
        return Draft(
            SessionTree(session, branches),
            self._seen.hexdigest(),
            updated,
            tuple({message.id: message for message in loose}.values()),
            self._noticed,
            tuple(changes),
            {row["id"]: change for row in rows if (change := _branch_change(row)) is not None},
        )

    def _note(self, *read: Any) -> None:
        self._seen.update(repr(read).encode("utf-8", "surrogateescape"))

    def _order(self, where: str, row: Row) -> list[str]:
        """The ids in the array of a session or branch."""
        found = list(self._source.rows("progressions", "WHERE id = ?", [row["progression_id"]]))
        self._note(found)
        if not found:
            self._noticed["order_missing"] += 1
            return []
        order = decoded(f"{where}.collection", found[0]["collection"], None)
        if not isinstance(order, list) or not all(isinstance(one, str) for one in order):
            raise InvalidValue(f"{where}.collection", "expected a list of ids")
        return order

    def _own_order(self, row: Row) -> str | None:
        """The id of its order, if nobody else has the same."""
        name = row["progression_id"]
        self._noticed["order_shared"] += name in self._shared
        return None if name in self._shared else name

    def _json(self, where: str, row: Row, column: str, texts: Row) -> Any:
        """The value of a JSON column, None for NULL. What is no JSON a lenient import keeps as text, in ``texts``."""
        if row.get(column) is None:
            return None
        try:
            return decoded(f"{where}.{column}", row[column], self._adapts)
        except InvalidValue:
            if self._adapts is None:
                raise
            texts.update(with_text(texts, column, row[column]))
            self._noticed[ADAPTED] += 1
            return None

    def _there(self, order: Sequence[str]) -> list[NewMessage]:
        """The messages of an order that there are; the others are counted."""
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
        content = self._json(where, row, "content", texts)
        if content is None and not texts:
            self._noticed["content_missing"] += 1
        lion_class = classes.get(row["lion_class"])
        if lion_class is None or lion_class == words.UNKNOWN_CLASS:
            self._noticed["class_unknown"] += lion_class is None
            lion_class = None
        return NewMessage(
            id=row["id"],
            role=row["role"],
            content={} if content is None else content,
            created_at=row["created_at"],
            sender=row["sender"],
            recipient=row["recipient"],
            channel=row["channel"],
            lion_class=lion_class,
            node_metadata=self._json(where, row, "node_metadata", texts),
            embedding=row["embedding"],
            extra=texts or None,
        )

    def _branch(self, row: Row, messages: list[NewMessage]) -> BranchTree:
        texts = _others(row, _BRANCH) or {}
        metadata = self._json(f"branches {row['id']}", row, "node_metadata", texts)
        system = None
        if row["system_msg_id"] is not None:
            system = self._messages.get(row["system_msg_id"])
            self._noticed["system_missing"] += system is None
        branch = NewBranch(
            id=row["id"],
            name=row["name"],
            user=row["user"],
            created_at=row["created_at"],
            node_metadata=metadata,
            progression_id=None if _is_fork(metadata) else self._own_order(row),
            system=system,
            extra=texts or None,
            **{name: row.get(name) for name in ("provider", "model", "agent_name")},
        )
        return BranchTree(branch, messages)

    def _session(self, changes: Sequence[Change]) -> NewSession:
        row = self._row
        kind = row.get("invocation_kind")
        known = kind in words.INVOCATION_KINDS
        source = row.get("source_kind")
        if kind is not None and not known:
            self._noticed["kind_unknown"] += 1
        odd = {
            "invocation_kind": None if known else kind,
            "source_kind": None if source in words.SOURCE_KINDS else source,
        }
        extra = {**(_others(row, _PLACED) or {}), **{name: value for name, value in odd.items() if value is not None}}
        metadata = self._json("session", row, "node_metadata", extra)
        contract = self._json("session", row, "artifact_contract_json", extra)
        return NewSession(
            id=row["id"],
            name=row["name"],
            user=row["user"],
            progression_id=self._own_order(row),
            provenance=Provenance(
                invocation_kind=kind if known else None,
                source_kind=source if source in words.SOURCE_KINDS else None,
                **{
                    name: row.get(name)
                    for name in ("playbook_name", "agent_name", "show_topic", "show_play_name", "artifacts_path")
                },
            ),
            times=SessionTimes(
                created_at=row["created_at"],
                **{
                    name: moment_of(row.get(name))
                    for name in ("updated_at", "started_at", "ended_at", "last_message_at")
                },
            ),
            node_metadata=metadata,
            extra=extra or None,
            status=changes[-1].status if changes else None,  # type: ignore[arg-type]
            reason=changes[-1].why if changes else Reason(),
            project=row.get("project"),
            artifact_contract=contract,
        )

    def _changes(self) -> Iterator[Change]:
        """The history of the session's status; what its own table says last is the last."""
        begun = moment_of(self._row.get("started_at")) or moment_of(self._row["created_at"])
        rest = "WHERE entity_type = 'session' AND entity_id = ? ORDER BY created_at, rowid"
        rows = list(self._source.rows("status_transitions", rest, [self._row["id"]]))
        if rows and (lacking := sorted(_CHANGED - rows[0].keys())):
            raise InvalidValue("status_transitions", f"lacks the column {lacking[0]}")
        self._note(rows)
        last: str | None = None
        for row in rows:
            at = moment_of(row["created_at"]) or begun
            if last is None and row["previous_status"] is not None and begun is not None:
                first, strange = known_status(row["previous_status"])
                self._noticed["status_unknown"] += strange is not None
                yield Change(first, min(begun, at or begun), Reason(_IMPORTED, summary=strange, source="system"))
            last, strange = known_status(row["status"])
            self._noticed["status_unknown"] += strange is not None
            if at is not None:
                texts: Row = {}
                why = self._why(row, texts)
                yield Change(last, at, why, texts=texts.get(ADAPTED, {}))
        told = self._row.get("status")
        if told is None:
            return
        status, strange = known_status(told)
        if status != last:
            self._noticed["status_unknown"] += strange is not None
            at = moment_of(self._row.get("ended_at")) if status in words.TERMINAL else begun
            moment = at or moment_of(self._row["updated_at"]) or begun
            if moment is not None:
                yield Change(status, moment, Reason(_IMPORTED, summary=strange, source="system"))

    def _why(self, row: Row, texts: Row) -> Reason:
        """The reason of a change. A code that is not known stands in the summary."""
        code, summary, source = row.get("reason_code"), row.get("reason_summary"), row.get("source")
        if code not in words.REASONS:
            self._noticed["reason_unknown"] += 1
            code, summary = _IMPORTED, f"{code}: {summary}" if summary else code
        evidence = self._json("status_transitions", row, "evidence_refs", texts)
        return Reason(code, summary, evidence, source if source in words.SOURCES else "system", row.get("actor"))


def _is_fork(metadata: Any) -> bool:
    return isinstance(metadata, dict) and "parent_branch_id" in metadata


def _branch_change(row: Row) -> Change | None:
    if row.get("status") is None:
        return None
    status, strange = known_status(row["status"])
    begun, ended = moment_of(row.get("started_at")), moment_of(row.get("ended_at"))
    at = (ended if status in words.TERMINAL else begun) or begun or moment_of(row["created_at"])
    return None if at is None else Change(status, at, Reason(_IMPORTED, summary=strange, source="system"), begun)


def _others(row: Row, placed: set[str]) -> dict[str, Any] | None:
    """What stands in columns without a place of their own."""
    found = {name: value for name, value in row.items() if name not in placed and value is not None}
    return found or None


#: The kind of source.
KIND = Kind("lionagi-db", f"a SQLite file with the tables {_NAMES}", found_at, parts)
