"""Reads whole checkpoints, with their values and writes, by one statement and therefore from one snapshot.

The statement returns rows of four kinds: checkpoints; the values that they name, without bytes; the stored rows from
which these values are rebuilt, each once; and writes. Every row has the columns of all tables. Columns that belong to
other kinds are NULL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

import sqlalchemy as sa

from lastlight_state.backends.sql.json import members_of
from lastlight_state.checkpoints import models, statements as sql, values
from lastlight_state.checkpoints.checks import Content
from lastlight_state.checkpoints.models import CHECKPOINTS, VALUES, WRITES
from lastlight_state.checkpoints.records import Checkpoint, CheckpointSummary, CheckpointWrite, NamedValue, StoredValue
from lastlight_state.db.lists.pages import split_damaged
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Statement, constant, number, statement_of
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.schema.indexes import LookedUp
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData

#: The key of a checkpoint within a thread: its namespace and id.
Place = tuple[str, str]

# The statement that reads whole checkpoints.

_CHECKPOINT, _VALUE, _STORED, _WRITE = "checkpoint", "value", "stored", "write"
#: The columns of each table in the result, by a letter that stands for the table and prefixes its columns.
_SHOWN = {
    "c": [column.name for column in sql.WHOLE],
    "v": [column.name for column in VALUES.columns],
    "w": [column.name for column in sql.WRITE],
}
#: For each letter, pairs of a column's name and its label in the result.
_LABELS = {letter: [(name, f"{letter}_{name}") for name in names] for letter, names in _SHOWN.items()}
_of_named = itemgetter(*(f"v_{name}" for name in NamedValue._fields))
_of_stored = itemgetter(*(f"v_{name}" for name in StoredValue._fields))


def _of_kind(kind: str, letter: str, table: sa.FromClause, without: Sequence[str] = ()) -> sa.Select[Any]:
    """Return a SELECT of rows of one kind.

    Columns of its table are selected except ``without``; all other columns are NULL.
    """
    shown = [
        (table.c[name] if one == letter and name not in without else sa.null()).label(f"{one}_{name}")
        for one, names in _SHOWN.items()
        for name in names
    ]
    return sa.select(constant(kind).label("kind"), *shown)


def _no_rows() -> sa.Select[Any]:
    """Return a SELECT that finds no rows. As the first part of the UNION, it sets the types of the columns."""
    tables = {"c": CHECKPOINTS.alias("c"), "v": VALUES.alias("v"), "w": WRITES.alias("w")}
    shown = [tables[one].c[name].label(f"{one}_{name}") for one, names in _SHOWN.items() for name in names]
    return sa.select(constant("none").label("kind"), *shown).where(sa.false())


def _read_statement(checkpoints: sa.Select[Any]) -> Statement:
    """Return the statement that reads all parts of the checkpoints that the query ``checkpoints`` selects."""
    asked = checkpoints.cte("asked")
    named = _named_values(asked)
    one, stored, write = CHECKPOINTS.alias("one"), VALUES.alias("stored"), WRITES.alias("write")
    numbers = _numbers(named)
    is_stored = sa.and_(
        *(stored.c[name] == numbers.c[name] for name in ("thread_id", "namespace", "channel", "number")),
        stored.c.encoding != constant("same"),
    )
    rows = [
        _no_rows(),
        _of_kind(_CHECKPOINT, "c", one).select_from(LookedUp(asked, one, _is_of(one, asked, "id"))),
        _of_kind(_VALUE, "v", named, ["body"]).select_from(named),
        _of_kind(_STORED, "v", stored).select_from(LookedUp(numbers, stored, is_stored)),
        _of_kind(_WRITE, "w", write).select_from(LookedUp(asked, write, _is_of(write, asked, "checkpoint_id"))),
    ]
    return statement_of(sa.union_all(*rows))


def _is_of(table: sa.FromClause, asked: sa.FromClause, column: str) -> sa.ColumnElement[bool]:
    """Return the condition that a table's row belongs to one of the requested checkpoints."""
    return sa.and_(
        table.c.thread_id == asked.c.thread_id, table.c.namespace == asked.c.namespace, table.c[column] == asked.c.id
    )


def _named_values(asked: sa.CTE) -> sa.CTE:
    """Return a query for the values that checkpoints name by their versions, each once, without the values' bytes."""
    value = VALUES.alias("value")
    versions = members_of(asked.c.versions).table_valued("key", "value", name="version")
    pairs = (
        sa.select(asked.c.thread_id, asked.c.namespace, versions.c.key, versions.c.value)
        .select_from(asked, versions)
        .distinct()
        .subquery("pairs")
    )
    is_named = sa.and_(
        value.c.thread_id == pairs.c.thread_id,
        value.c.namespace == pairs.c.namespace,
        value.c.channel == pairs.c.key,
        value.c.version == pairs.c.value,
    )
    shown = [column for column in value.c if column.name != "body"]
    return sa.select(*shown).select_from(LookedUp(pairs, value, is_named)).cte("named")


def _numbers(named: sa.CTE) -> sa.Subquery:
    """Return a query for the numbers of the rows from which values are rebuilt (see `values.chain`), each once."""
    sizes = [2**power for power in range(models.WHOLE_INTERVAL.bit_length())]
    cut = sa.union_all(*(sa.select(number(size).label("size")) for size in sizes)).subquery("cut")
    behind = (named.c.number - named.c.anchor) // cut.c.size * cut.c.size
    place = [named.c.thread_id, named.c.namespace, named.c.channel]
    chosen = sa.select(*place, (named.c.anchor + behind).label("number")).select_from(named.join(cut, sa.true()))
    return chosen.distinct().subquery("numbers")


def _versions(checkpoints: sa.FromClause) -> sa.Select[Any]:
    return sa.select(*(checkpoints.c[name] for name in ("thread_id", "namespace", "id", "versions")))


def _wanted_checkpoints() -> sa.Select[Any]:
    """Return a query for the checkpoints listed in the parameter ``wanted``."""
    named, found = sql.wanted_table("thread_id", "namespace", "id"), CHECKPOINTS.alias("found")
    return _versions(found).select_from(LookedUp(named, found, _is_of(found, named, "id")))


_latest = _versions(CHECKPOINTS).where(sql.IS_HERE).order_by(CHECKPOINTS.c.seq.desc()).limit(number(1))
#: Statements for one checkpoint, for the latest of a namespace, and for those in the parameter ``wanted``.
GET, LATEST, THESE = map(_read_statement, (_versions(CHECKPOINTS).where(*sql.IS_THIS), _latest, _wanted_checkpoints()))


# Building checkpoints from the rows of the statement.


class _Parts(NamedTuple):
    """The rows of some checkpoints, by kind. In place of an unreadable row there is its error."""

    checkpoints: dict[Place, Row | CorruptData]
    named: list[NamedValue]
    stored: Mapping[values.Line, dict[int, StoredValue | CorruptData]]
    writes: Mapping[Place, list[Row]]
    broken: dict[Place, CorruptData]


def page(unit: Unit, found: Page[CheckpointSummary]) -> Page[Checkpoint]:
    """Return these checkpoints of one thread whole, as far as they are there."""
    wanted = [{"thread_id": one.thread_id, "namespace": one.namespace, "id": one.id} for one in found.items]
    made = read(unit, THESE, {"wanted": as_list(wanted)}) if wanted else {}
    places = ((one.namespace, one.id) for one in found.items)
    shown, damaged = split_damaged([made[place] for place in places if place in made])
    return Page.of({"items": shown, "next_page_token": found.next_page_token, "damaged": found.damaged + damaged})


def read(unit: Unit, statement: Statement, given: Row) -> dict[Place, Checkpoint | CorruptData]:
    """Run a statement of this module.

    Return its checkpoints by namespace and id, with errors for those that cannot be read.
    """
    parts = _parts(unit, statement, given)
    found, damaged = values.rebuilt(parts.named, parts.stored)
    made: dict[Place, Checkpoint | CorruptData] = {}
    for place, row in parts.checkpoints.items():
        problem = row if isinstance(row, CorruptData) else _damage(row, damaged) or parts.broken.get(place)
        made[place] = problem or _make_checkpoint(cast(Row, row), found, parts.writes[place])
    return made


def _parts(unit: Unit, statement: Statement, given: Row) -> _Parts:
    parts = _Parts({}, [], defaultdict(dict), defaultdict(list), {})
    try:
        for row in unit.rows(statement, given):
            _sort(parts, row)
    except CorruptData:  # rare: then read row by row
        parts = _Parts({}, [], defaultdict(dict), defaultdict(list), {})
        several = unit.rows_or_errors(statement, given)
        for at, one in enumerate(several.rows):
            if isinstance(one, CorruptData):
                _sort_damaged(parts, one, lambda *names, at=at: several.columns(at, names))
            else:
                _sort(parts, one)
    return parts


def _sort(parts: _Parts, row: Row) -> None:
    kind = row["kind"]
    if kind == _VALUE:
        parts.named.append(NamedValue._make(_of_named(row)))
    elif kind == _STORED:
        stored = StoredValue._make(_of_stored(row))
        parts.stored[stored.namespace, stored.channel][stored.number] = stored
    elif kind == _WRITE:
        parts.writes[row["w_namespace"], row["w_checkpoint_id"]].append(_only("w", row))
    else:
        parts.checkpoints[row["c_namespace"], row["c_id"]] = _only("c", row)


def _only(letter: str, row: Row) -> Row:
    return {name: row[label] for name, label in _LABELS[letter]}


def _sort_damaged(parts: _Parts, error: CorruptData, columns: Any) -> None:
    """Record the error of an unreadable row under the row's key. If the key cannot be read, raise the error."""
    [kind] = columns("kind")
    if kind == _STORED and (place := columns("v_namespace", "v_channel", "v_number")) is not None:
        parts.stored[place[0], place[1]][place[2]] = error
    elif kind == _WRITE and (place := columns("w_namespace", "w_checkpoint_id")) is not None:
        parts.broken[place[0], place[1]] = error
    elif kind == _CHECKPOINT and (place := columns("c_namespace", "c_id")) is not None:
        parts.checkpoints[place[0], place[1]] = error
    else:
        raise error


def _damage(row: Row, damaged: Mapping[values.Name, CorruptData]) -> CorruptData | None:
    """Return why the values of a checkpoint cannot be read, if so."""
    if row["versions"] is None:  # JSON null
        return CorruptData(str(CHECKPOINTS.name), row["id"], "versions")
    named = ((row["namespace"], *one) for one in row["versions"].items()) if damaged else ()
    return next((damaged[one] for one in named if one in damaged), None)


def _make_checkpoint(row: Row, found: Mapping[values.Name, Content], writes: Sequence[Row]) -> Checkpoint:
    space = row["namespace"]
    valued = {
        channel: found[space, channel, version]
        for channel, version in row["versions"].items()
        if (space, channel, version) in found
    }
    ordered = sorted(writes, key=lambda one: (one["path"], one["task"], one["idx"]))
    return Checkpoint.of({**row, "values": valued, "writes": tuple(map(CheckpointWrite.of, ordered))})
