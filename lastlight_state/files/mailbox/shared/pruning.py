"""Deletion of old messages from the own file, with their folders. With ``dry_run``, the same steps only report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from lastlight_state.db.units.unit import Unit
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.folder import attachments
from lastlight_state.files.mailbox.models import instant
from lastlight_state.files.mailbox.projections import Head
from lastlight_state.files.mailbox.records import MessageOut
from lastlight_state.files.mailbox.shared import queries
from lastlight_state.files.mailbox.shared.pair import MailboxPart, Pair
from lastlight_state.files.mailbox.shared.queries import BothFiles, Columns, TolerantSelect, labelled_columns

# The next number of a message: above all numbers in both files, and above all that this side ever gave.
#
# Call it with the write lock on the own file, so that a side's numbers grow with its commits. The two sides cannot give
# the same number, because one gives even numbers and the other odd ones.

#: The key under which a side stores the highest number that it gave.
HIGHEST = "highest_seq"


def _highest(columns: Columns) -> sa.Select[Any]:
    """Return the SELECT of the highest number, ignoring texts, fractions and numbers beyond the limit."""
    seq = columns["seq"]
    whole = sa.func.typeof(seq) == sa.literal_column("'integer'")
    within = seq <= sa.literal_column(str(models.GREATEST))
    return (
        sa.select(*labelled_columns(columns, "seq"))
        .where(within, whole)
        .order_by(seq.desc())
        .limit(sa.literal_column("1"))
    )


_OF: dict[str, TolerantSelect[tuple[int]]] = {
    "host": TolerantSelect(models.MESSAGES_IN, _highest, row=tuple),
    "agent": TolerantSelect(models.MESSAGES_OUT, _highest, row=tuple),
}


def next_number(unit: Unit, pair: Pair) -> int:
    """Return the next message number of this side, and record it as used. ``unit`` writes the own file."""
    other = _OF["agent" if pair.side == "host" else "host"]
    theirs = pair.other.look_if_sound(lambda look: look.row(other), None)
    ours = next(iter(_OF[pair.side].rows(unit, {})), None)
    seen = [row[0] for row in (theirs, ours) if row is not None]
    found = models.next_number(pair.side, max(0, queries.number(unit, pair.declared, HIGHEST), *seen))
    queries.put(unit, pair.declared, HIGHEST, str(found))
    return found


def next_numbers(unit: Unit, pair: Pair, count: int) -> list[int]:
    """Return the next ``count`` numbers of this side, in order."""
    first = next_number(unit, pair)
    last = first + 2 * (count - 1)
    if last != first:
        models.next_number(pair.side, last - 1)
        queries.put(unit, pair.declared, HIGHEST, str(last))
    return list(range(first, last + 1, 2))


def keep(unit: Unit, pair: Pair) -> None:
    """Record the highest number in the own file, so that it is not used again after its message is deleted."""
    found = next(iter(_OF[pair.side].rows(unit, {})), None)
    if found is not None and found[0] > queries.number(unit, pair.declared, HIGHEST):
        queries.put(unit, pair.declared, HIGHEST, str(found[0]))


Row: TypeAlias = Mapping[str, Any]


class Step(NamedTuple):
    """The rows of one batch, and those among them that are old enough to be deleted."""

    seen: Sequence[Row]
    old: Sequence[Row]


class Rule(NamedTuple):
    """A rule for deletion: ``step`` reads a batch of rows after a key, and ``remove`` deletes the batch's old rows."""

    key: str
    step: Callable[[Unit, BothFiles, str], Step]
    remove: Callable[[Unit, Sequence[Row]], object]


class Pruner(MailboxPart):
    """Walks through rows by their key. Each batch is a separate transaction."""

    def walk(self, rule: Rule, *, dry_run: bool) -> list[Row]:
        """Delete the rows that a rule selects.

        Returns the deleted rows, or with ``dry_run`` the rows that would be deleted.
        """
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
            keep(unit, self._pair)
            rule.remove(unit, found.old)
        return found


def content_size(columns: Any) -> sa.ColumnElement[int]:
    """Return the size of a message's content in bytes."""
    return sa.func.length(sa.cast(columns.content, sa.LargeBinary)).label("size")


def with_sizes(pair: Pair, box: str, rows: Sequence[Row]) -> list[Row]:
    """Return the messages, each with the total ``size`` of its content and files."""
    place = pair.place.path
    return [
        {**row, "size": (row["size"] or 0) + attachments.size(attachments.folder(place, box, row["id"]))}
        for row in rows
    ]


def clear_later(
    unit: Unit,
    pair: Pair,
    box: str,
    heads: TolerantSelect[Head] | TolerantSelect[MessageOut],
    ids: Sequence[str],
) -> None:
    """Delete the folders of messages after the commit. A folder stays if another message has taken its id by then."""

    def clear(later: Unit) -> None:
        taken = {head.id for head in heads.rows_by_key(later, ids)}
        for message_id in ids:
            if message_id not in taken:
                attachments.clear(attachments.folder(pair.place.path, box, message_id), staged=False)

    unit.after_commit(lambda: pair.own.write(clear))


def is_before(text: str | None, before: datetime) -> bool:
    """True if a stored time is earlier than another. False for text that is not a time."""
    moment = instant(text)
    return moment is not None and moment < before
