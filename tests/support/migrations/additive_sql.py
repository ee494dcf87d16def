"""Whether one statement of raw SQL only adds. Decided by its head; what is not known is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = r'"?(\w+)"?'
_ADDS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"CREATE TABLE (IF NOT EXISTS )?{_NAME} ?\(",
        rf"CREATE (UNIQUE )?INDEX (IF NOT EXISTS )?{_NAME} ON ",
        rf"CREATE VIEW {_NAME} ",
        rf"CREATE TRIGGER {_NAME} (BEFORE|AFTER|INSTEAD OF) ",
        rf"CREATE FUNCTION {_NAME}\(",
        rf"COMMENT ON TABLE {_NAME} IS '",
        rf"LOCK TABLE {_NAME} IN ",
        rf"ALTER TABLE {_NAME} SET \(fillfactor = \d+\)$",
    )
)
_BACKFILL = re.compile(rf"UPDATE {_NAME} SET (.*?) WHERE ", re.IGNORECASE)
_ASSIGNED = re.compile(r"(?:^|, )(\w+) = ")
_ASSIGNED_TOGETHER = re.compile(r"(?:^|, )\(")
_OPAQUE = re.compile(r"(\$(\w*)\$.*?\$\2\$|'(?:[^']|'')*')|(--[^\n]*|/\*.*?\*/)|\"[^\"]*\"", re.DOTALL)
_TRIGGER_BODY = re.compile(r" BEGIN .*; END$", re.IGNORECASE)


def problem_with(sql: str, backfills: Mapping[str, tuple[str, ...]]) -> str | None:
    """What is wrong with the statement, None when it only adds.

    ``backfills`` says which columns of which tables the revision has declared to change.
    """
    bare = _bare(sql)
    if ";" in bare:
        return "more than one statement"
    backfill = _BACKFILL.match(bare)
    if backfill:
        return _problem_with_backfill(backfill[1], backfill[2], backfills)
    if not any(pattern.match(bare) for pattern in _ADDS):
        return "not known to add"
    return None


def _problem_with_backfill(table: str, assignments: str, backfills: Mapping[str, tuple[str, ...]]) -> str | None:
    if _ASSIGNED_TOGETHER.search(assignments):
        return "assigns columns in a row value, where they cannot be told apart"
    undeclared = sorted(set(_ASSIGNED.findall(assignments)) - set(backfills.get(table, ())))
    return f"changes {table}.{', '.join(undeclared)}, which no data step declares" if undeclared else None


def _bare(sql: str) -> str:
    """The statement without comments and the insides of texts and bodies, in which anything may stand."""
    sql = _OPAQUE.sub(lambda found: "''" if found[1] else " " if found[3] else found[0], sql)
    sql = re.sub(r"\s+", " ", sql).strip()
    if re.match(r"CREATE TRIGGER ", sql, re.IGNORECASE):
        sql = _TRIGGER_BODY.sub("", sql)
    return sql
