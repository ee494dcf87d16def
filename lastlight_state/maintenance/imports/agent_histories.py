"""Reads the sessions of the OpenAI Agents SDK from its SQLite file, each with its items.

A session is stored as `lastlight_state.integrations.openai_agents` reads it: as a session with one branch of the same
id. The tables are expected under the SDK's default names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterator
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations import runtime
from lastlight_state.conversations.arguments import (
    BranchTree,
    NewBranch,
    NewMessage,
    NewSession,
    SessionTimes,
    SessionTree,
)
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.keys import compose_key
from lastlight_state.maintenance.imports import foreign
from lastlight_state.maintenance.imports.drafts import Draft
from lastlight_state.maintenance.imports.foreign import Foreign, Row, key_text
from lastlight_state.maintenance.imports.pieces import ImportTarget, ImportUnit, Kind, SourceUnit
from lastlight_state.maintenance.imports.run_folders import moment_of
from lastlight_state.maintenance.imports.session_trees import piece_of

_SESSIONS, _ITEMS = "agent_sessions", "agent_messages"
_TABLES = {_SESSIONS: "session_id created_at updated_at", _ITEMS: "id session_id message_data created_at"}
_NAMES = " and ".join(_TABLES)
#: The scope in which the adapter keeps sessions by default, and the word that follows it in their ids.
_SCOPE, _WORD = "openai-agents", "session"


def found_at(path: Path) -> bool:
    """True if a path is a SQLite file with the SDK's tables."""
    return foreign.holds(path, lambda source: foreign.has(source, _TABLES))


def parts(path: Path) -> Generator[SourceUnit]:
    """Yield the sessions, including those that only items name, and then the rows and columns that are not imported."""
    with foreign.open_file(path) as source:
        if not foreign.has(source, _TABLES):
            raise Conflict(f"{str(path)!r:.200} has not the tables {_NAMES}", code="unknown_source")
        rows = {row["session_id"]: row for row in source.rows(_SESSIONS)}
        named = dict.fromkeys(chain(rows, source.values(_ITEMS, "session_id")))
        for name in sorted(named, key=repr):
            yield SourceUnit(key_text(name), partial(_piece, source, name, rows.get(name)))
        yield from foreign.unread_tables(source, _TABLES)
        yield from foreign.unknown(source, {table: columns.split() for table, columns in _TABLES.items()})


def _piece(source: Foreign, name: Any, row: Row | None, into: ImportTarget) -> ImportUnit:
    return piece_of(partial(_draft, source, name, row, into.scope or _SCOPE))(into)


def _draft(source: Foreign, name: Any, row: Row | None, scope: str, lenient: bool) -> Draft:
    if not isinstance(name, str):
        raise InvalidValue(f"{_SESSIONS}.session_id", f"expected text, got {type(name).__name__}")
    items = list(source.rows(_ITEMS, "WHERE session_id = ? ORDER BY id", [name]))
    key, noticed = compose_key(scope, _WORD, name), Counter[str]()
    messages = list(_messages(key, items, noticed, lenient=lenient))
    times = [moment for one in [*([row] if row else []), *items] if (moment := moment_of(one["created_at"]))]
    begun = min(times, default=None)
    updated = moment_of(row["updated_at"]) if row else max(times, default=None)
    if begun is None or updated is None:
        raise InvalidValue(f"{_SESSIONS}.updated_at", "must be a time")
    session = NewSession(key, project=scope, times=SessionTimes(created_at=begun, updated_at=updated))
    source.confirm()
    tree = SessionTree(session, [BranchTree(NewBranch(key, created_at=begun), messages)])
    digest, gave_later = foreign.digest((row, items)), partial(_gave_later, source)
    return Draft(tree, digest, updated, noticed=noticed, gave_later=gave_later)


def _gave_later(source: Foreign, number: int, at: datetime) -> bool:
    """True if an item numbered up to ``number`` was created after the time ``at``."""
    [(newest,)] = source.read(f"SELECT max(created_at) FROM {_ITEMS} WHERE id <= ?", (number,))
    found = moment_of(newest)
    return found is not None and found > at


def _messages(session: str, items: list[Row], noticed: Counter[str], *, lenient: bool) -> Iterator[NewMessage]:
    for row in items:
        where = f"{_ITEMS}[{row['id']}]"
        text = row["message_data"]
        try:
            if isinstance(text, str):
                codec.check_text(f"{where}.message_data", text)
            item = json.loads(text)
            content = runtime.pack_item(item)
        except (TypeError, ValueError, RecursionError, InvalidValue) as error:
            if not lenient:
                raise InvalidValue(f"{where}.message_data", "is not JSON") from error
            noticed["item_unreadable"] += 1  # the SDK skips such an item, too
            continue
        created: datetime | None = moment_of(row["created_at"])
        yield NewMessage(runtime.role_of(item), content, id=f"{session}/{row['id']}", created_at=created)


#: The kind of source.
KIND = Kind("openai-agents-db", f"a SQLite file with the tables {_NAMES}", found_at, parts, has_names=True)
