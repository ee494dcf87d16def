"""The statements of the host's own file."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import (
    Statement,
    among,
    bind,
    columns_of,
    constant,
    every_column_of,
    number,
    statement_of,
)
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.projections import Attempt, Head
from lastlight_state.files.mailbox.records import (
    Delivery,
    Destination,
    MessageIn,
    MessageInSummary,
    Task,
    TaskSummary,
)
from lastlight_state.files.mailbox.shared.messages import HEAD, STEP

_in, _done, _try = models.MESSAGES_IN.c, models.DELIVERED.c, models.ATTEMPTS.c
_heads = [_in[name] for name in HEAD]
_whole = every_column_of(MessageIn, models.MESSAGES_IN)
_receipt = every_column_of(Delivery, models.DELIVERED)
_this = _in.id == bind("id", _in.id)
_live, _ended = among(_in.status, models.LIVE), among(_in.status, models.ENDED)

_unsettled = sa.or_(_in.status.is_(None), _in.status.not_in([constant(word) for word in models.ENDED]))

#: Inserts nothing if the id is taken, or if the series has a live message.
INSERT = statement_of(
    insert(models.MESSAGES_IN)
    .values(**{column.name: bind(column.name, column) for column in _in})
    .on_conflict_do_nothing()
    .returning(*_whole),
    MessageIn,
)
_get = sa.select(*_whole).where(_this)
#: GET_ROW gives the texts as they are stored, of which a work makes the next row.
GET, GET_ROW = statement_of(_get, MessageIn), statement_of(_get)
HEAD_OF = statement_of(sa.select(*_heads).where(_this), Head)
LIST = Listing(
    "messages_in",
    [*columns_of(MessageInSummary, models.MESSAGES_IN), models.IN_PLACE.label(models.PLACE)],
    order=(models.IN_PLACE, _in.id),
    filters={"status": _in.status == bind("status", _in.status), "kind": _in.kind == bind("kind", _in.kind)},
    row=MessageInSummary,
)


#: Recurring messages that other programs settled, in batches.
RECURRING_SETTLED = statement_of(
    sa.select(*_heads)
    .where(
        _in.recurrence.is_not(None),
        _in.series_id > bind("after", _in.series_id),
        _ended,
    )
    .order_by(_in.series_id, _in.seq.desc())
    .limit(number(STEP)),
    Head,
)

#: Settles a message if it is unchanged since it was read, even one with an unknown status. Does not return the content,
#: which may be damaged.
SETTLE = statement_of(
    sa.update(models.MESSAGES_IN)
    .where(_this, _unsettled, _in.tries.is_not_distinct_from(bind("tries", _in.tries)))
    .values(**{name: bind(name, _in[name]) for name in ("status", "settled_at", "outcome", "error")})
    .returning(*_heads),
    Head,
)
RETRY = statement_of(
    sa.update(models.MESSAGES_IN)
    .where(_this, _in.status == constant("failed"))
    .values(
        status=constant("pending"),
        process_after=sa.null(),
        tries=sa.func.coalesce(_in.tries, number(0)) + number(1),
        tries_base=sa.func.coalesce(_in.tries, number(0)) + number(1),
        released_at=bind("released_at", _in.released_at),
        settled_at=sa.null(),
        outcome=sa.null(),
        error=sa.null(),
    )
    .returning(*_whole),
    MessageIn,
)
#: Frees a claimed message for another try, unless somebody has freed it meanwhile.
RELEASE = statement_of(
    sa.update(models.MESSAGES_IN)
    .where(
        _this,
        _in.status == constant("pending"),
        _in.seq.is_not_distinct_from(bind("seq", _in.seq)),
        _in.tries.is_not_distinct_from(bind("seen", _in.tries)),
    )
    .values(**{name: bind(name, _in[name]) for name in ("tries", "process_after", "released_at", "error")})
)
STOP_RECURRING = statement_of(
    sa.update(models.MESSAGES_IN)
    .where(
        _in.series_id == bind("series_id", _in.series_id),
        _in.recurrence.is_not(None),
        _ended,
    )
    .values(recurrence=sa.null())
)
_of_series = sa.select(*_whole).where(_in.series_id == bind("series_id", _in.series_id))
_of_series = _of_series.order_by(_in.seq.desc()).limit(number(1))
#: These give the texts as they are stored, as `GET_ROW`.
LIVE_OF_SERIES, LAST_OF_SERIES = statement_of(_of_series.where(_live)), statement_of(_of_series)
#: Ids and tries of context that is not kept.
EXPIRED: Statement[tuple[str, int | None]] = statement_of(
    sa.select(_in.id, _in.tries)
    .where(_in.status == constant("pending"), _in.trigger == number(0))
    .order_by(_in.seq.desc())
    .offset(bind("kept", _in.seq))
    .limit(number(models.MOST_SENT)),
    tuple,
)
#: Session and number of the newest message from a peer that names the session which sent it.
RETURN_PATH = statement_of(
    sa.select(_in.source_session_id)
    .where(
        _in.platform_id == bind("peer", _in.platform_id),
        _in.channel_type == constant("agent"),
        _in.source_session_id.is_not(None),
    )
    .order_by(_in.seq.desc())
    .limit(number(1))
)
ATTEMPT = statement_of(sa.select(*_try).where(_try.message_out_id == bind("id", _try.message_out_id)), Attempt)
_put = insert(models.ATTEMPTS).values(**{column.name: bind(column.name, column) for column in _try})
PUT_ATTEMPT = statement_of(
    _put.on_conflict_do_update(
        index_elements=[_try.message_out_id],
        set_={column.name: _put.excluded[column.name] for column in _try if not column.primary_key},
    )
)
DROP_ATTEMPT = statement_of(sa.delete(models.ATTEMPTS).where(_try.message_out_id == bind("id", _try.message_out_id)))
DELIVERED = statement_of(sa.select(*_receipt).where(_done.message_out_id == bind("id", _done.message_out_id)), Delivery)
#: The first outcome stays.
PUT_DELIVERED = statement_of(
    insert(models.DELIVERED)
    .values(**{column.name: bind(column.name, column) for column in _done})
    .on_conflict_do_nothing(index_elements=[_done.message_out_id])
    .returning(*_receipt),
    Delivery,
)
DROP_FAILED = statement_of(
    sa.delete(models.DELIVERED)
    .where(_done.message_out_id == bind("id", _done.message_out_id), _done.status != constant("delivered"))
    .returning(*_receipt),
    Delivery,
)
LIST_FAILED = Listing(
    "delivered",
    _receipt,
    order=(_done.delivered_at, _done.message_out_id),
    always=(_done.status == constant("failed"),),
    row=Delivery,
)
_to, _default = models.DESTINATIONS.c, models.SESSION_ROUTING.c
CLEAR_DESTINATIONS = statement_of(sa.delete(models.DESTINATIONS))
INSERT_DESTINATION = statement_of(
    insert(models.DESTINATIONS).values(**{column.name: bind(column.name, column) for column in _to})
)
ALL_DESTINATIONS = statement_of(
    sa.select(*every_column_of(Destination, models.DESTINATIONS)).order_by(_to.name), Destination
)
_ROUTE = ("channel_type", "platform_id", "thread_id")
_put_default = insert(models.SESSION_ROUTING).values(
    id=number(1), **{name: bind(name, _default[name]) for name in _ROUTE}
)
PUT_DEFAULT = statement_of(
    _put_default.on_conflict_do_update(
        index_elements=[_default.id], set_={name: _put_default.excluded[name] for name in _ROUTE}
    )
)
GET_DEFAULT: Statement[tuple[str | None, str | None, str | None]] = statement_of(
    sa.select(_default.channel_type, _default.platform_id, _default.thread_id), tuple
)
IS_DESTINATION = statement_of(
    sa.select(_to.name)
    .where(
        sa.or_(
            sa.and_(
                _to.channel_type == bind("channel_type", _to.channel_type),
                _to.platform_id == bind("platform_id", _to.platform_id),
            ),
            sa.and_(
                bind("channel_type", _to.channel_type) == constant("agent"),
                _to.agent_group_id == bind("platform_id", _to.platform_id),
            ),
        )
    )
    .limit(number(1))
)

_CHANGED = ("status", "content", "process_after", "recurrence", "timezone", "outcome", "settled_at")
CHANGE_TASK = statement_of(
    sa.update(models.MESSAGES_IN)
    .where(_this)
    .values(**{name: bind(name, _in[name]) for name in _CHANGED})
    .returning(*_whole),
    Task,
)
LIST_TASKS = Listing(
    "tasks",
    [*columns_of(TaskSummary, models.MESSAGES_IN), models.TASK_PLACE.label(models.PLACE)],
    order=(models.TASK_PLACE, _in.id),
    descending=False,
    filters={"status": _in.status == bind("status", _in.status)},
    always=(models.LIVE_TASK,),
    row=TaskSummary,
)
