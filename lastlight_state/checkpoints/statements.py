"""The statements of checkpoints. Those about many rows get them as one parameter, so each is one statement."""

from __future__ import annotations

from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import has_members, member_of
from lastlight_state.checkpoints.models import CHECKPOINTS, THREADS, VALUES, WRITES
from lastlight_state.checkpoints.projections import (
    CheckpointSummaryRow,
    LastRow,
    NamedRow,
    ParentRow,
    StoredRow,
    ThreadIdRow,
    WholeRow,
    WriteRow,
)
from lastlight_state.checkpoints.rows import CheckpointThreadRow
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Family, Statement, bind, constant, number, prepared
from lastlight_state.db.rows.writes import insert_computed, listed
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import LookedUp


class IdRow(TypedDict):
    """A thread."""

    id: str


class SeqRow(TypedDict):
    """The number of a checkpoint."""

    seq: int


_t, _c, _v, _w = THREADS.c, CHECKPOINTS.c, VALUES.c, WRITES.c

_HERE = sa.and_(_t.scope == bind("scope", _t.scope), _t.key == bind("key", _t.key))
#: The thread that statements name by its key.
_THREAD = sa.select(_t.id).where(_HERE).scalar_subquery()

#: Make the thread, or note that it has changed. It is locked then, so that one writer of a thread follows another.
_made = insert(THREADS).values({column.name: bind(column.name, column) for column in THREADS.columns})
TOUCH = prepared(
    _made.on_conflict_do_update(
        index_elements=[_t.scope, _t.key],
        set_={
            "updated_at": later_of(_t.updated_at, _made.excluded.updated_at),
            "expires_at": sa.func.coalesce(_made.excluded.expires_at, _t.expires_at),
            "user": sa.func.coalesce(_made.excluded.user, _t.user),
        },
    ).returning(_t.id),
    IdRow,
)
_c_id = sa.and_(
    CHECKPOINTS.c.thread_id == _t.id,
    CHECKPOINTS.c.namespace == bind("namespace", CHECKPOINTS.c.namespace),
    CHECKPOINTS.c.id == bind("checkpoint_id", CHECKPOINTS.c.id),
)
#: Note that a thread has changed that has this checkpoint, and lock it. Nothing is made.
TOUCH_WITH = prepared(
    sa.update(THREADS)
    .where(_HERE, sa.exists().where(_c_id))
    .values(updated_at=later_of(_t.updated_at, bind("updated_at", _t.updated_at)))
    .returning(_t.id),
    IdRow,
)
GET_THREAD = prepared(sa.select(*_t).where(_HERE), CheckpointThreadRow)
THREAD_OF = prepared(sa.select(*_t).where(_t.id == bind("thread_id", _t.id)), CheckpointThreadRow)
LOCK = prepared(sa.select(_t.id).where(_HERE).with_for_update(), IdRow)
LOCK_MANY = Family("id", lambda ids: sa.select(_t.id).where(_t.id.in_(ids)).order_by(_t.id).with_for_update(), IdRow)
EXPIRE = prepared(
    sa.update(THREADS).where(_HERE).values(expires_at=bind("expires_at", _t.expires_at)).returning(*_t),
    CheckpointThreadRow,
)
THREAD_LIST = Listing(
    "checkpoint_threads",
    list(THREADS.columns),
    order=(_t.updated_at, _t.id),
    filters={"scope": _t.scope == bind("scope", _t.scope), "user": _t.user == bind("user", _t.user)},
    row=CheckpointThreadRow,
)


def of_thread(table: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the rows of the thread with the parameter ``thread_id``."""
    column = table.c.thread_id
    return column == bind("thread_id", column)


def _in_namespace(table: sa.FromClause) -> sa.ColumnElement[bool]:
    column = table.c.namespace
    return sa.and_(of_thread(table), column == bind("namespace", column))


# Checkpoints.

_SUMMARY = [_c[name] for name in CheckpointSummaryRow.__annotations__]
_WHOLE = [*_SUMMARY, _c.versions, _c.body]
_of_this = sa.and_(_c.thread_id == _THREAD, _c.namespace == bind("namespace", _c.namespace))

_seq = sa.select(sa.func.coalesce(sa.func.max(_c.seq), number(0)) + number(1)).where(of_thread(CHECKPOINTS))
_put = insert_computed(
    CHECKPOINTS,
    {column.name: bind(column.name, column) for column in CHECKPOINTS.columns if column.name != "seq"}
    | {"seq": _seq.scalar_subquery()},
)
#: Store a checkpoint under the next number of its thread, or put it in the place of the one that has its id.
PUT = prepared(
    _put.on_conflict_do_update(
        index_elements=[_c.thread_id, _c.namespace, _c.id],
        set_={name: _put.excluded[name] for name in ("parent_id", "run_ref", "format", "metadata", "versions", "body")},
    ).returning(*_SUMMARY),
    CheckpointSummaryRow,
)
LATEST_ID = prepared(sa.select(_c.id).where(_in_namespace(CHECKPOINTS)).order_by(_c.seq.desc()).limit(number(1)), IdRow)
LATEST = prepared(sa.select(*_WHOLE).where(_of_this).order_by(_c.seq.desc()).limit(number(1)), WholeRow)
GET = prepared(sa.select(*_WHOLE).where(_of_this, _c.id == bind("id", _c.id)), WholeRow)
_LINK = sa.select(_c.thread_id, _c.parent_id).where(_of_this)
#: The parent of the latest checkpoint of a namespace, or of one.
LATEST_PARENT = prepared(_LINK.order_by(_c.seq.desc()).limit(number(1)), ParentRow)
PARENT = prepared(_LINK.where(_c.id == bind("id", _c.id)), ParentRow)
SEQ = prepared(sa.select(_c.seq).where(_of_this, _c.id == bind("id", _c.id)), SeqRow)
#: True if a thread has checkpoints or writes.
IS_FILLED = prepared(
    sa.select(sa.or_(*(sa.exists().where(of_thread(table)) for table in (CHECKPOINTS, WRITES))).label("is_filled"))
)

_FILTERS = {
    "thread": _c.thread_id == _THREAD,
    "namespace": _c.namespace == bind("namespace", _c.namespace),
    "before": _c.seq < bind("before", _c.seq),
    "id_before": _c.id < bind("id_before", _c.id),
    "where": has_members(_c.metadata, sa.bindparam("where", type_=columns.Text)),
}
LIST = Listing("checkpoints", _SUMMARY, order=(_c.seq,), filters=_FILTERS, row=CheckpointSummaryRow)
HISTORY = Listing("checkpoints.history", _WHOLE, order=(_c.seq,), filters=_FILTERS, row=WholeRow)


def _threads_of_runs(*conditions: sa.ColumnElement[bool]) -> Statement[ThreadIdRow]:
    found = sa.select(_c.thread_id).where(made_by_runs(CHECKPOINTS), *conditions)
    return prepared(found.distinct().order_by(_c.thread_id), ThreadIdRow)


def made_by_runs(checkpoints: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the checkpoints that the runs of the parameter ``runs`` made."""
    run_ref = checkpoints.c.run_ref
    return sa.and_(run_ref.is_not(None), run_ref.in_(sa.select(member_of(listed("runs").c.value, "id"))))


#: The threads in which runs made checkpoints, by whether a scope is named.
THREADS_OF_RUNS = {
    False: _threads_of_runs(),
    True: _threads_of_runs(sa.exists().where(_t.id == _c.thread_id, _t.scope == bind("scope", _t.scope))),
}


# Values.


def _names(name: str) -> sa.ColumnElement[str]:
    return member_of(listed("wanted").c.value, name)


_named = [_v[name] for name in NamedRow.__annotations__]


def _wanted(*members: str) -> Any:
    """Return the rows of the parameter ``wanted``, with these members as texts.

    Where rows of a table are looked up for them, each names the thread: a condition of its own on the thread would have
    SQLite walk all rows of the thread, and look for each among the wanted ones.
    """
    each = listed("wanted")
    return sa.select(*(member_of(each.c.value, name).label(name) for name in members)).subquery("w")


_found = VALUES.alias("found")  # by an alias, because a column of a table in a named schema says the schema, too
_f = _found.c
_by_version = _wanted("thread", "namespace", "channel", "version")
#: The values of versions, without their bytes.
NAMED = prepared(
    sa.select(*(_f[name] for name in NamedRow.__annotations__)).select_from(
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
    NamedRow,
)
_IS_STORED = _f.encoding != constant("same")

_by_channel = _wanted("thread", "namespace", "channel")
_others = VALUES.alias("others")
_greatest = (
    sa.select(_others.c.number)
    .where(
        _others.c.thread_id == _by_channel.c.thread,
        _others.c.namespace == _by_channel.c.namespace,
        _others.c.channel == _by_channel.c.channel,
        _others.c.encoding != constant("same"),
    )
    .order_by(_others.c.number.desc())
    .limit(number(1))
    .scalar_subquery()
)
#: The last values of channels.
LASTS = prepared(
    sa.select(_f.channel, _f.number, _f.anchor, _f.format, _f.digest).select_from(
        LookedUp(
            _by_channel,
            _found,
            sa.and_(
                _f.thread_id == _by_channel.c.thread,
                _f.namespace == _by_channel.c.namespace,
                _f.channel == _by_channel.c.channel,
                _f.number == _greatest,
                _IS_STORED,
            ),
        )
    ),
    LastRow,
)

_by_number = _wanted("thread", "namespace", "channel", "number")
#: Stored values of these numbers, in no order: to sort them would copy their bytes.
STORED = prepared(
    sa.select(*(_f[name] for name in StoredRow.__annotations__)).select_from(
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
    StoredRow,
)
ADD_VALUE = prepared(sa.insert(VALUES).values({column.name: bind(column.name, column) for column in VALUES.columns}))


# Writes.


def _putting(*, replace: bool) -> Statement:
    row = insert(WRITES).values({column.name: bind(column.name, column) for column in WRITES.columns})
    if not replace:
        return prepared(row.on_conflict_do_nothing())
    changed = {name: row.excluded[name] for name in ("path", "channel", "format", "body")}
    return prepared(row.on_conflict_do_update(index_elements=list(WRITES.primary_key), set_=changed))


#: By what happens to one whose place is taken.
PUT_WRITE = {"keep": _putting(replace=False), "replace": _putting(replace=True)}
_found_writes = WRITES.alias("found_writes")
_by_checkpoint = _wanted("thread", "namespace", "id")
WRITES_OF = prepared(
    sa.select(*(_found_writes.c[name] for name in WriteRow.__annotations__))
    .select_from(
        LookedUp(
            _by_checkpoint,
            _found_writes,
            sa.and_(
                _found_writes.c.thread_id == _by_checkpoint.c.thread,
                _found_writes.c.namespace == _by_checkpoint.c.namespace,
                _found_writes.c.checkpoint_id == _by_checkpoint.c.id,
            ),
        )
    )
    .order_by(_found_writes.c.path, _found_writes.c.task, _found_writes.c.idx),
    WriteRow,
)
_by_ancestor = _wanted("thread", "namespace", "id", "channel")
#: What tasks wrote to one channel after a checkpoint, for any number of both.
WRITES_TO = prepared(
    sa.select(*(_found_writes.c[name] for name in WriteRow.__annotations__))
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
    .order_by(_found_writes.c.path, _found_writes.c.task, _found_writes.c.idx),
    WriteRow,
)


# Removal of whole threads.

#: The tables of a thread's rows, those that refer to others first.
TABLES = (WRITES, VALUES, CHECKPOINTS)
#: By the table, the thread itself last.
REMOVE_ALL = {str(table.name): prepared(sa.delete(table).where(of_thread(table))) for table in TABLES}
REMOVE_ALL[str(THREADS.name)] = prepared(sa.delete(THREADS).where(_t.id == bind("thread_id", _t.id)))
