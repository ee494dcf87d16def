"""Removing old messages from the own file, with their folders. The same steps tell with ``dry_run`` what would go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from lastlight_state.db.unit import Unit
from lastlight_state.mailbox.folder import attachments
from lastlight_state.mailbox.kernel import numbers
from lastlight_state.mailbox.kernel.pair import Pair, Room
from lastlight_state.mailbox.kernel.readings import Both, Reading
from lastlight_state.mailbox.rows import MessagesOutRow
from lastlight_state.mailbox.shown import HeadRow
from lastlight_state.mailbox.times import instant

Row: TypeAlias = Mapping[str, Any]


class Step(NamedTuple):
    """Rows that were looked at, and those of them that may go."""

    seen: Sequence[Row]
    old: Sequence[Row]


class Rule(NamedTuple):
    """What goes: ``step`` looks at the rows after a key, and ``remove`` removes old ones."""

    key: str
    step: Callable[[Unit, Both, str], Step]
    remove: Callable[[Unit, Sequence[Row]], object]


class Pruner(Room):
    """Walks rows by their key, each step in a transaction of its own."""

    def walk(self, rule: Rule, *, dry_run: bool) -> list[Row]:
        """Remove what may go; the rows that went, or would go."""
        run = self._viewing if dry_run else self._writing
        gone: list[Row] = []
        after = ""
        while True:
            found = run(partial(self._step, rule, dry_run, after))
            if not found.seen:
                return gone
            gone += found.old
            after = found.seen[-1][rule.key]

    def _step(self, rule: Rule, dry_run: bool, after: str, unit: Unit) -> Step:
        found = self._beside(unit, lambda both: rule.step(unit, both, after))
        if found.old and not dry_run:
            numbers.keep(unit, self._pair)
            rule.remove(unit, found.old)
        return found


def content_size(columns: Any) -> sa.ColumnElement[int]:
    """The bytes of a message's content."""
    return sa.func.length(sa.cast(columns.content, sa.LargeBinary)).label("size")


def sized(pair: Pair, box: str, rows: Sequence[Row]) -> list[Row]:
    """The messages with the ``size`` of their content and files."""
    place = pair.place.path
    return [
        {**row, "size": (row["size"] or 0) + attachments.size(attachments.folder(place, box, row["id"]))}
        for row in rows
    ]


def clear_later(
    unit: Unit, pair: Pair, box: str, heads: Reading[HeadRow] | Reading[MessagesOutRow], ids: Sequence[str]
) -> None:
    """Remove the folders of messages after the commit, unless another message has taken the id by then."""

    def clear(later: Unit) -> None:
        taken = {row["id"] for row in heads.keyed(later, ids)}
        for message_id in ids:
            if message_id not in taken:
                attachments.clear(attachments.folder(pair.place.path, box, message_id), staged=False)

    unit.after_commit(lambda: pair.own.writing(clear))


def is_before(text: str | None, before: datetime) -> bool:
    """Whether a time is earlier. One that cannot be read is not."""
    moment = instant(text)
    return moment is not None and moment < before
