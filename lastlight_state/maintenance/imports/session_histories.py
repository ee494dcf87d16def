"""Reads status histories in the database of the third original system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from lastlight_state.conversations import words
from lastlight_state.conversations.arguments import Reason
from lastlight_state.conversations.runtime import SOURCE
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.drafts import Change
from lastlight_state.maintenance.imports.foreign import Row
from lastlight_state.maintenance.imports.lenient import ADAPTED, decode_json, with_text
from lastlight_state.maintenance.imports.run_folders import known_status, moment_of

# Cells of the third original system's rows: JSON is decoded, and columns without a field here are collected.

#: Names of columns that hold JSON, besides those with these endings.
_JSON = {"metadata", "node_metadata", "content", "payload"}
_JSON_SUFFIXES = ("_json", "_refs")


class Cells:
    """Reads the values of one session's rows. ``noticed`` counts values that cannot be stored.

    With ``lenient``, a value that is not JSON is stored as text.
    """

    def __init__(self, *, lenient: bool) -> None:
        self.noticed: Counter[str] = Counter()
        self._adapts = self.noticed if lenient else None

    def json(self, where: str, row: Row, column: str, texts: Row) -> Any:
        """Return the decoded value of a JSON column, or None for NULL.

        A lenient reader collects other text in ``texts``.
        """
        if row.get(column) is None:
            return None
        try:
            return decode_json(f"{where}.{column}", row[column], self._adapts)
        except InvalidValue:
            if self._adapts is None:
                raise
            texts.update(with_text(texts, column, row[column], self._adapts))
            return None

    def rest(self, where: str, row: Row, placed: Collection[str], texts: Row) -> Row:
        """Return the ``extra`` of a row: ``texts``, and under `SOURCE` the columns that are not in ``placed``."""
        found = {name: self._plain(where, row, name, texts) for name in row if name not in placed}
        told = {name: value for name, value in found.items() if value is not None}
        return {**texts, **({SOURCE: told} if told else {})}

    def _plain(self, where: str, row: Row, name: str, texts: Row) -> Any:
        is_json = name in _JSON or name.endswith(_JSON_SUFFIXES)
        return self.json(where, row, name, texts) if is_json and isinstance(row[name], str) else row[name]


#: The columns that a history must have.
_CHANGED = {"status", "previous_status", "created_at"}
#: The reason for a status whose own reason is unknown.
_IMPORTED = "legacy.imported"
_WHY = ("reason_code", "reason_summary", "evidence_refs")
#: The columns of a session with the reason for its status.
REASON = ("status_reason_code", "status_reason_summary", "status_evidence_refs")
_PLACED = {*_CHANGED, *_WHY, "id", "entity_type", "entity_id", "source", "actor"}


def history(cells: Cells, session: Row, rows: Sequence[Row]) -> Iterator[Change]:
    """Yield the changes of a session's status, the oldest first. The status in the session's own row is the last."""
    begun = moment_of(session.get("started_at")) or moment_of(session["created_at"])
    if rows and (lacking := sorted(_CHANGED - rows[0].keys())):
        raise InvalidValue("status_transitions", f"lacks the column {lacking[0]}")
    last, told = None, None
    for row in rows:
        at = moment_of(row["created_at"]) or begun
        if told is None and row["previous_status"] is not None and begun is not None:
            yield _change(cells, row["previous_status"], min(begun, at or begun))
        cells.noticed["previous_status_differs"] += told is not None and row["previous_status"] != told
        told = row["status"]
        last, strange = known_status(told)
        cells.noticed["status_unknown"] += strange is not None
        if at is not None:
            texts: Row = {}
            why = _why(cells, row, texts)
            yield Change(last, at, why, texts=texts.get(ADAPTED, {}), id=_id(row))
    yield from _present(cells, session, last, begun)


def says_why(session: Row, rows: Sequence[Row]) -> bool:
    """True if the row of a session states no other reason for its status than the last entry of its history."""
    own = [session.get(name) for name in REASON]
    if not rows or session.get("status") != rows[-1].get("status"):
        return True
    return own == [None] * len(own) or own == [rows[-1].get(name) for name in _WHY]


def branch_change(cells: Cells, row: Row) -> Change | None:
    """Return the change to the status in a branch's row, or None if the row has no status."""
    if row.get("status") is None:
        return None
    status, strange = known_status(row["status"])
    cells.noticed["status_unknown"] += strange is not None
    begun, ended = moment_of(row.get("started_at")), moment_of(row.get("ended_at"))
    at = (ended if status in words.TERMINAL else begun) or begun or moment_of(row["created_at"])
    reason = Reason(_IMPORTED, summary=strange, source="system")
    return None if at is None else Change(status, at, reason, begun)


def _present(cells: Cells, session: Row, last: str | None, begun: datetime | None) -> Iterator[Change]:
    """Yield the change to the status in the session's row, unless the history ends with this status."""
    told = session.get("status")
    if told is None:
        return
    status, strange = known_status(told)
    if status == last:
        return
    at = moment_of(session.get("ended_at")) if status in words.TERMINAL else begun
    moment = at or moment_of(session["updated_at"]) or begun
    if moment is None:
        return
    if session.get(REASON[0]) is None:
        yield _change(cells, told, moment)
        return
    cells.noticed["status_unknown"] += strange is not None
    texts: Row = {}
    said = {name: session.get(own) for name, own in zip(_WHY, REASON, strict=True)}
    yield Change(status, moment, _why(cells, {**said, "source": "system"}, texts), texts=texts.get(ADAPTED, {}))


def _change(cells: Cells, told: Any, at: datetime) -> Change:
    """Return a status change whose reason is unknown."""
    status, strange = known_status(told)
    cells.noticed["status_unknown"] += strange is not None
    return Change(status, at, Reason(_IMPORTED, summary=strange, source="system"))


def _why(cells: Cells, row: Row, texts: Row) -> Reason:
    """Return the reason for a change. An unknown code is put into the summary, and other columns into the evidence."""
    code, summary, source = row.get("reason_code"), row.get("reason_summary"), row.get("source")
    if code not in words.REASONS:
        cells.noticed["reason_unknown"] += 1
        code, summary = _IMPORTED, f"{code}: {summary}" if summary else code
    if source not in words.SOURCES:
        cells.noticed["source_unknown"] += source is not None
        source = "system"
    evidence = cells.json("status_transitions", row, "evidence_refs", texts)
    others = {name: cells.json("status_transitions", row, name, texts) for name in row if name == "metadata"}
    beside = {**{name: value for name, value in row.items() if name not in _PLACED | {"metadata"}}, **others}
    told = {name: value for name, value in beside.items() if value not in (None, {})}
    evidence = {"evidence_refs": evidence, **told} if told else evidence
    return Reason(code, summary, evidence, source, row.get("actor"))  # type: ignore[arg-type]  # a known source


def _id(row: Row) -> str | None:
    return row["id"] if isinstance(row.get("id"), str) else None
