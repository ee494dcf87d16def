"""The statements of orders."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.conversations import words
from lastlight_state.conversations.kernel.orders import OrderMessage
from lastlight_state.conversations.rows import ProgressionRow
from lastlight_state.conversations.shown import LinkRow, PlaceRow
from lastlight_state.conversations.tables import LINKS, PROGRESSIONS
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import bind, number, prepared

_p, _l = PROGRESSIONS.c, LINKS.c
_THIS = _p.id == bind("progression_id", _p.id)
_ITS = _l.progression_id == bind("progression_id", _l.progression_id)

GET = prepared(sa.select(*PROGRESSIONS.columns).where(_THIS), ProgressionRow)
#: All ids in their order; one more than a caller may have.
COLLECTION = prepared(sa.select(_l.message_id).where(_ITS).order_by(_l.ord).limit(number(words.MANY + 1)), OrderMessage)

LINKED = Listing(
    "progressions.ids",
    (_l.ord, _l.message_id),
    row=LinkRow,
    order=(_l.ord,),
    filters={"progression_id": _ITS, "after_ord": _l.ord > bind("after_ord", _l.ord)},
    descending=False,
)
CONTAINING = Listing(
    "progressions.containing",
    (_l.progression_id, _l.ord),
    row=PlaceRow,
    order=(_l.progression_id, _l.ord),
    filters={"message_id": _l.message_id == bind("message_id", _l.message_id)},
    descending=False,
)
TAIL = prepared(
    sa.select(_l.ord, _l.message_id).where(_ITS, _l.ord >= bind("from_ord", _l.ord)).order_by(_l.ord), LinkRow
)
REPLACE = prepared(
    sa.update(PROGRESSIONS)
    .where(_THIS)
    .values(next_ord=bind("next_ord", _p.next_ord), version=_p.version + number(1))
    .returning(*PROGRESSIONS.columns),
    ProgressionRow,
)
