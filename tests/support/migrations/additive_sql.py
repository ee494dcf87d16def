"""Whether one statement of raw SQL only adds: what is not known to add is refused.

Decided by its head and, of triggers and functions, by every statement of the body.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

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
        rf"ALTER TABLE {_NAME} SET \((fillfactor|autovacuum_\w+) = \d+(, autovacuum_\w+ = \d+)*\)$",
    )
)
_BACKFILL = re.compile(rf"UPDATE {_NAME} SET (.*?) WHERE ", re.IGNORECASE)
_ASSIGNED = re.compile(r"(?:^|, )(\w+) = ")
_ASSIGNED_TOGETHER = re.compile(r"(?:^|, )\(")
_OPAQUE = re.compile(r"(\$(\w*)\$.*?\$\2\$|'(?:[^']|'')*')|(--[^\n]*|/\*.*?\*/)|\"[^\"]*\"", re.DOTALL)
_TRIGGER_BODY = re.compile(r" BEGIN (.*); END$", re.IGNORECASE)
_FUNCTION_BODY = re.compile(r"\$(\w*)\$(.*?)\$\1\$", re.DOTALL)

#: What a trigger of SQLite may do: read and refuse, or ask whether rows are being replaced, which stores nothing.
_REFUSES = re.compile(
    r"SELECT |INSERT OR IGNORE INTO maintenance_permits \(receipt_id, probe\) VALUES \('', NULL\)$", re.IGNORECASE
)
#: What a trigger may do to rows of a table that its own revision brought: make, set and remove them by their key.
_KEEPS = re.compile(
    rf"(?:INSERT INTO {_NAME} \([\w, ]+\) VALUES \(.*\) ON CONFLICT \(\w+\) DO UPDATE SET [^;]*"
    rf"|DELETE FROM {_NAME} WHERE \w+ = OLD\.\w+)$",
    re.IGNORECASE,
)
_INSERTS = re.compile(rf"INSERT INTO {_NAME} \([\w, ]+\) SELECT ", re.IGNORECASE)
#: Locks the rows that are looked at by the statement after it.
_LOCKS = re.compile(r"\bPERFORM \w+ FROM \w+ WHERE [^;]*? FOR NO KEY UPDATE(?=;)", re.IGNORECASE)
_NONE: Mapping[str, tuple[str, ...]] = {}
#: Words of statements that change something.
_CHANGES = re.compile(
    r"\b(INSERT|UPDATE|DELETE|MERGE|TRUNCATE|COPY|CREATE|ALTER|DROP|GRANT|REVOKE|EXECUTE|PERFORM|CALL|SET)\b",
    re.IGNORECASE,
)


def problem_with(
    sql: str,
    backfills: Mapping[str, tuple[str, ...]],
    reactions: Mapping[str, tuple[str, ...]] = _NONE,
    kept: Collection[str] = (),
) -> str | None:
    """What is wrong with the statement, None when it only adds.

    ``backfills`` says which columns of which tables the revision has declared to change, and ``reactions`` which ones
    its triggers change whenever they fire. ``kept`` are the tables of its own whose rows its triggers keep.
    """
    bare, body = _apart(_bare(sql))
    if body and not all(_harmless(statement.strip(), reactions, kept) for statement in body.split(";")):
        return "a trigger that changes rows"
    if ";" in bare:
        return "more than one statement"
    backfill = _BACKFILL.match(bare)
    if backfill:
        return _problem_with_backfill(backfill[1], backfill[2], backfills)
    filling = _INSERTS.match(bare)
    if filling and filling[1] in kept and not _CHANGES.search(bare[filling.end() :]):
        return None
    if not any(pattern.match(bare) for pattern in _ADDS):
        return "not known to add"
    for found in _FUNCTION_BODY.finditer(sql):
        statements = _LOCKS.sub("", _bare(found[2])).split(";")
        stripped = (each.strip().removeprefix("BEGIN ") for each in statements)
        if any(_CHANGES.search(each) and not _harmless(each, reactions, kept) for each in stripped):
            return "a function that changes something"
    return None


def _harmless(statement: str, reactions: Mapping[str, tuple[str, ...]], kept: Collection[str]) -> bool:
    """Whether a statement of a trigger refuses, or changes declared columns or rows of kept tables and nothing else."""
    keeping = _KEEPS.match(statement)
    if keeping is not None:
        return (keeping[1] or keeping[2]) in kept
    update = _BACKFILL.match(statement)
    if update is None:
        return bool(_REFUSES.match(statement))
    rest = statement[update.end() :]
    return _problem_with_backfill(update[1], update[2], reactions) is None and not _CHANGES.search(rest)


def _problem_with_backfill(table: str, assignments: str, backfills: Mapping[str, tuple[str, ...]]) -> str | None:
    if _ASSIGNED_TOGETHER.search(assignments):
        return "assigns columns in a row value, where they cannot be told apart"
    undeclared = sorted(set(_ASSIGNED.findall(assignments)) - set(backfills.get(table, ())))
    return f"changes {table}.{', '.join(undeclared)}, which no data step declares" if undeclared else None


def _bare(sql: str) -> str:
    """The statement without comments and the insides of texts, in which anything may stand."""
    sql = _OPAQUE.sub(lambda found: "''" if found[1] else " " if found[3] else found[0], sql)
    return re.sub(r"\s+", " ", sql).strip()


def _apart(bare: str) -> tuple[str, str]:
    """The statement without the body of a trigger, and that body."""
    body = _TRIGGER_BODY.search(bare) if re.match(r"CREATE TRIGGER ", bare, re.IGNORECASE) else None
    return (bare[: body.start()], body[1]) if body else (bare, "")
