"""Ids as people type them: whole, as a prefix that only one record has, or ``last`` for the newest."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from lastlight_state.errors import Conflict, NotFound
from lastlight_state.store import StateStore

LAST = "last"
#: The table and the key of each kind whose records have an id of their own, by the word that ``show`` takes.
_KEYS = {
    "run": ("workflow_runs", "id"),
    "execution": ("executions", "id"),
    "approval": ("workflow_approvals", "id"),
    "question": ("human_requests", "id"),
    "messaging": ("messaging_sessions", "id"),
    "session": ("sessions", "id"),
    "cron": ("cron_schedules", "name"),
    "fire": ("cron_fires", "id"),
    "receipt": ("maintenance_receipts", "id"),
    "score": ("scores", "id"),
    "output": ("output_tables", "key"),
}
#: Candidates that an error names.
_MOST = 5
_END = "\U0010ffff"


class Named(NamedTuple):
    """A record: its kind, as `show` takes it, and its whole id."""

    kind: str
    id: str


def resolve(store: StateStore, text: str, kinds: Collection[str] = tuple(_KEYS)) -> Named:
    """Return the record of one of these kinds that a person means.

    An id that is whole is that record, whatever else begins with it. Raises `NotFound`, and `Conflict`
    ``ambiguous_id`` with the first of those that begin with the text.
    """
    known = [kind for kind in _KEYS if kind in kinds]
    if text == LAST:
        return _newest(store, known)
    found = [Named(*row) for row in _beginning(store, text, known)]
    whole = [one for one in found if one.id == text]
    if len(whole or found) == 1:
        return (whole or found)[0]
    if not found:
        raise NotFound(" or ".join(known) if len(known) <= 2 else "record", text)
    named = ", ".join(f"{one.kind} {one.id}" for one in found[:_MOST])
    more = " and more" if len(found) > _MOST else ""
    told = f"several records begin with {text!r:.80}: {named}{more}"
    raise Conflict(told, code="ambiguous_id", ids=[one.id for one in found])


def whole(store: StateStore, text: str, kind: str) -> str:
    """Return the whole id of a record of one kind, or the text where there is none: whoever asks next says so."""
    try:
        return resolve(store, text, (kind,)).id if kind in _KEYS else text
    except NotFound:
        return text


def _beginning(store: StateStore, text: str, kinds: Collection[str]) -> Collection[tuple[str, str]]:
    """Return the first that begin with the text, of each kind: one short range of each primary key."""
    parts = (
        f"SELECT kind, id FROM (SELECT '{kind}' AS kind, {key} AS id FROM {table}"
        f" WHERE {key} >= :least AND {key} < :end ORDER BY {key} LIMIT {_MOST + 1}) AS of_{kind}"
        for kind in kinds
        for table, key in (_KEYS[kind],)
    )
    sql = " UNION ALL ".join(parts)
    found = store.outputs.query.rows(sql, {"least": text, "end": text + _END})
    return [(str(kind), str(key)) for kind, key in found.rows]


def _newest(store: StateStore, kinds: Collection[str]) -> Named:
    """Return the newest of a kind; of several kinds, the newest run."""
    kind = "run" if "run" in kinds else next(iter(kinds))
    lists = {
        "run": store.workflows.runs.list,
        "execution": store.workflows.executions.list,
        "approval": store.workflows.approvals.list,
        "question": store.workflows.human_requests.list_pending,
        "messaging": store.messaging.sessions.list,
        "session": store.conversations.sessions.list,
        "fire": store.schedules.fires.list,
        "receipt": store.receipts.list,
    }
    items = lists[kind](limit=1).items if kind in lists else ()  # type: ignore[operator]
    if not items:
        raise NotFound(kind, LAST)
    return Named(kind, items[0].id)
