"""The SQL statements of checkpoints. A statement about many rows gets their keys as one JSON parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert, insert

from lastlight_state.backends.sql.json import has_members, member_of
from lastlight_state.checkpoints.models import CHECKPOINTS, THREADS, VALUES, WHOLE_INTERVAL, WRITES
from lastlight_state.checkpoints.records import (
    Checkpoint,
    CheckpointSummary,
    CheckpointThread,
    CheckpointWrite,
    NamedValue,
    StoredValue,
)
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import (
    Family,
    Statement,
    bind,
    columns_of,
    constant,
    every_column_of,
    number,
    statement_of,
)
from lastlight_state.db.rows.writes import cache_statements, elements_table, insert_computed
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import LookedUp

_t, _c, _v, _w = THREADS.c, CHECKPOINTS.c, VALUES.c, WRITES.c

_THREAD_COLUMNS = every_column_of(CheckpointThread, THREADS)
_HERE = sa.and_(_t.scope == bind("scope", _t.scope), _t.key == bind("key", _t.key))
#: The id of the thread with the parameters ``scope`` and ``key``, as a subquery.
_THREAD = sa.select(_t.id).where(_HERE).scalar_subquery()

#: Insert the thread, or update its time of change. Either locks its row, so that writers of one thread take turns.
_made = insert(THREADS).values({column.name: bind(column.name, column) for column in THREADS.columns})
TOUCH = statement_of(
    _made.on_conflict_do_update(
        index_elements=[_t.scope, _t.key],
        set_={
            "updated_at": later_of(_t.updated_at, _made.excluded.updated_at),
            "expires_at": sa.func.coalesce(_made.excluded.expires_at, _t.expires_at),
            "user": sa.func.coalesce(_made.excluded.user, _t.user),
        },
    ).returning(_t.id)
)
_c_id = sa.and_(
    CHECKPOINTS.c.thread_id == _t.id,
    CHECKPOINTS.c.namespace == bind("namespace", CHECKPOINTS.c.namespace),
    CHECKPOINTS.c.id == bind("checkpoint_id", CHECKPOINTS.c.id),
)
_touch_with = (
    sa.update(THREADS)
    .where(_HERE, sa.exists().where(_c_id))
    .values(updated_at=later_of(_t.updated_at, bind("updated_at", _t.updated_at)))
    .returning(_t.id)
)
#: Note that a thread has changed that has this checkpoint, and lock it. Nothing is made.
TOUCH_WITH = statement_of(_touch_with)
GET_THREAD = statement_of(sa.select(*_THREAD_COLUMNS).where(_HERE), CheckpointThread)
THREAD_OF = statement_of(sa.select(*_THREAD_COLUMNS).where(_t.id == bind("thread_id", _t.id)), CheckpointThread)
LOCK = statement_of(sa.select(_t.id).where(_HERE).with_for_update())
LOCK_MANY = Family("id", lambda ids: sa.select(_t.id).where(_t.id.in_(ids)).order_by(_t.id).with_for_update())
THREAD_LIST = Listing(
    "checkpoint_threads",
    _THREAD_COLUMNS,
    order=(_t.updated_at, _t.id),
    filters={"scope": _t.scope == bind("scope", _t.scope), "user": _t.user == bind("user", _t.user)},
    row=CheckpointThread,
)


def of_thread(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that a row belongs to the thread with the parameter ``thread_id``."""
    column = table.c.thread_id
    return column == bind("thread_id", column)


def _in_namespace(table: sa.FromClause) -> sa.ColumnElement[bool]:
    column = table.c.namespace
    return sa.and_(of_thread(table), column == bind("namespace", column))


# Checkpoints.

_SUMMARY = columns_of(CheckpointSummary, CHECKPOINTS)
#: Of a whole checkpoint, and of a write.
WHOLE = every_column_of(Checkpoint, CHECKPOINTS)
WRITE = every_column_of(CheckpointWrite, WRITES)
#: The checkpoints of a namespace of the thread that is named by its key, and one of them.
IS_HERE = sa.and_(_c.thread_id == _THREAD, _c.namespace == bind("namespace", _c.namespace))
IS_THIS = (IS_HERE, _c.id == bind("id", _c.id))

_seq = sa.select(sa.func.coalesce(sa.func.max(_c.seq), number(0)) + number(1)).where(of_thread(CHECKPOINTS))
_put = insert_computed(
    CHECKPOINTS,
    {column.name: bind(column.name, column) for column in CHECKPOINTS.columns if column.name != "seq"}
    | {"seq": _seq.scalar_subquery()},
)
_PUT = _put.on_conflict_do_update(
    index_elements=[_c.thread_id, _c.namespace, _c.id],
    set_={name: _put.excluded[name] for name in ("parent_id", "run_ref", "format", "metadata", "versions", "body")},
).returning(*_SUMMARY)
#: Store a checkpoint under the next number of its thread, or put it in the place of the one that has its id.
PUT = statement_of(_PUT, CheckpointSummary)
#: What a checkpoint and its values have in common.
_SHARED = ("thread_id", "namespace")
LATEST_ID = statement_of(sa.select(_c.id).where(_in_namespace(CHECKPOINTS)).order_by(_c.seq.desc()).limit(number(1)))
_LINK = sa.select(_c.thread_id, _c.parent_id).where(IS_HERE)
#: The thread of a checkpoint, and its parent.
Link: TypeAlias = tuple[str, str | None]
#: The parent of the latest checkpoint of a namespace, or of one.
LATEST_PARENT: Statement[Link] = statement_of(_LINK.order_by(_c.seq.desc()).limit(number(1)), tuple)
PARENT: Statement[Link] = statement_of(_LINK.where(_c.id == bind("id", _c.id)), tuple)
SEQ = statement_of(sa.select(_c.seq).where(*IS_THIS))
#: True if a thread has checkpoints or writes.
IS_FILLED = statement_of(
    sa.select(sa.or_(*(sa.exists().where(of_thread(table)) for table in (CHECKPOINTS, WRITES))).label("is_filled"))
)

_FILTERS = {
    "thread": _c.thread_id == _THREAD,
    "namespace": _c.namespace == bind("namespace", _c.namespace),
    "before": _c.seq < bind("before", _c.seq),
    "id_before": _c.id < bind("id_before", _c.id),
    "where": has_members(_c.metadata, sa.bindparam("where", type_=columns.Text)),
}
LIST = Listing("checkpoints", _SUMMARY, order=(_c.seq,), filters=_FILTERS, row=CheckpointSummary)


def _threads_of_runs(*conditions: sa.ColumnElement[bool]) -> Statement:
    found = sa.select(_c.thread_id).where(made_by_runs(CHECKPOINTS), *conditions)
    return statement_of(found.distinct().order_by(_c.thread_id))


def made_by_runs(checkpoints: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that a checkpoint was made by one of the runs in the parameter ``runs``."""
    run_ref = checkpoints.c.run_ref
    return sa.and_(run_ref.is_not(None), run_ref.in_(sa.select(member_of(elements_table("runs").c.value, "id"))))


#: Statements for the threads in which runs made checkpoints, by whether a scope is given.
THREADS_OF_RUNS = {
    False: _threads_of_runs(),
    True: _threads_of_runs(sa.exists().where(_t.id == _c.thread_id, _t.scope == bind("scope", _t.scope))),
}


# Values.


def _names(name: str) -> sa.ColumnElement[str]:
    return member_of(elements_table("wanted").c.value, name)


def wanted_table(*members: str) -> Any:
    """Return the JSON list in the parameter ``wanted`` as a table, with the named members as text columns.

    Each item names the thread, so that joins compare it. With a separate condition on the thread, SQLite would scan all
    rows of the thread, and search for each among the wanted items.
    """
    each = elements_table("wanted")
    return sa.select(*(member_of(each.c.value, name).label(name) for name in members)).subquery("w")


_found = VALUES.alias("found")  # an alias, because columns of a table in a named schema are rendered with the schema
_f = _found.c
_by_version = wanted_table("thread", "namespace", "channel", "version")
#: The values of the wanted versions, without their bytes.
NAMED = statement_of(
    sa.select(*(_f[name] for name in NamedValue._fields)).select_from(
        LookedUp(
            _by_version,
            _found,
            sa.and_(
                _f.thread_id == _by_version.c.thread,
                _f.namespace == _by_version.c.namespace,
                _f.channel == _by_version.c.channel,
                _f.version == _by_version.c.version,
            ),
        )
    ),
    NamedValue,
)
_IS_STORED = _f.encoding != constant("same")

_new = wanted_table("thread", "namespace", "channel", "version", "digest")
_known, _last, _others = (VALUES.alias(name) for name in ("known", "last", "others"))


def _of_new(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that a stored value belongs to the channel of a new value."""
    c = table.c
    return sa.and_(c.thread_id == _new.c.thread, c.namespace == _new.c.namespace, c.channel == _new.c.channel)


def _is_base() -> sa.ColumnElement[bool]:
    """Return the condition for the rows from which a new value's change would be computed (`values.chain`)."""
    size, last = WHOLE_INTERVAL // 2, _last.c
    behind = last.number + number(1) - last.anchor
    numbers: list[sa.ColumnElement[int]] = [last.anchor]
    while size > 1:
        numbers.append(last.anchor + behind // number(size) * number(size))
        size //= 2
    return sa.and_(
        _of_new(_found),
        _f.number.in_(numbers),
        _IS_STORED,
        behind < number(WHOLE_INTERVAL),
        last.digest != _new.c.digest,
        _known.c.version.is_(None),
    )


_greatest = (
    sa.select(_others.c.number)
    .where(_of_new(_others), _others.c.encoding != constant("same"))
    .order_by(_others.c.number.desc())
    .limit(number(1))
    .scalar_subquery()
)
_is_known = sa.and_(_of_new(_known), _known.c.version == _new.c.version)
_is_last = sa.and_(_of_new(_last), _last.c.number == _greatest, _last.c.encoding != constant("same"))
_line = LookedUp(LookedUp(_new, _known, _is_known, isouter=True), _last, _is_last, isouter=True)
#: What there is of the channels of new values: a value of the same version, the last value, and the rows of its base.
#: The channel, format and digest of the first, number, anchor and digest of the second, and the fields of a
#: `StoredValue`. None stands for what is not there.
BEFORE: Statement[tuple[Any, ...]] = statement_of(
    sa.select(
        _new.c.channel.label("new_channel"),
        _known.c.format.label("known_format"),
        _known.c.digest.label("known_digest"),
        _last.c.number.label("last_number"),
        _last.c.anchor.label("last_anchor"),
        _last.c.digest.label("last_digest"),
        *(_f[name] for name in StoredValue._fields),
    ).select_from(LookedUp(_line, _found, _is_base(), isouter=True)),
    tuple,
)

_by_number = wanted_table("thread", "namespace", "channel", "number")
#: The stored values with the wanted numbers, unsorted, because sorting would copy their bytes.
STORED = statement_of(
    sa.select(*(_f[name] for name in StoredValue._fields)).select_from(
        LookedUp(
            _by_number,
            _found,
            sa.and_(
                _f.thread_id == _by_number.c.thread,
                _f.namespace == _by_number.c.namespace,
                _f.channel == _by_number.c.channel,
                _f.number == sa.cast(_by_number.c.number, columns.Integer),
                _IS_STORED,
            ),
        )
    ),
    StoredValue,
)
ADD_VALUE = statement_of(
    sa.insert(VALUES).values({column.name: bind(column.name, column) for column in VALUES.columns})
)


@cache_statements
def put_with_values(number_of: int) -> Statement[CheckpointSummary]:
    """Return one statement that does `PUT`, and `ADD_VALUE` for ``number_of`` values, on Postgres."""
    rows = [
        sa.select(*(bind(_of_value(column.name, at), column) for column in VALUES.columns)) for at in range(number_of)
    ]
    values = insert(VALUES).from_select([*_v.keys()], sa.union_all(*rows)).cte("values")
    return statement_of(_PUT.add_cte(values), CheckpointSummary)


def _of_value(name: str, at: int) -> str:
    return name if name in _SHARED else f"value_{name}_{at}"


def values_numbered(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of values as numbered parameters of `put_with_values`."""
    return {_of_value(name, at): value for at, row in enumerate(rows) for name, value in row.items()}


# Writes.


def _or(row: Insert, *, replace: bool) -> Insert:
    """Add a conflict clause to an INSERT of writes. On a conflict, it replaces the stored write or keeps it."""
    if not replace:
        return row.on_conflict_do_nothing()
    changed = {name: row.excluded[name] for name in ("path", "channel", "format", "body")}
    return row.on_conflict_do_update(index_elements=list(WRITES.primary_key), set_=changed)


_write = insert(WRITES).values({column.name: bind(column.name, column) for column in WRITES.columns})
#: Statements that insert a write, by how a stored write with the same key is handled (`models.WriteConflictRule`).
PUT_WRITE = {"keep": statement_of(_or(_write, replace=False)), "replace": statement_of(_or(_write, replace=True))}
#: The columns that differ between the writes of a call. Their parameters are numbered.
OWN_OF_WRITE = ("idx", "path", "channel", "format", "body")


@cache_statements
def touch_and_put_writes(number_of: int, taken: str) -> Statement:
    """Return `TOUCH_WITH` and `PUT_WRITE` for so many writes as one statement, where the database has such."""
    thread = _touch_with.cte("thread")
    rows = [
        sa.select(thread.c.id, *(bind(_numbered_name(column.name, at), column) for column in [*_w][1:]))
        for at in range(number_of)
    ]
    put = _or(insert(WRITES).from_select([*_w.keys()], sa.union_all(*rows)), replace=taken == "replace")
    return statement_of(sa.select(thread.c.id).add_cte(put.cte("put")))


def _numbered_name(name: str, at: int) -> str:
    return f"{name}_{at}" if name in OWN_OF_WRITE else name


def numbered_parameters(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the writes' own columns as numbered parameters of `touch_and_put_writes`."""
    return {f"{name}_{at}": value for at, row in enumerate(rows) for name, value in row.items()}


_found_writes = WRITES.alias("found_writes")
_by_ancestor = wanted_table("thread", "namespace", "id", "channel")
#: The writes to the wanted channels after the wanted checkpoints.
WRITES_TO = statement_of(
    sa.select(*(_found_writes.c[column.name] for column in WRITE))
    .select_from(
        LookedUp(
            _by_ancestor,
            _found_writes,
            sa.and_(
                _found_writes.c.thread_id == _by_ancestor.c.thread,
                _found_writes.c.namespace == _by_ancestor.c.namespace,
                _found_writes.c.checkpoint_id == _by_ancestor.c.id,
                _found_writes.c.channel == _by_ancestor.c.channel,
            ),
        )
    )
    .order_by(_found_writes.c.path, _found_writes.c.task, _found_writes.c.idx)
)


# Removal of whole threads.

#: The tables with a thread's rows. Tables that refer to others come first.
TABLES = (WRITES, VALUES, CHECKPOINTS)
#: Statements that delete a thread's rows, by table. The thread itself comes last.
REMOVE_ALL = {str(table.name): statement_of(sa.delete(table).where(of_thread(table))) for table in TABLES}
REMOVE_ALL[str(THREADS.name)] = statement_of(sa.delete(THREADS).where(_t.id == bind("thread_id", _t.id)))
