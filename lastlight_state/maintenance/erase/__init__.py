"""Erases one person from conversations and chats, with a dry run and a receipt that does not name the person.

Some rows are deleted: connectors' chats with their messages, inboxes of the exchange with their deliveries, threads of
checkpoints, states, and chunks of emptied texts. Rows of conversations and of their agents' executions stay, but their
texts are emptied, and the names of users are removed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.conversations.shared.references import ORDERS, POINTED, PROTECTIONS, links
from lastlight_state.conversations.tables import BRANCHES, MESSAGES, SESSIONS
from lastlight_state.db import valid
from lastlight_state.db.lists.filters import chunks, family, first_column, rows
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.statements import Family, RowT, Statement, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.declarations import contents, empty_values, values_without_person
from lastlight_state.db.units.permits import permit_deletion
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.erase import messages, messages as texts, personal_rows
from lastlight_state.maintenance.erase.messages import ErasePlan
from lastlight_state.maintenance.prune.candidates import STATEMENTS
from lastlight_state.maintenance.shared import jobs
from lastlight_state.messaging.models import MESSAGES as SAID, SESSIONS as CHATS
from lastlight_state.receipts import Receipt, Receipts, steps

_m, _s, _b, _c = MESSAGES.c, SESSIONS.c, BRANCHES.c, CHATS.c

#: The most agent sessions that a plan names, and how many chats one transaction removes.
MOST_NAMED, CHATS_AT_ONCE = 500, 20

_person = sa.bindparam("person", type_=columns.Text)
_held = PROTECTIONS["held"]


def _is_full(given: Iterable[sa.Column[Any]]) -> sa.ColumnElement[bool]:
    return sa.or_(*(one.is_not(None) for one in given))


def _person_select(row: type[RowT], key: Any, column: Any, *more: Any) -> Statement[RowT]:
    return statement_of(sa.select(key.label("key"), *more).where(column == _person).order_by(key), row)


#: Finds rows with the person's name. Branches and chats are found by a scan, because erasing is rare.
_SENT, _RECEIVED = (
    statement_of(sa.select(_m.id.label("key")).where(column == _person).order_by(_m.id))
    for column in (_m.sender, _m.recipient)
)
#: The sessions: whether each is held, and its agent session.
_OWNED: Statement[tuple[str, bool, str | None]] = _person_select(
    tuple, _s.id, _s.user, _held.label("held"), _s.agent_session_id
)
#: Selects branches without a user but with contents: such a branch belongs to the user of its session.
_is_unnamed = sa.and_(_b.user.is_(None), _is_full(contents(BRANCHES)))
_BRANCHED: Statement[tuple[str, bool]] = statement_of(
    sa.select(_b.id.label("key"), _held.label("held"))
    .select_from(BRANCHES.join(SESSIONS, _s.id == _b.session_id))
    .where(sa.or_(_b.user == _person, sa.and_(_s.user == _person, _is_unnamed)))
    .order_by(_b.id),
    tuple,
)
#: The chats, each with its agent session.
_CHATTED: Statement[tuple[str, str | None]] = _person_select(tuple, _c.id, _c.user_id, _c.agent_session_id)

_LOCK_SESSIONS: Family[tuple[str, str | None, bool]] = family(
    lambda keys: (
        sa.select(_s.id, _s.agent_session_id, _held.label("held"))
        .where(_s.id.in_(keys), _s.user == _person)
        .with_for_update()
    ),
    tuple,
)
#: Locks the sessions of these branches.
_LOCK_PLACES = family(
    lambda keys: (
        sa.select(_s.id)
        .where(_s.id.in_(sa.select(_b.session_id).where(_b.id.in_(keys))))
        .order_by(_s.id)
        .with_for_update()
    )
)
_LOCK_CHATS: Family[tuple[str, str | None]] = family(
    lambda keys: sa.select(_c.id, _c.agent_session_id).where(_c.id.in_(keys)).order_by(_c.id).with_for_update(),
    tuple,
)
_OWN = family(
    lambda keys: sa.select(_m.id).where(_m.id.in_(keys), sa.or_(_m.sender == _person, _m.recipient == _person))
)
#: The columns that redaction does not empty: a message's metadata.
_LEFT = contents(MESSAGES, but=("content",))
_TOLD = family(lambda keys: sa.select(_m.id).where(_m.id.in_(keys), _is_full(_LEFT)))
_SAID = family(lambda keys: sa.select(sa.func.count().label("rows")).where(SAID.c.session_id.in_(keys)))
_UNSAY = family(lambda keys: sa.delete(SAID).where(SAID.c.session_id.in_(keys)))
_ERASED = {**values_without_person(MESSAGES, _person), **empty_values(_LEFT)}
_FORGET = family(lambda keys: sa.update(MESSAGES).where(_m.id.in_(keys)).values(**_ERASED))
_FORGET_SESSIONS = family(
    lambda keys: (
        sa.update(SESSIONS)
        .where(_s.id.in_(keys))
        .values(**values_without_person(SESSIONS, _person), **empty_values(contents(SESSIONS)), version=_s.version + 1)
    )
)
_is_free = sa.and_(_b.user == _person, ~sa.exists().where(_s.id == _b.session_id, _held))
_FORGET_BRANCHES_OF = family(
    lambda keys: (
        sa.update(BRANCHES)
        .where(_b.session_id.in_(keys), sa.or_(_b.user == _person, _is_unnamed))
        .values(**values_without_person(BRANCHES, _person), **empty_values(contents(BRANCHES)))
    )
)
_FREE_BRANCHES = family(lambda keys: sa.select(_b.id).where(_b.id.in_(keys), _is_free))
#: Raises the version of sessions, so that an import takes them as changed here and does not restore their fields.
_TOUCH_PLACES = family(
    lambda keys: (
        sa.update(SESSIONS)
        .where(_s.id.in_(sa.select(_b.session_id).where(_b.id.in_(keys), _is_free)))
        .values(version=_s.version + 1)
    )
)
#: Branches lose their metadata, which hold an agent's configuration and the origin of a fork.
_FORGET_BRANCHES = family(
    lambda keys: (
        sa.update(BRANCHES)
        .where(_b.id.in_(keys), _is_free)
        .values(**values_without_person(BRANCHES, _person), **empty_values(contents(BRANCHES)))
    )
)


class PersonRows(NamedTuple):
    """The ids of a person's rows. ``free`` are the person's sessions that no worker holds."""

    messages: set[str]
    sessions: list[str]
    free: list[str]
    branches: list[str]
    chats: list[str]
    agent_sessions: list[str]
    transitions: list[str]
    threads: list[str]
    states: list[str]


#: Does the work of one transaction, and returns the number of rows by table.
Job = Callable[[Unit, Receipt, datetime], Counter[str]]


class Erase(Repository):
    """Erases one person from conversations and chats: ``store.maintenance.erase``."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def plan(self, person: str) -> ErasePlan:
        """Return what `run` would do now, from one snapshot. Writes nothing, and holds no lock."""
        name = valid.identifier("person", person)
        return self._viewing(lambda unit: _plan_erasure(unit, name))

    def run(self, person: str, *, actor: str | None = None) -> Receipt:
        """Erase a person: a user, sender or recipient in conversations, or a user of connectors.

        Messages that the person sent or received are emptied as `Redact` does it, without the person's name and without
        metadata. Messages of the person's sessions are emptied, too. But a message that is also in another user's
        session stays, unless the person sent or received it. The person's sessions and branches and their orders lose
        all values that are declared personal, above all the user. A branch without a user belongs to the user of its
        session. Chunks of these messages, sessions and branches are removed. Status changes lose actor, reason and
        evidence if the person made them, or if they belong to the person's sessions and branches. The person's chats
        are removed with their messages, and so are threads of checkpoints, states, the inbox in the exchange and the
        memberships in channels. Executions of the agent sessions behind these chats and sessions lose their texts,
        unless another user has the agent session, too; log files are not changed. A session that is held stays
        unchanged with all its parts.

        Works in short transactions, except that one transaction empties the whole inbox, however many deliveries it
        has. Calling it again continues an interrupted erasure. The receipt has counts and a digest of the name. Raises
        `Conflict` ``already_running`` while another erasure runs.
        """
        name = valid.identifier("person", person)
        works = list(_jobs(self._viewing(lambda unit: _find_person_rows(unit, name)), name))
        policy = {"person": f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"}
        begun = self._receipts.begin("redact", scope="person", policy=policy, owner=jobs.owner(), actor=actor)

        def step(receipt: Receipt) -> tuple[Receipt, bool]:
            done = receipt.cursor or 0
            if done == len(works):
                return receipt, False
            return self._writing(lambda unit: _batch(unit, receipt, works[done], self._now())), True

        return jobs.run_steps(self._receipts, begun, step, again="the same command")


def _batch(unit: Unit, receipt: Receipt, job: Job, at: datetime) -> Receipt:
    steps.confirm(unit, receipt)
    with permit_deletion(unit, receipt.id):
        counts = Counter(receipt.counts) + job(unit, receipt, at)
    return steps.step(unit, receipt, counts=dict(sorted(counts.items())), cursor=(receipt.cursor or 0) + 1, at=at)


def _find_person_rows(unit: Unit, person: str) -> PersonRows:
    values = {"person": person}
    owned, chats = unit.rows(_OWNED, values), unit.rows(_CHATTED, values)
    free, sessions = [session for session, held, _ in owned if not held], [session for session, _, _ in owned]
    behind = {one for _, held, one in owned if not held} | {one for _, one in chats}
    return PersonRows(
        _of_sessions(unit, sessions)
        | {key for sql in (_SENT, _RECEIVED, personal_rows.DELIVERED) for key in unit.values(sql, values)},
        sessions,
        free,
        [branch for branch, held in unit.rows(_BRANCHED, values) if not held],
        [chat for chat, _ in chats],
        sorted(one for one in behind if one is not None),
        personal_rows.transitions_of(unit, person),
        personal_rows.threads_of(unit, person),
        personal_rows.states_of(unit, person),
    )


def _of_sessions(unit: Unit, sessions: list[str]) -> set[str]:
    """Return the ids of the messages that these sessions hold or point to."""
    held = {order for _, order in rows(unit, ORDERS, sessions)}
    found = {message for (message,) in rows(unit, POINTED, sessions)}
    return found.union(*({message for _, message in links(unit, order)} for order in held))


def _split_messages(
    unit: Unit, person: str, ids: Collection[str], *, locked: bool
) -> tuple[set[str], list[messages.FullMessage], Counter[str]]:
    """Return the messages to erase, those among them with contents, and how many others stay, counted by reason.

    A redacted message has no contents, but may have metadata and chunks.
    """
    full = {row.id: row for row in messages.full(unit, ids, locked=locked)}
    own = set(first_column(unit, _OWN, ids, {"person": person}))
    told = {*first_column(unit, _TOLD, ids)} | texts.with_chunks(unit, ids)
    kept: Counter[str] = Counter()
    going = set()
    for key, sessions in messages.holders(unit, own | told | set(full)).items():
        reason = messages.reason(sessions, ("held",))
        if reason is None and key not in own and any(row["user"] not in (None, person) for row in sessions):
            reason = "shared"
        if reason is None:
            going.add(key)
        else:
            kept[reason] += 1
    return going, [row for key, row in full.items() if key in going], kept


def _plan_erasure(unit: Unit, person: str) -> ErasePlan:
    found = _find_person_rows(unit, person)
    counts = Counter(sessions=len(found.free), branches=len(found.branches), messaging_sessions=len(found.chats))
    counts.update(session_transitions=len(found.transitions), states=len(found.states))
    counts["progressions"] = personal_rows.count_orders(unit, person)
    counts += personal_rows.count_inboxes(unit, person) + personal_rows.count_threads(unit, found.threads)
    counts["executions"] = personal_rows.count_executions(
        unit, personal_rows.own_executions(unit, found.agent_sessions, person)
    )
    counts["vectors"] = texts.count_chunks(unit, texts.places(unit, found.free) | set(found.branches))
    counts["messaging_messages"] = sum(first_column(unit, _SAID, found.chats))
    protected: Counter[str] = Counter()
    size = 0
    for ids in chunks(found.messages):
        going, full, kept = _split_messages(unit, person, ids, locked=False)
        counts["messages"] += len(going)
        counts["vectors"] += texts.count_chunks(unit, going)
        protected += kept
        size += sum(row.bytes for row in full)
    return ErasePlan(
        counts=dict(sorted((+counts).items())),
        bytes=size,
        protected=protected,
        agent_sessions=tuple(found.agent_sessions[:MOST_NAMED]),
    )


def _jobs(found: PersonRows, person: str) -> Iterator[Job]:
    """Yield the jobs of an erasure, one for each transaction.

    Sessions come after messages, and are read again under locks.
    """
    yield from (partial(_empty, person, ids) for ids in chunks(found.messages))
    yield from (partial(_session, person, key) for key in found.sessions)
    yield from (partial(_transitions, ids) for ids in chunks(found.transitions))
    yield lambda unit, _receipt, _at: personal_rows.forget_in_inboxes(unit, person)
    yield from (partial(_branches, person, ids) for ids in chunks(found.branches))
    for first in range(0, len(found.chats), CHATS_AT_ONCE):
        yield partial(_chats, person, found.chats[first : first + CHATS_AT_ONCE])
    yield from (partial(personal_rows.remove_threads, person, key) for key in found.threads)
    yield from (partial(personal_rows.remove_states, person, ids) for ids in chunks(found.states))


def _empty(person: str, ids: Collection[str], unit: Unit, _: Receipt, at: datetime) -> Counter[str]:
    going, full, _kept = _split_messages(unit, person, ids, locked=True)
    messages.empty(unit, full, at)
    for some in chunks(going):
        statement, keys = _FORGET.of(some)
        unit.change(statement, {**keys, "person": person})
    return Counter(messages=len(going), vectors=texts.remove(unit, going))


def _session(person: str, key: str, unit: Unit, receipt: Receipt, at: datetime) -> Counter[str]:
    """Empty messages that were appended meanwhile, and remove the person from the session."""
    locked = list(rows(unit, _LOCK_SESSIONS, [key], {"person": person}))
    if not locked:
        return Counter()
    [(_, agent_session, held)] = locked
    if held:
        return Counter()
    late = {row.id for row in messages.full(unit, _of_sessions(unit, [key]), locked=False)}
    counts = _empty(person, late, unit, receipt, at)
    counts += Counter(vectors=texts.remove(unit, texts.places(unit, [key])))
    counts += _executions(unit, person, [agent_session])
    counts["session_transitions"] += personal_rows.empty_transitions_of(unit, [key])
    counts["progressions"] += personal_rows.empty_session_orders(unit, [key], person)
    statement, keys = _FORGET_BRANCHES_OF.of([key])
    counts["branches"] += unit.change(statement, {**keys, "person": person})
    statement, keys = _FORGET_SESSIONS.of([key])
    return counts + Counter(sessions=unit.change(statement, {**keys, "person": person}))


def _transitions(ids: Collection[str], unit: Unit, _: Receipt, _at: datetime) -> Counter[str]:
    return Counter(session_transitions=personal_rows.empty_transitions(unit, ids))


def _branches(person: str, ids: list[str], unit: Unit, _: Receipt, _at: datetime) -> Counter[str]:
    """Remove the person from these branches, except branches whose session has become held meanwhile."""
    list(rows(unit, _LOCK_PLACES, ids))
    removed = texts.remove(unit, first_column(unit, _FREE_BRANCHES, ids, {"person": person}))
    counts = Counter(vectors=removed, progressions=personal_rows.empty_branch_orders(unit, ids, person))
    statement, keys = _TOUCH_PLACES.of(ids)
    unit.change(statement, {**keys, "person": person})
    statement, keys = _FORGET_BRANCHES.of(ids)
    return counts + Counter(branches=unit.change(statement, {**keys, "person": person}))


def _executions(unit: Unit, person: str, agent_sessions: Iterable[str | None]) -> Counter[str]:
    """Empty the executions of these agent sessions, which chats and sessions name."""
    behind = {one for one in agent_sessions if one is not None}
    return Counter(executions=personal_rows.empty_executions(unit, personal_rows.own_executions(unit, behind, person)))


def _chats(person: str, ids: list[str], unit: Unit, receipt: Receipt, at: datetime) -> Counter[str]:
    """Delete chats of connectors. Tombstones prevent an import from restoring them."""
    locked = list(rows(unit, _LOCK_CHATS, ids))
    counts = _executions(unit, person, [agent_session for _, agent_session in locked])
    statement, keys = STATEMENTS["messaging"].bury.of(ids)
    unit.change(statement, {**keys, "receipt_id": receipt.id, "at": at})
    said = unit.change(*_UNSAY.of(ids))
    removed = unit.change(*STATEMENTS["messaging"].own.of(ids))
    return counts + Counter(messaging_messages=said, messaging_sessions=removed)
