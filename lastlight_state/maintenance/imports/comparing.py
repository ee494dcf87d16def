"""Compares a session of a source with the stored session: what an import would add or change, or why it is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations import sessions as session_sql, words
from lastlight_state.conversations.branches import statements, statements as branch_sql
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.records import ConversationSession, Message
from lastlight_state.conversations.sessions import checks
from lastlight_state.conversations.sessions.checks import SessionDraft
from lastlight_state.conversations.shared import branching, orders, sessions, statuses, storing
from lastlight_state.conversations.shared.feeds import entry_parameters, write_entry
from lastlight_state.conversations.trees.plans import BranchPlan, Plan
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.maintenance.imports import brought, drafts as sql, origins, pieces
from lastlight_state.maintenance.imports.drafts import Change, ImportedVersions, Pool, StoredBranch
from lastlight_state.maintenance.imports.pieces import UnitLookup
from lastlight_state.maintenance.imports.removed import RemovedParts, may_change

_JSON = frozenset({"node_metadata", "extra", "artifact_contract", "artifact_verification"})
_FIELDS = ("name", "user", *checks.PROVENANCE, "project", "agent_session_id", "started_at", *sorted(_JSON))
#: Columns that follow the source only while the status is the same: a change of status sets them itself.
_ENDS = ("ended_at", "ended_at_is_approximate")
_BRANCH_FIELDS = ("name", "user", "node_metadata", "extra", *branching.HINTS, "system_msg_id")

#: A change of status, with its reason in the form that statements take.
Checked = tuple[Change, statuses.StatusReason]


def marks(pool: Pool | None, order: Sequence[str] | None) -> Row:
    """Return ``first_msg_id`` and ``last_msg_id`` as the source states them, or else the ends of the order."""
    if pool is None or not order:
        return {}
    return {"first_msg_id": pool.first or order[0], "last_msg_id": pool.last or order[-1]}


def differences(stored: ConversationSession, given: SessionDraft, pointers: Row) -> Row:
    """Return the columns in which the stored session differs from the source, with the source's values."""
    same_status = stored.status == given["status"]
    here = vars(stored)
    told: Values = given
    wanted = {name: told[name] for name in (*_FIELDS, *(_ENDS if same_status else ()))} | pointers
    found = {name: value for name, value in wanted.items() if _differs(name, here[name], value)}
    last = given["last_message_at"]
    if last is not None and (stored.last_message_at is None or stored.last_message_at < last):
        found["last_message_at"] = last
    return found


def branch_differences(view: Unit, session_id: str, plans: Sequence[BranchPlan]) -> dict[str, Row]:
    """Return the columns in which stored branches differ from the source, with the source's values, by branch id."""
    stored = {branch.id: branch for branch in view.rows(sql.BRANCHES_OF, {"session_id": session_id})}
    found: dict[str, Row] = {}
    for plan in plans:
        branch = stored.get(plan.row["id"])
        if branch is None:
            continue
        here, kept = vars(branch), statements.keep_fork_keys(branch.node_metadata, plan.row["node_metadata"])
        given: Row = {**plan.row, "node_metadata": kept}
        names = [name for name in _BRANCH_FIELDS if _differs(name, here[name], given[name])]
        if names:
            found[plan.row["id"]] = {name: given[name] for name in names}
    return found


def change(view: Unit, listeners: Listeners, session_id: str, changes: Row, at: Any) -> None:
    """Update columns of a session, and write an entry into its feed."""
    if changes:
        chain = session_sql.update(frozenset(changes), versioned=False)
        write_entry(
            view, listeners, chain, {**changes, "session_id": session_id, "at": at}, entry_parameters("session.updated")
        )


def change_branches(view: Unit, listeners: Listeners, session_id: str, changes: Mapping[str, Row], at: Any) -> None:
    """Update columns of branches, and write an entry for each into the feed of the session."""
    for branch_id, values in changes.items():
        view.row(branch_sql.update(frozenset(values)), {**values, "branch_id": branch_id})
        sessions.record_change(view, listeners, session_id, at, entry_parameters("branch.updated", branch_id=branch_id))


def tell(
    view: Unit, listeners: Listeners, session_id: str, history: Sequence[Checked], ids: Sequence[str | None], last: Row
) -> None:
    """Write status changes of a session in their order. ``last`` has further columns that the last change sets."""
    for at, (one, why) in enumerate(history):
        [row] = view.rows(statuses.LOCK, {"session_id": session_id})
        sets = last if at == len(history) - 1 else {}
        statuses.move(view, listeners, row, one.status, why, one.at, transition_id=ids[at], **sets)


def tell_branches(view: Unit, listeners: Listeners, session_id: str, ends: Mapping[str, Checked]) -> None:
    """Change the statuses of branches. A branch that was ended in this store keeps its status."""
    for branch_id, (one, why) in ends.items():
        [row] = view.rows(statuses.LOCK, {"session_id": session_id})
        [branch] = view.rows(statuses.BRANCH, {"branch_id": branch_id})
        if branch.status not in (*words.TERMINAL, one.status):
            times = {"started_at": one.started_at} if one.started_at else {}
            statuses.move_branch(view, listeners, row, branch, one.status, why, one.at, **times)


def _differs(name: str, stored: Any, given: Any) -> bool:
    if name in _JSON:
        return codec.canonical(stored) != codec.canonical(None if given is None else codec.decode(given))
    return bool(stored != given)


#: The fields by which two messages of one source are compared.
_TOLD = ("sender", "recipient", "channel", "role", "lion_class", "node_metadata", "extra", "content")


@dataclass
class SessionDifference:
    """The result of a comparison: rows to add by table, and changes to write.

    ``revised`` has the revisions of the stored messages to update. ``orders`` has the new order of each branch, and
    ``pool`` the order of all messages if the source has one. ``kept`` names differences that stay, because the part was
    changed in the store, too; ``kept_orders`` and ``kept_messages`` have the ids of such orders and messages.
    ``changed_orders`` has ids of orders that were changed in the store and still lack a part of the source. ``gone``
    has the branches removed from the store, with their forks, and ``removed_messages`` the messages removed from it.
    """

    rows: Counter[str] = field(default_factory=Counter)
    revised: dict[str, int] = field(default_factory=dict)
    orders: dict[str, list[str]] = field(default_factory=dict)
    pool: list[str] | None = None
    kept: list[str] = field(default_factory=list)
    kept_messages: set[str] = field(default_factory=set)
    kept_orders: set[str] = field(default_factory=set)
    changed_orders: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    removed_messages: set[str] = field(default_factory=set)


def compare_session(
    look: UnitLookup, plan: Plan, bodies: dict[str, MessageDraft], pool: Pool | None, stored: ConversationSession | None
) -> SessionDifference:
    """Compare a session of a source with the stored session ``stored``, if there is one.

    Raises `AlreadyExists` for a branch of another session, and for a message whose id another message has.
    """
    found, base = SessionDifference(), ImportedVersions.of(pieces.known_digest(look) if stored is not None else None)
    here = [] if stored is None else _linked_messages(look.view, stored.progression_id)
    pooled, is_shared = set(here), pool is not None
    is_elsewhere = bool(base.source) and not origins.is_of_source(look)
    _refuse_other(plan, base, pool, is_elsewhere=is_elsewhere)
    _refuse_unknown(look, plan, base, bodies)

    def is_same(row: Message, body: MessageDraft) -> bool:
        if is_elsewhere and row.revision in (0, pieces.revision(look, row.id)):
            return False  # another place does not replace a text
        return row.id in pooled or (is_shared and row.created_at_unix == body["created_at_unix"])

    ids = as_list([{"id": branch.row["id"]} for branch in plan.branches])
    heads = {head.id: head for head in look.view.rows(sql.HEADS, {"ids": ids})}
    removed = RemovedParts(ImportedVersions("") if look.revives else base, plan, heads, pool)
    plan, bodies = removed.plan, {one: body for one, body in bodies.items() if one not in removed.left}
    absent = messages(look, found, bodies, is_same)
    removed.note_absent(absent)
    digests = {one: told for one, told in absent.items() if one not in removed.messages}
    found.gone, found.removed_messages = removed.branches, removed.messages
    found.kept_messages |= removed.left | removed.messages
    found.rows["messages"] = len(digests.keys() - look.planned["messages"].keys())
    _branches(look, found, plan, base, heads, removed)
    if pool is not None:
        _pool(look, found, plan, pool, base, stored, here, removed)
    look.planned["messages"].update(digests)
    look.planned["branches"].update((branch.row["id"], plan.session["id"]) for branch in plan.branches)
    return found


def _refuse_other(plan: Plan, base: ImportedVersions, pool: Pool | None, *, is_elsewhere: bool) -> None:
    """Raise `OtherSource` if the session is not the one of the last import.

    From another place, it must have all orders of the last import; from the same place, some.
    """
    given: dict[str, Sequence[str]] = {branch.row["id"]: branch.order for branch in plan.branches}
    given |= {"": pool.ids} if pool is not None else {}
    stands = {one for one, had in base.source.items() if one in given and brought.leading_ids(given[one], had)}
    missing = {one for one, had in base.source.items() if one not in given or (had[0] and one not in stands)}
    branches = base.source.keys() - {""}
    is_another = bool(branches and plan.branches) and not stands and branches.isdisjoint(given)
    if is_another or (is_elsewhere and missing):
        place = "came from another place" if is_elsewhere else "this has none of its branches"
        problem = f"has messages that this source lacks, and {place}; nothing of it is written"
        raise pieces.OtherSource(words.SESSION, plan.session["id"], problem=problem)


def _refuse_unknown(look: UnitLookup, plan: Plan, base: ImportedVersions, bodies: Mapping[str, MessageDraft]) -> None:
    """Raise `OtherSource` for messages from another file, if the session had no messages at its last import."""
    was_empty = base.version is not None and not any(had[0] for had in base.source.values())
    is_known = not base.source.keys().isdisjoint(branch.row["id"] for branch in plan.branches)
    if bodies and was_empty and not is_known and not origins.is_of_file(look):
        problem = f"had no messages at its last import, and {origins.came_from(look)}"
        raise pieces.OtherSource(words.SESSION, plan.session["id"], problem=f"{problem}; nothing of it is written")


def _branches(
    look: UnitLookup,
    found: SessionDifference,
    plan: Plan,
    base: ImportedVersions,
    heads: Mapping[str, StoredBranch],
    removed: RemovedParts,
) -> None:
    for branch in plan.branches:
        branch_id, session_id = branch.row["id"], plan.session["id"]
        head = heads.get(branch_id)
        owner = head.session_id if head else look.planned["branches"].get(branch_id, session_id)
        if owner != session_id:
            raise AlreadyExists(words.BRANCH, branch_id, problem=f"belongs to session {owner!r:.80}", session_id=owner)
        stored = branching.whole_order(look.view, branch_id) if head else []
        as_left = head is None or may_change(look, head.progression_id, base, stored, branch.order)
        given = removed.order(branch_id, branch.order, stored, is_as_left=as_left)
        has_lost = len(branch.order) < base.source.get(branch_id, (0,))[0]
        order = given if head is None else _order(look.view, found, given, stored, head, as_left, has_lost=has_lost)
        found.orders[branch_id] = order
        if head is not None and not as_left and (has_lost or order != branch.order):
            found.changed_orders.add(head.progression_id)
        found.rows["branches"] += head is None
        found.rows["progression_links"] += max(0, len(order) - len(stored))


def _order(
    view: Unit,
    found: SessionDifference,
    given: list[str],
    stored: list[str],
    head: StoredBranch,
    as_left: bool,
    *,
    has_lost: bool,
) -> list[str]:
    """Return the new order of a stored branch: the source's order, unless the order was changed in the store, too.

    Messages that the source no longer has stay in the store.
    """
    own = head.progression_id
    if given[: len(stored)] == stored:
        return given
    at = _first_difference(stored, given)
    inherited = view.value(orders.INHERITED, {"progression_id": own}) or 0
    if as_left and at >= max(inherited, head.forked_at_ord or 0) and set(stored) <= set(given):
        return given
    found.kept_orders.add(own)
    if has_lost or stored[: len(given)] != given:
        found.kept.append(f"branch {head.id}: order of messages")
    return stored


def _pool(
    look: UnitLookup,
    found: SessionDifference,
    plan: Plan,
    pool: Pool,
    base: ImportedVersions,
    stored: ConversationSession | None,
    here: list[str],
    removed: RemovedParts,
) -> None:
    """Set the order of all messages in ``found``. Messages that are only in branches are added at its end."""
    own = [one for branch in plan.branches for one in (*found.orders[branch.row["id"]], branch.system) if one]
    as_left = stored is None or may_change(look, stored.progression_id, base, here, pool.ids)
    ids = removed.order("", pool.ids, here, is_as_left=as_left)
    given = [*ids, *orders.unheld(own, set(ids))]
    has_lost = len(pool.ids) < base.source.get("", (0,))[0]
    if stored is not None and not as_left and (has_lost or ids != list(pool.ids)):
        found.changed_orders.add(stored.progression_id)
    if stored is None or given[: len(here)] == here or (as_left and set(here) <= set(given)):
        found.pool = given
        return
    found.kept_orders.add(stored.progression_id)
    if here[: len(given)] != given or has_lost:
        found.kept.append("session: order of messages")
    found.pool = [*here, *orders.unheld(given, set(here))]


def messages(
    look: UnitLookup,
    found: SessionDifference,
    bodies: dict[str, MessageDraft],
    is_same: Callable[[Message, MessageDraft], bool],
) -> dict[str, tuple[str, ...]]:
    """Return the messages to add. A stored message that differs is marked for revision, or stays and is reported.

    ``is_same`` tells whether a stored row and a body are one message, and not two with the same id.
    """

    def handle_difference(stored: Message, body: MessageDraft, differing: list[str]) -> None:
        if not is_same(stored, body):
            refuse(stored.id, differing)
        _follow(look, found, stored)

    return new_messages(look.view, bodies, look.planned["messages"], handle_difference)


def refuse(message_id: str, differing: list[str]) -> None:
    """Raise `AlreadyExists` for a message that is stored with other fields."""
    problem = f"is stored already with another {', '.join(differing)}"
    raise AlreadyExists(words.MESSAGE, message_id, problem=problem, fields=tuple(differing))


def new_messages(
    view: Unit,
    bodies: dict[str, MessageDraft],
    planned: dict[str, Any],
    met: Callable[[Message, MessageDraft, list[str]], None],
) -> dict[str, tuple[str, ...]]:
    """Return the messages that are not stored yet, by id, each with the digests of its fields.

    ``met`` is called for each stored message that differs: with row, message in the source, and fields.
    """
    new: dict[str, tuple[str, ...]] = {}
    for at in range(0, len(bodies), words.BATCH):
        some = list(bodies)[at : at + words.BATCH]
        rows = view.rows(sql.MESSAGES_THERE, {"ids": as_list([{"id": one} for one in some])})
        stored = {message.id: message for message in rows}
        for one in some:
            body = bodies[one]
            if one not in stored:
                new[one] = _digests(body)
                earlier = zip(_TOLD, planned.get(one, new[one]), new[one], strict=True)
                if differing := [name for name, first, second in earlier if first != second]:
                    refuse(one, differing)
            elif differing := storing.differs(stored[one], body):
                met(stored[one], body, differing)
    return new


def _digests(body: Values) -> tuple[str, ...]:
    return tuple(codec.digest(body[name]) for name in _TOLD)


def _follow(look: UnitLookup, found: SessionDifference, stored: Message) -> None:
    """Mark a stored message for revision, unless it was revised here since the last import."""
    message_id, revision = stored.id, stored.revision
    if revision in (0, pieces.revision(look, message_id)):
        found.revised[message_id] = revision
    else:
        found.kept_messages.add(message_id)
        found.kept.append(f"message {message_id}")


def _linked_messages(view: Unit, progression_id: str) -> list[str]:
    return view.values(orders.LINKED, {"progression_id": progression_id})


def _first_difference(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
