"""Reads the database of the first original system: runs with their executions and gates, overrides, and chats.

Values are found by column names, in databases of every version of the program. ``owner/repo`` is split; an explicit
owner takes precedence, and no owner is guessed from a URL. The error in a failed run's context becomes the run's error.
Unknown columns of executions are put into ``details``.

A refused value fails its unit and names row and column. A live run that nobody continued in this store is updated from
its source. A run, gate or chat that was ended, answered or closed in the store stays so, and is counted. So does an
override that was set or cleared in the store. Otherwise an override is updated, but only from the path or server from
which it was imported.

Chat messages keep their numbers if these are free. If several chats in one conversation are active, one stays active. A
fire that was running is imported as abandoned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, StaleVersion
from lastlight_state.maintenance.copy import row_merge
from lastlight_state.maintenance.imports import brought, foreign, origins, pieces, servers, workflow_rows
from lastlight_state.maintenance.imports.cells import ExtraFields
from lastlight_state.maintenance.imports.foreign import Foreign, Row as ForeignRow, digest, unit_name
from lastlight_state.maintenance.imports.pieces import (
    STORED,
    ImportTarget,
    ImportUnit,
    Kind,
    Place,
    SourceUnit,
    UnitLookup,
)
from lastlight_state.maintenance.imports.row_pieces import Growth, Row, RowDraft, RowPiece
from lastlight_state.messaging import models
from lastlight_state.messaging.models import MESSAGES, SESSIONS, SESSIONS as CHATS, is_active

# Chat sessions of the first original system: how a session and its messages are compared with the stored ones, and
# stored.

_s, _m = SESSIONS.c, MESSAGES.c

#: The fields of a message that never change, and a field that may be filled in later. The number is not compared.
_SAID, _LATER = ("role", "content", "timestamp"), "platform_message_id"
_TOLD = (*_SAID, _LATER)

_MESSAGES = statement_of(
    sa.select(*_m).where(_m.session_id == bind("session_id", _m.session_id)).order_by(_m.session_id, _m.id),
)
_SESSION = statement_of(sa.select(_s.id).where(_s.id == bind("id", _s.id)))
_METADATA = statement_of(sa.select(_s.metadata).where(_s.id == bind("id", _s.id)))
_RIVAL = statement_of(
    sa.select(_s.id).where(
        is_active(),
        *(_s[name] == bind(name, _s[name]) for name in ("platform", "channel_id", "user_id")),
        sa.func.coalesce(_s.thread_id, sa.literal_column("''")) == bind("thread", _s.thread_id),
        _s.id != bind("id", _s.id),
    )
)
_SAY = statement_of(
    sa.insert(MESSAGES).values({column.name: bind(column.name, column) for column in _m if column.name != "id"})
)
_more = sa.bindparam("more", type_=_s.message_count.type)
_COUNT = statement_of(
    sa.update(SESSIONS)
    .where(_s.id == bind("session_id", _s.id))
    .values(message_count=sa.func.coalesce(_s.message_count, 0) + _more)
)


class ChatPiece(RowPiece):
    """A chat session that was read and checked, with its messages in their order.

    Its messages keep their numbers if these are free and come after the stored messages of the session. A source that
    lacks messages of the last import is an older or another source, even at the same path.
    """

    proof = "messages"

    def __init__(
        self, draft: RowDraft, messages: Sequence[Row], growths: Mapping[str, Growth], into: ImportTarget
    ) -> None:
        super().__init__(draft, growths, into)
        self._said = [repr([one[name] for name in _SAID]) for one in messages]
        self.told = {"messages": brought.order(self._said)[:2]}
        self.digest = brought.line(draft.digest, self.told)
        self._messages, self._new = messages, messages
        self._keeps_numbers = True

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the unit, the number of rows to add by table, and counts for ``noticed``."""
        [session] = self.draft.given["messaging_sessions"]
        rival = {**session, "thread": session["thread_id"] or ""}
        is_rival = bool(session["active"]) and look.view.row(_RIVAL, rival) is not None
        if "metadata" in session:  # keep what later messages here have added
            stored = look.view.value(_METADATA, {"id": session["id"]})
            session = {**session, "metadata": {**(stored or {}), **session["metadata"]}}
        self._given = {"messaging_sessions": [retired_session(session) if is_rival else session]}
        if (
            self._has_all(brought.told_by(pieces.known_digest(look))) is False
            and look.view.row(_SESSION, session) is not None
        ):
            pieces.refuse_other(self, f"has messages that this source lacks, and {origins.came_from(look)}")
        found, rows, noticed = super().compare(look)
        if found not in STORED:
            return found, rows, noticed
        noticed["active_retired"] += bool(is_rival) and found == "imported"
        known = look.view.rows(_MESSAGES, {"session_id": session["id"]})
        self._new = self._not_stored(known, noticed)
        self._refuse_unproved(look, self._new)
        self._keeps_numbers = not any(row_merge.stored_pairs(look.view, {"messaging_messages": self._new}))
        return found, rows + Counter(messaging_messages=len(self._new)), noticed

    def _has_all(self, before: Mapping[str, Any]) -> bool | None:
        """True if the source begins with the messages of its last import. None if that import had none."""
        known = before.get("messages")
        return bool(brought.leading_ids(self._said, known)) if known and known[0] else None

    def _not_stored(self, stored: Sequence[Row], noticed: Counter[str]) -> Sequence[Row]:
        """Return the messages that come after the stored ones.

        Raises `StaleVersion` if a stored message differs. An id that only the store or only the source has is no
        difference.
        """
        for here, there in zip(stored, self._messages, strict=False):
            is_later = here[_LATER] is None or there[_LATER] is None
            if any(here[name] != there[name] for name in (_SAID if is_later else _TOLD)):
                raise StaleVersion(
                    models.SESSION, self.target[1], expected=f"message {there['id']}", found=f"message {here['id']}"
                )
            if here[_LATER] != there[_LATER]:
                self._keep(noticed, MESSAGES, here, [_LATER])
        return self._messages[len(stored) :]

    def store(self, view: Unit, outcome: str) -> None:
        """Add the new messages, and create or update the session."""
        super().store(view, outcome)
        if not self._new:
            return
        if self._keeps_numbers and self._in_order(view):
            row_merge.insert_missing(view, {"messaging_messages": self._new})
        else:
            view.insert(MESSAGES, _SAY, [{name: row[name] for name in ("session_id", *_TOLD)} for row in self._new])
        if outcome == "grown":
            view.change(_COUNT, {"session_id": self.target[1], "more": len(self._new)})

    def _in_order(self, view: Unit) -> bool:
        stored = view.rows(_MESSAGES, {"session_id": self.target[1]})
        return not stored or bool(stored[-1]["id"] < self._new[0]["id"])


def retired_session(session: Row) -> dict[str, Any]:
    """Return the session as inactive, because another session is the active one of its conversation."""
    ended = {"deactivated_at": session["last_activity_at"], "deactivated_reason": "duplicate"}
    return {**session, "active": False, **ended}


#: The kind of record that a unit becomes, by the table of its first row.
_KINDS = {
    "workflow_runs": "workflow_run",
    "executions": "execution",
    "workflow_approvals": "workflow_approval",
    "cron_overrides": "cron_override",
    "workflow_overrides": "workflow_override",
    "cron_fires": "cron_fire",
    "messaging_sessions": "messaging_session",
}
_OVERRIDES = ("cron_overrides", "workflow_overrides")
#: The tables whose rows are units of their own.
_ALONE = (*_OVERRIDES, "cron_fires")
#: The tables whose rows belong to a run, each with the order of its rows.
_OF_RUNS = {"executions": "started_at, id", "workflow_approvals": "created_at, id"}
_NAMES = ", ".join(workflow_rows.TABLES)
#: The tables that are read, and the table that describes the source's schema.
_READ = {*workflow_rows.TABLES, "__drizzle_migrations"}
#: The order of sessions in which the last active one of a place is the one that stays active.
_BY_ACTIVITY = "ORDER BY last_activity_at, created_at, id"
#: The rows of a unit as the source has them, by table.
Found = dict[str, list[ForeignRow]]
_PLACE = ("platform", "channel_id", "thread_id", "user_id")


def found_at(place: Place) -> bool:
    """True if a place has a database of that system.

    The library's own databases are told apart by their version table.
    """
    if isinstance(place, Path):
        return foreign.holds(place, _is_known)
    with servers.open_source(place) as source:
        return _is_known(source)


def _is_known(source: Foreign) -> bool:
    there = {name: columns for name, columns in workflow_rows.TABLES.items() if source.columns(name)}
    is_one = bool({"executions", "messaging_sessions"} & there.keys()) and not source.columns(VERSION_TABLE)
    return is_one and foreign.has(source, there)


def parts(place: Place) -> Generator[SourceUnit]:
    """Yield the runs of a database with their rows, executions without a run, overrides, fires and chats."""
    with servers.open_source(place) as source:
        if not _is_known(source):
            raise Conflict(f"{str(place)!r:.200} has not the tables {_NAMES}", code="unknown_source")
        yield from _runs(source)
        yield from _alone(source)
        yield from _overrides(source)
        yield from _fires(source)
        yield from _chats(source)
        yield from foreign.unread_tables(source, _READ)


def _runs(source: Foreign) -> Iterator[SourceUnit]:
    known = set()
    for row in source.rows("workflow_runs", "ORDER BY started_at, id"):
        known.add(row["id"])
        yield _part(source, "workflow_runs", row["id"], partial(_of_run, source, row["id"], {"workflow_runs": [row]}))
    named = {one for table in _OF_RUNS for one in source.values(table, "workflow_run_id")}
    for missing in sorted(named - known, key=repr):
        yield _part(source, "missing_runs", missing, partial(_of_run, source, missing, {}))


def _of_run(source: Foreign, run_id: Any, found: Found) -> Found:
    """Return the rows ``found``, with the run's rows of each other table added."""
    return found | {
        table: list(source.rows(table, f"WHERE workflow_run_id = ? ORDER BY {order}", [run_id]))
        for table, order in _OF_RUNS.items()
        if "workflow_run_id" in source.columns(table)
    }


def _alone(source: Foreign) -> Iterator[SourceUnit]:
    rest = "WHERE workflow_run_id IS NULL " if "workflow_run_id" in source.columns("executions") else ""
    for row in source.rows("executions", f"{rest}ORDER BY {_OF_RUNS['executions']}"):
        yield _part(source, "executions", row["id"], partial(dict, executions=[row]))


def _overrides(source: Foreign) -> Iterator[SourceUnit]:
    for table in _OVERRIDES:
        for row in source.rows(table, "ORDER BY name"):
            yield _part(source, table, row["name"], partial(dict, {table: [row]}))


def _fires(source: Foreign) -> Iterator[SourceUnit]:
    for row in source.rows("cron_runs", "ORDER BY started_at, id"):
        yield _part(source, "cron_runs", row["id"], partial(dict, cron_fires=[row]))


def _chats(source: Foreign) -> Iterator[SourceUnit]:
    ordered = source.rows("messaging_sessions", _BY_ACTIVITY)
    newest = {_place(row): row["id"] for row in ordered if row["active"] == 1}
    known = set()
    for row in source.rows("messaging_sessions", "ORDER BY created_at, id"):
        known.add(row["id"])
        is_old = row["active"] == 1 and newest.get(_place(row)) != row["id"]
        yield SourceUnit(unit_name("messaging_sessions", row["id"]), partial(_chat_piece, source, row, is_old))
    for missing in sorted(set(source.values("messaging_messages", "session_id")) - known, key=repr):
        yield SourceUnit(unit_name("messaging_messages", missing), _without_session)


def _place(row: ForeignRow) -> tuple[Any, ...]:
    return tuple(row[name] or "" for name in _PLACE)


def _part(source: Foreign, table: str, key: Any, read: Callable[[], Found]) -> SourceUnit:
    return SourceUnit(unit_name(table, key), partial(_piece, source, read))


def _piece(source: Foreign, read: Callable[[], Found], into: ImportTarget) -> ImportUnit:
    found = {table: rows for table, rows in read().items() if rows}
    source.confirm()
    noticed: Counter[str] = Counter()
    given = {table: [_row(into, noticed, table, row) for row in rows] for table, rows in found.items()}
    head = next(iter(given))
    noticed.update(
        run_missing=int(given[head][0].get("workflow_run_id") is not None),
        fire_abandoned=int(head == "cron_fires" and found[head][0]["status"] == "running"),
    )
    key: str = given[head][0]["name" if head in _OVERRIDES else "id"]
    draft = RowDraft((_KINDS[head], key), head, digest(found), given, noticed, is_alone=head in _ALONE)
    return RowPiece(draft, workflow_rows.GROWTHS, into)


def _row(into: ImportTarget, noticed: Counter[str], table: str, found: ForeignRow) -> ForeignRow:
    return workflow_rows.MADE[table](into.settings.limits, found, ExtraFields(noticed, lenient=into.lenient))


def _chat_piece(source: Foreign, row: ForeignRow, is_old: bool, into: ImportTarget) -> ImportUnit:
    said = list(source.rows("messaging_messages", "WHERE session_id = ? ORDER BY id", [row["id"]]))
    source.confirm()
    limits, noticed = into.settings.limits, Counter(active_retired=int(is_old))
    aside = ExtraFields(noticed, lenient=into.lenient)
    session: dict[str, Any] = {"message_count": len(said), "deactivated_at": None, "deactivated_reason": None}
    session |= workflow_rows.chat(limits, row, aside)
    messages = [workflow_rows.message(limits, one, aside) for one in said]
    metadata = aside.add_to(f"messaging_sessions {session['id']:.80}", None, limits_of(CHATS).metadata)
    if metadata is not None:
        session["metadata"] = metadata
    draft = RowDraft(
        ("messaging_session", session["id"]),
        "messaging_sessions",
        digest([row, said]),
        {"messaging_sessions": [retired_session(session) if is_old else session]},
        noticed,
    )
    return ChatPiece(draft, messages, workflow_rows.GROWTHS, into)


def _without_session(_: ImportTarget) -> ImportUnit:
    raise InvalidValue("messaging_messages.session_id", "must be the id of a row of messaging_sessions")


#: The kind of source.
_LOOKED_FOR = f"a SQLite file with the tables {_NAMES}, some or all of them, or a Postgres schema"
KIND = Kind("lastlight-db", _LOOKED_FOR, found_at, parts, on_servers=True)
