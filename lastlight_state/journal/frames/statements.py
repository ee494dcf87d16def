"""The statements of frames."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import bind, number, prepared
from lastlight_state.journal.kernel.streams import Stream
from lastlight_state.journal.rows import RunFrameRow
from lastlight_state.journal.shown import FrameDetailRow, FrameSummaryRow
from lastlight_state.journal.tables import FRAMES

_c = FRAMES.c
_RUN = _c.run_id == bind("run_id", _c.run_id)
_NUMBER = bind("frame_no", _c.frame_no)

SUMMARY = (_c.run_id, _c.frame_no, _c.created_at, _c.encoding, _c.content_hash, _c.full_bytes, _c.note)
DETAIL = (*SUMMARY, _c.mounted_task_ids, _c.task_index)
BODY = (*DETAIL, _c.body)

STREAM = Stream("frames", FRAMES, "frame_no")
INSERT = prepared(
    sa.insert(FRAMES).values({column.name: bind(column.name, column) for column in FRAMES.columns}).returning(*SUMMARY),
    FrameSummaryRow,
)

GET = prepared(sa.select(*DETAIL).where(_RUN, _c.frame_no == _NUMBER), FrameDetailRow)
LATEST = prepared(sa.select(*DETAIL).where(_RUN).order_by(_c.frame_no.desc()).limit(number(1)), FrameDetailRow)

_anchors = FRAMES.alias("anchors")
_anchor = (
    sa.select(_anchors.c.frame_no)
    .where(_anchors.c.run_id == bind("run_id", _c.run_id), _anchors.c.frame_no <= _NUMBER)
    .where(_anchors.c.encoding != sa.literal_column("'delta'"))
    .order_by(_anchors.c.frame_no.desc())
    .limit(number(1))
    .scalar_subquery()
)
#: A frame and what it is rebuilt from: the rows from the nearest whole frame at or before it on.
CHAIN = prepared(
    sa.select(*BODY)
    .where(_RUN, _c.frame_no <= _NUMBER, _c.frame_no >= sa.func.coalesce(_anchor, _NUMBER))
    .order_by(_c.frame_no),
    RunFrameRow,
)
WINDOW = prepared(
    sa.select(*BODY)
    .where(_RUN, _c.frame_no > bind("after", _c.frame_no), _c.frame_no <= bind("upto", _c.frame_no))
    .order_by(_c.frame_no)
    .limit(number(50)),
    RunFrameRow,
)

LIST = Listing(
    "run_frames",
    SUMMARY,
    order=(_c.frame_no,),
    filters={"run_id": _RUN, "after_frame_no": _c.frame_no > bind("after_frame_no", _c.frame_no)},
    row=FrameSummaryRow,
)
