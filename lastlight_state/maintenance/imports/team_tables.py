"""Reads the teams in the state database of the third original system, in the tables of its newest versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from lastlight_state.maintenance.imports import foreign, teams
from lastlight_state.maintenance.imports.foreign import Foreign, Row, unit_name
from lastlight_state.maintenance.imports.lenient import decode_json
from lastlight_state.maintenance.imports.pieces import ImportTarget, ImportUnit, SourceUnit
from lastlight_state.maintenance.imports.run_folders import moment_of

#: The tables, and the columns that are needed to read a team.
_TEAMS, _MESSAGES = "teams", "team_messages"
_TABLES = {_TEAMS: "id created_at members", _MESSAGES: "id team_id created_at sender recipient content read_by"}
#: The columns of a message that have another name in a team file.
_NAMES = {"sender": "from", "recipient": "to", "created_at": "timestamp"}


def read(source: Foreign) -> frozenset[str]:
    """Return the names of the teams' tables, or none if a table or column is missing."""
    return frozenset(_TABLES) if foreign.has(source, _TABLES) else frozenset()


def parts(source: Foreign) -> Iterator[SourceUnit]:
    """Yield the teams of a database, and the number of messages whose team is missing."""
    if not read(source):
        return
    for row in source.rows(_TEAMS, "ORDER BY created_at, id"):
        yield SourceUnit(unit_name(_TEAMS, row["id"]), partial(_piece, source, row))
    yield from foreign.unstored_rows(source, _MESSAGES, f"team_id NOT IN (SELECT id FROM {_TEAMS})")


def _piece(source: Foreign, row: Row, into: ImportTarget) -> ImportUnit:
    """Return a team, with its messages in the order in which they were stored."""
    said = list(source.rows(_MESSAGES, "WHERE team_id = ? ORDER BY rowid", [row["id"]]))
    source.confirm()
    noticed = Counter[str]()
    adapts = noticed if into.lenient else None
    told = {**row, "members": decode_json("members", row["members"], adapts)}
    told["messages"] = [_message(one, adapts) for one in said]
    return teams.piece(told, moment_of(row.get("updated_at")) or into.now, foreign.digest((row, said)), noticed, into)


def _message(row: Row, adapts: Counter[str] | None) -> Row:
    """Convert a message to the form of a team file. Other columns are put into the message's ``extra``."""
    told = {_NAMES.get(name, name): value for name, value in row.items() if name != "team_id" and value is not None}
    return {**told, "read_by": decode_json("read_by", row["read_by"], adapts)}
