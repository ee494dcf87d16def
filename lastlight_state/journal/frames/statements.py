"""The SQL statements for frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import sqlalchemy as sa

from lastlight_state import codec as json_codec
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import bind, columns_of, every_column_of, number, statement_of
from lastlight_state.errors import FrameChainBroken, InvalidValue
from lastlight_state.journal.frames import codec
from lastlight_state.journal.models import FRAMES
from lastlight_state.journal.records import FrameBody, FrameSummary, StoredFrame
from lastlight_state.journal.shared import Stream

# Rebuilding frames from rows: a whole text, and the deltas after it. Rows that do not fit raise an error.

DELTA = "delta"


class Chain:
    """Rebuilds the frames of a run, row after row. Each delta is applied to the frame before it."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._number: int | None = None
        self._text: str | None = None

    def next(self, row: FrameBody) -> str:
        """Return the canonical text of the row's frame.

        Raises `FrameChainBroken` for a broken row. After that, frames can be read again from the next row that stores a
        whole tree.
        """
        before, previous = self._number, self._text
        self._number, self._text = row.frame_no, None
        text = self._delta(row, before, previous) if row.encoding == DELTA else self._whole(row)
        if codec.digest(text) != row.content_hash:
            raise self._broken_chain(row, "hash_mismatch" if row.encoding == DELTA else self._why_whole(row))
        self._text = text
        return text

    def _whole(self, row: FrameBody) -> str:
        return row.body

    def _why_whole(self, row: FrameBody) -> str:
        try:
            json_codec.decode(row.body)
        except ValueError:
            return "unreadable"
        return "hash_mismatch"

    def _delta(self, row: FrameBody, before: int | None, previous: str | None) -> str:
        if before is None:
            raise self._broken_chain(row, "no_anchor")
        if before != row.frame_no - 1:
            raise FrameChainBroken(self._run_id, before + 1, "missing_frame")
        if previous is None:
            raise self._broken_chain(row, "no_anchor")
        try:
            return codec.canonical(codec.apply(json_codec.decode(previous), codec.decode_delta(row.body)))
        except InvalidValue as error:
            raise self._broken_chain(row, "bad_delta") from error

    def _broken_chain(self, row: FrameBody, reason: str) -> FrameChainBroken:
        return FrameChainBroken(self._run_id, row.frame_no, reason)


def text_of(run_id: str, rows: Sequence[FrameBody]) -> str:
    """Return the text of the last row.

    Applies all deltas, and compares only the last frame's digest. If the digest differs, rebuilds frame after frame and
    checks each.
    """
    text = _at_once(rows)
    if text is None or codec.digest(text) != rows[-1].content_hash:
        *_, (_, text) = texts(run_id, rows)
    return text


def _at_once(rows: Sequence[FrameBody]) -> str | None:
    """Return what a whole text and the deltas after it make; None where they do not fit together."""
    whole, *deltas = rows
    if any(row.encoding != DELTA or row.frame_no != whole.frame_no + n for n, row in enumerate(deltas, 1)):
        return None
    if whole.encoding == DELTA or not deltas:
        return None if whole.encoding == DELTA else whole.body
    try:
        return codec.canonical(codec.replay_deltas(json_codec.decode(whole.body), [row.body for row in deltas]))
    except (InvalidValue, ValueError):
        return None


def texts(run_id: str, rows: Iterable[FrameBody]) -> Iterator[tuple[FrameBody, str]]:
    """Return each row with its text."""
    chain = Chain(run_id)
    for row in rows:
        yield row, chain.next(row)


_c = FRAMES.c
_RUN = _c.run_id == bind("run_id", _c.run_id)
_NUMBER = bind("frame_no", _c.frame_no)

SUMMARY, DETAIL = columns_of(FrameSummary, FRAMES), columns_of(StoredFrame, FRAMES)
BODY = every_column_of(FrameBody, FRAMES)

STREAM = Stream("frames", FRAMES, "frame_no")
INSERT = statement_of(
    sa.insert(FRAMES).values({column.name: bind(column.name, column) for column in FRAMES.columns}).returning(*SUMMARY),
    FrameSummary,
)

GET = statement_of(sa.select(*DETAIL).where(_RUN, _c.frame_no == _NUMBER), StoredFrame)
LATEST = statement_of(sa.select(*DETAIL).where(_RUN).order_by(_c.frame_no.desc()).limit(number(1)), StoredFrame)

_anchors = FRAMES.alias("anchors")
_anchor = (
    sa.select(_anchors.c.frame_no)
    .where(_anchors.c.run_id == bind("run_id", _c.run_id), _anchors.c.frame_no <= _NUMBER)
    .where(_anchors.c.encoding != sa.literal_column("'delta'"))
    .order_by(_anchors.c.frame_no.desc())
    .limit(number(1))
    .scalar_subquery()
)
#: The rows from which a frame is rebuilt: from the nearest whole frame at or before it, up to the frame itself.
CHAIN = statement_of(
    sa.select(*BODY)
    .where(_RUN, _c.frame_no <= _NUMBER, _c.frame_no >= sa.func.coalesce(_anchor, _NUMBER))
    .order_by(_c.frame_no),
    FrameBody,
)
WINDOW = statement_of(
    sa.select(*BODY)
    .where(_RUN, _c.frame_no > bind("after", _c.frame_no), _c.frame_no <= bind("upto", _c.frame_no))
    .order_by(_c.frame_no)
    .limit(number(50)),
    FrameBody,
)

LIST = Listing(
    "run_frames",
    SUMMARY,
    order=(_c.frame_no,),
    filters={"run_id": _RUN, "after_frame_no": _c.frame_no > bind("after_frame_no", _c.frame_no)},
    row=FrameSummary,
)
