"""The statements of the agent's own file."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import bind, constant, prepared
from lastlight_state.mailbox import models, words
from lastlight_state.mailbox.rows import MessagesOutRow, SessionStateRow
from lastlight_state.mailbox.shown import OutSummaryRow

_ack, _out, _state = models.ACKS.c, models.MESSAGES_OUT.c, models.SESSION_STATE.c

_ACK_NAMES = ("status", "status_changed", "message_seq", "message_tries", "claimed_by", "error")
_put = insert(models.ACKS).values(**{column.name: bind(column.name, column) for column in _ack})
PUT_ACK = prepared(
    _put.on_conflict_do_update(
        index_elements=[_ack.message_id], set_={name: _put.excluded[name] for name in _ACK_NAMES}
    )
)
RELEASE = prepared(
    sa.delete(models.ACKS).where(
        _ack.message_id == bind("message_id", _ack.message_id),
        _ack.status == constant("processing"),
        _ack.claimed_by.is_not_distinct_from(bind("claimed_by", _ack.claimed_by)),
    )
)

#: Inserts nothing if the id is taken.
INSERT = prepared(
    insert(models.MESSAGES_OUT)
    .values(**{column.name: bind(column.name, column) for column in _out})
    .on_conflict_do_nothing(index_elements=[_out.id])
    .returning(*_out),
    MessagesOutRow,
)
LIST = Listing(
    "messages_out",
    [*(column for column in _out if column.name != "content"), models.OUT_PLACE.label(words.PLACE)],
    order=(models.OUT_PLACE, _out.id),
    row=OutSummaryRow,
)

_put_state = insert(models.SESSION_STATE).values(**{column.name: bind(column.name, column) for column in _state})
PUT_STATE = prepared(
    _put_state.on_conflict_do_update(
        index_elements=[_state.key],
        set_={"value": _put_state.excluded.value, "updated_at": _put_state.excluded.updated_at},
    )
)
GET_STATE = prepared(sa.select(*_state).where(_state.key == bind("key", _state.key)), SessionStateRow)
LIST_STATE = prepared(sa.select(*_state).order_by(_state.key), SessionStateRow)
DELETE_STATE = prepared(sa.delete(models.SESSION_STATE).where(_state.key == bind("key", _state.key)))
