"""Empties messages of conversations instead of deleting them, with a dry run and a receipt without contents."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lastlight_state.clock import exact_iso_text, iso_text
from lastlight_state.conversations.shared.references import ORDERS, POINTED, links
from lastlight_state.conversations.tables import MESSAGES
from lastlight_state.conversations.words import SESSION
from lastlight_state.db import valid
from lastlight_state.db.lists.filters import family, first_column, rows
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.statements import Statement, bind, exactly, number, statement_of
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.erase import messages
from lastlight_state.maintenance.erase.messages import RedactPlan, RedactPolicy
from lastlight_state.maintenance.shared import jobs
from lastlight_state.receipts import Receipt, Receipts, steps

_LIMITS = limits_of(MESSAGES)

#: How many messages one transaction reads.
LOOK = 200
#: The most messages that a policy names, and its greatest age in days.
MOST_IDS, MOST_DAYS = 500, 36_500

Terms = dict[str, Any]


_m = MESSAGES.c
_after = sa.tuple_(exactly("after_at", _m.created_at), bind("after_id", _m.id))
OLDER: Statement[tuple[datetime, str]] = statement_of(
    through(sa.select(_m.created_at, _m.id), MESSAGES, "ix_messages_newest")
    .where(
        _m.created_at >= exactly("after_at", _m.created_at),
        sa.tuple_(_m.created_at, _m.id) > _after,
        _m.created_at < bind("cutoff", _m.created_at),
    )
    .order_by(_m.created_at, _m.id)
    .limit(number(LOOK)),
    tuple,
)
_KNOWN = family(lambda keys: sa.select(_m.id).where(_m.id.in_(keys)))


class Redact(Repository):
    """Empties messages of conversations: ``store.maintenance.redact``."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def plan(self, policy: RedactPolicy) -> RedactPlan:
        """Return what `run` would empty now, from one snapshot. Writes nothing, and holds no lock.

        Raises `InvalidValue` for an invalid policy, and `NotFound` for a missing session or message.
        """
        terms = _terms(policy, self._now())
        return self._viewing(lambda unit: _plan_redaction(unit, terms, _chosen_ids(unit, terms)))

    def run(self, policy: RedactPolicy, *, actor: str | None = None) -> Receipt:
        """Empty the messages that match the policy, in short transactions, and return the receipt.

        The content becomes ``{"lion_content_pruned": {"at": …, "original_bytes": …}}``; embedding, extra and chunks are
        removed. Rows, their order and all other counts stay. Messages in running or held sessions stay unchanged.
        Another call changes nothing, or continues an interrupted redaction. Raises `Conflict` ``already_running`` while
        another redaction runs, and the errors of `plan`.
        """
        terms = _terms(policy, self._now())
        ids = self._viewing(lambda unit: _chosen_ids(unit, terms))
        receipt = self._receipts.begin("redact", scope="messages", policy=terms, owner=jobs.owner(), actor=actor)

        def step(receipt: Receipt) -> tuple[Receipt, bool]:
            return self._writing(lambda unit: _batch(unit, receipt, terms, ids, self._now()))

        return jobs.run_steps(self._receipts, receipt, step, again="the same command")


def _terms(policy: RedactPolicy, now: datetime) -> Terms:
    """Return the policy in the form in which a receipt stores it."""
    given = valid.argument_group("policy", policy, RedactPolicy)
    if given.older_than is None and given.session_id is None and given.message_ids is None:
        raise InvalidValue("policy", "must have older_than, session_id or message_ids: nothing is emptied by default")
    age, roles, ids = given.older_than, given.roles, given.message_ids
    if age is not None:
        valid.duration("older_than", age, most=timedelta(days=MOST_DAYS))
    if ids is not None:
        valid.at_most("message_ids", ids := valid.several("message_ids", ids), MOST_IDS)
        ids = [valid.lookup_text("message_ids", one) for one in ids]
    if roles is not None:
        roles = sorted({valid.identifier("roles", role, _LIMITS.role) for role in valid.several("roles", roles)})
    return {
        "cutoff": None if age is None else iso_text(now - age),
        "roles": roles,
        "session_id": None if given.session_id is None else valid.lookup_text("session_id", given.session_id),
        "message_ids": ids,
    }


def _chosen_ids(unit: Unit, terms: Terms) -> list[str] | None:
    """Return the ids of the messages that match the policy's session and ids. None if the policy names neither."""
    given, session_id = terms["message_ids"], terms["session_id"]
    if given is not None:
        known = set(first_column(unit, _KNOWN, given))
        for one in given:
            if one not in known:
                raise valid.not_found("message", one)
    if session_id is None:
        return None if given is None else sorted(set(given))
    orders = [order for _, order in rows(unit, ORDERS, [session_id])]
    if not orders:
        raise valid.not_found(SESSION, session_id)
    found = {message for (message,) in rows(unit, POINTED, [session_id])}
    found.update(message for order in orders for _, message in links(unit, order))
    return sorted(found if given is None else found & set(given))


def _next(unit: Unit, terms: Terms, ids: list[str] | None, after: Any) -> tuple[list[str], Any]:
    """Return the ids of the next messages to examine, and the position after them."""
    if ids is not None:
        start = after or 0
        return ids[start : start + LOOK], start + LOOK
    moment, key = after or ("0001-01-01T00:00:00.000Z", "")
    values = {"after_at": parse_time(moment), "after_id": key, "cutoff": parse_time(terms["cutoff"])}
    found = unit.rows(OLDER, values)
    if not found:
        return [], after
    last_at, last_id = last = found[-1]
    jobs.confirm_after(last, (parse_time(moment), str(key)))
    return [message_id for _, message_id in found], [exact_iso_text(last_at), last_id]


def _split_messages(
    unit: Unit, terms: Terms, ids: list[str], *, locked: bool
) -> tuple[list[messages.FullMessage], Counter[str]]:
    """Return the messages to empty, and by reason the number of messages that stay unchanged."""
    cutoff = None if terms["cutoff"] is None else parse_time(terms["cutoff"])
    found = [
        row
        for row in messages.full(unit, ids, locked=locked)
        if (terms["roles"] is None or row.role in terms["roles"]) and (cutoff is None or row.created_at < cutoff)
    ]
    holding = messages.holders(unit, [row.id for row in found])
    kept = {row.id: messages.reason(holding[row.id]) for row in found}
    return [row for row in found if kept[row.id] is None], Counter(reason for reason in kept.values() if reason)


def _plan_redaction(unit: Unit, terms: Terms, ids: list[str] | None) -> RedactPlan:
    counts: Counter[str] = Counter()
    protected: Counter[str] = Counter()
    size, after = 0, None
    look, after = _next(unit, terms, ids, after)
    while look:
        found, kept = _split_messages(unit, terms, look, locked=False)
        counts["messages"] += len(found)
        counts["vectors"] += messages.count_chunks(unit, [row.id for row in found])
        protected += kept
        size += sum(row.bytes for row in found)
        look, after = _next(unit, terms, ids, after)
    return RedactPlan(counts=+counts, bytes=size, protected=protected)


def _batch(unit: Unit, receipt: Receipt, terms: Terms, ids: list[str] | None, at: datetime) -> tuple[Receipt, bool]:
    """Empty the next messages. Each message is locked, and is read again before it is emptied."""
    steps.confirm(unit, receipt)
    look, after = _next(unit, terms, ids, receipt.cursor)
    found, _ = _split_messages(unit, terms, look, locked=True)
    messages.empty(unit, found, at)
    removed = messages.remove(unit, [row.id for row in found])
    counts = Counter(receipt.counts) + Counter(messages=len(found), vectors=removed)
    return steps.step(unit, receipt, counts=counts, cursor=after, at=at), bool(look)
