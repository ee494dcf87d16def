"""Frames: trees that a run rendered, step by step, stored whole or as the change since the frame before.

Every fiftieth frame is stored whole, which bounds the rows that are read to rebuild a frame. A stored frame never
changes: going back in a run appends the earlier tree again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict
from weakref import WeakKeyDictionary

from lastlight_state import codec as json_codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.repository import Context
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Values
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, FrameChainBroken
from lastlight_state.journal import models
from lastlight_state.journal.frames import codec, statements, statements as sql
from lastlight_state.journal.frames.codec import render
from lastlight_state.journal.models import FRAMES
from lastlight_state.journal.records import Frame, FrameBody, FrameCheck, FrameDelta, FrameSummary, StoredFrame
from lastlight_state.journal.shared import Numbered
from lastlight_state.locks import Lock

# A cache of the texts of rebuilt frames.
#
# Its key holds the digest of the content, so that neither a rollback nor pruning nor another process can make an entry
# wrong.

#: The most texts in a store's cache, and the most bytes of all of them.
MOST_ENTRIES = 512
MOST_BYTES = 64 * 1024 * 1024

Key = tuple[str, int, str]


class FrameCache:
    """An LRU cache of frame texts by run, frame number and digest."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._texts: OrderedDict[Key, str] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._texts)

    def get(self, key: Key) -> str | None:
        """Return the cached text, or None."""
        with self._lock:
            found = self._texts.get(key)
            if found is not None:
                self._texts.move_to_end(key)
            return found

    def put(self, key: Key, text: str) -> None:
        """Store a frame's text in the cache. Drops the least recently used texts while the cache is over its limits."""
        with self._lock:
            if key in self._texts:
                return
            self._texts[key] = text
            self._bytes += len(text)
            while len(self._texts) > MOST_ENTRIES or (self._bytes > MOST_BYTES and len(self._texts) > 1):
                _, gone = self._texts.popitem(last=False)
                self._bytes -= len(gone)


_caches: WeakKeyDictionary[Any, FrameCache] = WeakKeyDictionary()
_making_lock = Lock()


def cache_of(owner: Any) -> FrameCache:
    """Return the frame cache that a store and its transactions share.

    ``owner`` is an object that all of them refer to.
    """
    with _making_lock:
        return _caches.setdefault(owner, FrameCache())


_LIMITS = limits_of(FRAMES)

_log = logging.getLogger("lastlight_state.journal")

#: A frame is stored whole if its number is a multiple of this.
KEYFRAME_INTERVAL = 50
_GREATEST = 2**31 - 1
#: Columns that must be equal in two frames of one number for these to be the same.
_CONTENT = ("content_hash", "note", "mounted_task_ids", "task_index")


class FrameDraft(TypedDict):
    """What the row of a new frame has before it is known how it is stored."""

    run_id: str
    created_at: datetime
    content_hash: str
    full_bytes: int
    note: str | None
    mounted_task_ids: str
    task_index: str | None


class NumberedFrame(FrameDraft):
    """A new frame with its frame number."""

    frame_no: int


class Frames(Numbered):
    """``store.journal.frames``: store, read and compare the frames of runs."""

    _stream = sql.STREAM

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._cache = cache_of(context.listeners)

    def append(
        self,
        run_id: str,
        tree: Any,
        *,
        frame_no: int | None = None,
        mounted_task_ids: Sequence[str] = (),
        task_index: Mapping[str, Any] | None = None,
        note: str | None = None,
        at: datetime | None = None,
    ) -> FrameSummary:
        """Store a frame under the next number, or under ``frame_no``; return its summary.

        Storing an equal frame under the same number again returns the stored one. Another frame under that number
        raises `AlreadyExists`. With ``frame_no`` numbers may have gaps. Raises `NotFound` for an unknown run,
        `InvalidValue` for an invalid tree, `PayloadTooLarge` for a tree of more than 4 MiB.
        """
        text = codec.canonical(tree)
        row: FrameDraft = {
            "run_id": valid.identifier("run_id", run_id, _LIMITS.run_id),
            "created_at": self._now() if at is None else aware_utc("at", at),
            "content_hash": codec.digest(text),
            "full_bytes": len(text.encode()),
            "note": valid.optional_content("note", note, _LIMITS.note),
            "mounted_task_ids": _encode_json("mounted_task_ids", _ids(mounted_task_ids), _LIMITS.mounted_task_ids),
            "task_index": None
            if task_index is None
            else _encode_json("task_index", dict(task_index), _LIMITS.task_index),
        }
        given = None if frame_no is None else valid.number("frame_no", frame_no, most=_GREATEST)
        return self._append(
            run_id,
            self._writing,
            lambda unit: self._store(unit, row, text, given),
            repeatable=given is not None,
        )

    def get(self, run_id: str, frame_no: int) -> Frame:
        """Return the frame with its tree. Raises `NotFound`, or `FrameChainBroken` if it cannot be rebuilt exactly."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "frame_no": valid.number("frame_no", frame_no)}
        row = self._reading(lambda unit: unit.row(sql.GET, values))
        if row is None:
            raise valid.not_found(models.FRAME_KIND, (run_id, frame_no))
        return self._frame(row)

    def find_latest(self, run_id: str) -> Frame | None:
        """Return the frame with the run's greatest number, or None for a run without frames."""
        row = self._reading(lambda unit: unit.row(sql.LATEST, {"run_id": valid.lookup_text("run_id", run_id)}))
        return None if row is None else self._frame(row)

    def list(
        self, run_id: str, *, after_frame_no: int | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[FrameSummary]:
        """Return a page of summaries of a run's frames, newest first. Their contents are not read."""
        after = None if after_frame_no is None else valid.number("after_frame_no", after_frame_no, least=-1)
        given = {"run_id": valid.lookup_text("run_id", run_id), "after_frame_no": after}
        return self._page(sql.LIST, given, limit, page_token)

    def replay(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> Iterator[Frame]:
        """Yield the run's frames with numbers after ``after`` and up to ``upto``, in order. Errors as in `get`.

        Each row is read once, and each change is applied once.
        """
        first = -1 if after is None else valid.number("after", after, least=-1)
        last = _GREATEST if upto is None else valid.number("upto", upto)
        chain = statements.Chain(run_id)
        for row in self._rows(run_id, first, last):
            if row.frame_no <= first:
                chain.next(row)
            else:
                yield _build_frame(row, chain.next(row))

    def diff(self, run_id: str, from_no: int, to_no: int) -> FrameDelta:
        """Return the changes from one frame of a run to another. Errors as in `get`."""
        return codec.diff(self.get(run_id, from_no).tree, self.get(run_id, to_no).tree)

    def verify(self, run_id: str) -> FrameCheck:
        """Rebuild every frame of a run to check it; return counts of frames, and the broken frames with reasons."""
        chain, frames, anchors, broken = statements.Chain(run_id), 0, 0, []
        for row in self._rows(run_id, -1, _GREATEST):
            frames += 1
            anchors += row.encoding != statements.DELTA
            try:
                chain.next(row)
            except FrameChainBroken as error:
                broken.append((row.frame_no, error.reason))
        return FrameCheck(frames=frames, anchors=anchors, broken=tuple(broken))

    def _store(self, unit: Unit, row: FrameDraft, text: str, given: int | None) -> FrameSummary:
        following = self._stream.lock_counter(unit, row["run_id"])
        frame_no = following if given is None else given
        numbered: NumberedFrame = {**row, "frame_no": frame_no}
        stored = unit.row(sql.GET, numbered)
        if stored is not None and given is not None:
            return _summary_if_same(stored, numbered)
        encoding, body = self._encode_body(unit, numbered, text)
        [made] = unit.rows(sql.INSERT, {**numbered, "encoding": encoding, "body": body})
        self._cache.put((row["run_id"], frame_no, row["content_hash"]), text)  # also right if the unit is undone
        if frame_no >= following:
            unit.value(self._stream.raise_to, {"run_id": row["run_id"], "next_seq": frame_no + 1})
        return made

    def _encode_body(self, unit: Unit, row: NumberedFrame, text: str) -> tuple[str, str]:
        """Return how to store a new frame, and its body: the whole tree, or the change since the frame before it."""
        frame_no = row["frame_no"]
        if frame_no == 0:
            return "full", text
        if frame_no % KEYFRAME_INTERVAL == 0:
            return "keyframe", text
        previous = self._previous(unit, row["run_id"], frame_no - 1)
        if previous is None:
            return "full", text
        delta = codec.encode_delta(codec.diff_of_texts(previous, text))
        return ("delta", delta) if len(delta.encode()) < row["full_bytes"] else ("full", text)

    def _previous(self, unit: Unit, run_id: str, frame_no: int) -> str | None:
        values = {"run_id": run_id, "frame_no": frame_no}
        row = unit.row(sql.GET, values)
        if row is None:
            return None
        try:
            return self._text(row, unit)
        except FrameChainBroken as error:
            _log.warning("a frame begins a new chain, because the one before cannot be rebuilt: %s", error)
            return None

    def _frame(self, row: StoredFrame) -> Frame:
        return _build_frame(row, self._text(row))

    def _text(self, row: StoredFrame, unit: Unit | None = None) -> str:
        """Return the text of a frame, kept or rebuilt."""
        key = (row.run_id, row.frame_no, row.content_hash)
        text = self._cache.get(key)
        if text is None:
            values = {"run_id": row.run_id, "frame_no": row.frame_no}
            rows = unit.rows(sql.CHAIN, values) if unit else self._reading(lambda one: one.rows(sql.CHAIN, values))
            text = statements.text_of(row.run_id, rows)
            self._cache.put(key, text)
        return text

    def _rows(self, run_id: str, after: int, upto: int) -> Iterator[FrameBody]:
        """Return rows with their bodies, window by window, and before them those that the first is rebuilt from."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "frame_no": after}
        if after >= 0:
            yield from self._reading(lambda unit: unit.rows(sql.CHAIN, values))
        while True:
            window = {"run_id": run_id, "after": after, "upto": upto}
            rows = self._reading(lambda unit, window=window: unit.rows(sql.WINDOW, window))  # type: ignore[misc]
            if not rows:
                return
            yield from rows
            after = rows[-1].frame_no


def _summary_if_same(stored: StoredFrame, given: NumberedFrame) -> FrameSummary:
    there: Values = given
    told = {name: there[name] for name in _CONTENT}
    for name in ("mounted_task_ids", "task_index"):
        told[name] = None if told[name] is None else json_codec.decode(told[name])
    if any(json_codec.canonical(getattr(stored, name)) != json_codec.canonical(told[name]) for name in _CONTENT):
        key = (given["run_id"], given["frame_no"])
        raise AlreadyExists(models.FRAME_KIND, key, problem="already exists with other content")
    return FrameSummary.of(_summary_fields(stored))


def _build_frame(row: StoredFrame, text: str) -> Frame:
    tree = json_codec.decode(text)
    return Frame.of(
        {
            **_summary_fields(row),
            "mounted_task_ids": tuple(row.mounted_task_ids or ()),
            "task_index": row.task_index,
            "tree": tree,
            "xml": render(tree),
        }
    )


def _summary_fields(stored: StoredFrame) -> dict[str, Any]:
    return {name: getattr(stored, name) for name in FrameSummary.model_fields}


def _ids(given: Any) -> list[str]:
    return [valid.identifier("mounted_task_ids", one) for one in valid.several("mounted_task_ids", given)]


def _encode_json(where: str, value: Any, most: int) -> str:
    return json_codec.encode(where, value, max_bytes=most)
