"""A conversation store for pydantic-ai over ``store.conversations`` (extra ``pydantic-ai``).

::

    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.pydantic_ai import PydanticAIConversations

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        conversations = PydanticAIConversations(store)
        conversation = await conversations.load("ticket-17") or Conversation(conversation_id="ticket-17")
        await conversations.save(await agent.run("Release it?", conversation=conversation))

A conversation is a session, its record the ``extra`` of that, an entry a message, and each line of entries a branch.
A call that is cancelled learns the outcome of its write first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from lastlight_state.aio import AsyncStateStore
from lastlight_state.conversations import (
    Conversations,
    Message,
    NewBranch,
    NewMessage,
    NewSession,
    SessionFilter,
    SessionPatch,
    runtime,
)
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import iterate
from lastlight_state.errors import AlreadyExists, MisuseError, NotFound, StaleVersion
from lastlight_state.integrations import conversing
from lastlight_state.integrations.conversing import Talks
from lastlight_state.keys import composed
from lastlight_state.workflows import Claim

try:
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessagesTypeAdapter
except ImportError:  # the module can be looked at without pydantic-ai; a store cannot be made
    ConversationStore = object

_RECORD, _ENTRY = "record", "entry"
#: How many entries are read at once, and how many copied.
_PAGE, _BATCH = 500, 1_000


class _Place(NamedTuple):
    """Where an entry stands: in the history of a branch of a session."""

    branch_id: str
    session_id: str
    ord: int
    length: int


class PydanticAIConversations(ConversationStore):
    """A conversation store for pydantic-ai. The store stays the caller's, who closes it.

    ``scope`` keeps its conversations apart from others; a conversation's own scope, such as a person, is the user of
    its session, for erasure. With the ``claim`` of a run only the holder of that claim writes: a second runner gets
    `ClaimLost`. Deleting a conversation deletes the entries that no other one has. Raises `MisuseError` without
    pydantic-ai.
    """

    def __init__(self, store: AsyncStateStore, *, scope: str = "pydantic-ai", claim: Claim | None = None) -> None:
        if ConversationStore is object:
            raise MisuseError.missing_extra("pydantic-ai", what="a conversation store for pydantic-ai")
        self._scope = scope
        self._talks = Talks(store, claim, label=type(self).__name__)

        self._records = TypeAdapter(ConversationRecord)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None."""
        key = self._key(conversation_id)
        if not valid.are_storable(key):
            return None

        def read(talks: Conversations) -> ConversationRecord | None:
            found = talks.sessions.find(key)
            return None if found is None else self._record(found.extra)

        return await self._talks.read(read)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return records, of all scopes or of one, the last saved first."""
        if not (scope is None or valid.is_identifier(scope)):
            return []

        def read(talks: Conversations) -> list[ConversationRecord]:
            where = SessionFilter(project=self._scope or None, user=scope)
            listed = iterate(talks.sessions.list, where=where, limit=_PAGE)
            found = [self._record(talks.sessions.get(one.id).extra) for one in listed]
            return sorted((one for one in found if one is not None), key=lambda one: one.updated_at, reverse=True)

        return (await self._talks.read(read))[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new entries, whole or not at all, if the stored one has the revision.

        Raises `ConversationConflict` where it has another one, or where the record ends with an entry that is not
        there, and `InvalidValue` for an id or a scope that cannot be stored.
        """
        key = valid.identifier("conversation_id", self._key(record.conversation_id))
        valid.optional("scope", record.scope)
        extra = {_RECORD: runtime.packed(json.loads(self._records.dump_json(record)))}
        new = [self._message(entry) for entry in new_entries]

        def write(talks: Conversations) -> None:
            stored = talks.sessions.find(key)
            self._refuse_other(record.conversation_id, None if stored is None else stored.extra, expected_revision)
            if stored is None:
                talks.sessions.create(NewSession(key, user=record.scope, project=self._scope or None, extra=extra))
            else:
                patch = SessionPatch(user=record.scope, extra=extra)
                talks.sessions.update(key, patch, expect_version=stored.version)
            for parent, line in _lines(new_entries, new):
                self._extend(talks, key, parent, line)
            for tip in dict.fromkeys([record.head_id, *record.branches]):
                if tip is not None:
                    self._extend(talks, key, tip, [])

        try:
            await self._talks.write(write)
        except (NotFound, StaleVersion, AlreadyExists) as error:
            raise ConversationConflict(record.conversation_id) from error

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with the entries that no other one has. Raises `ConversationConflict`."""
        key = self._key(conversation_id)
        if not valid.are_storable(key):
            raise ConversationConflict(conversation_id)

        def delete(talks: Conversations) -> None:
            stored = talks.sessions.find(key)
            if stored is None:
                raise ConversationConflict(conversation_id)
            talks.sessions.update(key, SessionPatch(name="deleted"), expect_version=stored.version)  # nobody else now
            self._refuse_other(conversation_id, stored.extra, expected_revision)
            talks.sessions.delete(key)

        try:
            await self._talks.write(delete)
        except (NotFound, StaleVersion) as error:
            raise ConversationConflict(conversation_id) from error

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. Raises `KeyError`."""
        if not valid.are_storable(entry_id):
            raise KeyError(entry_id)
        found = await self._talks.read(lambda talks: talks.messages.find(self._entry_key(entry_id)))
        if found is None or _ENTRY not in (found.extra or {}):
            raise KeyError(entry_id)
        return self._entry(found)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to this one, the last ``limit`` of them, page by page. Raises `KeyError`."""
        if head_id is None or limit == 0:
            return []
        if not valid.are_storable(head_id):
            raise KeyError(head_id)

        def read(talks: Conversations) -> list[ConversationEntry]:
            place = self._place(talks, head_id)
            if place is None:
                raise KeyError(head_id)
            first = 0 if limit is None else max(place.ord + 1 - limit, 0)
            found = []
            for one in iterate(talks.branches.history, place.branch_id, from_ord=first, limit=_PAGE):
                if one.ord > place.ord:
                    break
                found.append(self._entry(one.message))
            return found

        return await self._talks.read(read)

    # What they are made of, in a view or a transaction.

    def _extend(self, talks: Conversations, session_id: str, parent: str | None, new: Sequence[NewMessage]) -> None:
        """Add messages behind an entry, to a line of this session.

        Where none of its lines ends there, it gets another one, with a copy of the links before it: so no session has
        forks of another one, and each can be deleted. Raises `NotFound` for an entry that is not there.
        """
        place = None if parent is None else self._place(talks, parent, session_id)
        if parent is not None and place is None:
            raise NotFound("entry", parent)
        here = place is not None and place.session_id == session_id
        if here and not new:
            return
        if place is not None and here and place.ord + 1 == place.length:
            line = place.branch_id
        else:
            order = talks.progressions.create()
            line = talks.branches.create(session_id, NewBranch(order.id, progression_id=order.id)).id
            before = [] if place is None else self._up_to(talks, place)
            for at in range(0, len(before), _BATCH):
                talks.branches.append(line, before[at : at + _BATCH])
        for batch in conversing.batches(new):
            talks.branches.append(line, batch)

    def _up_to(self, talks: Conversations, place: _Place) -> list[str]:
        listed = iterate(talks.branches.order, place.branch_id, limit=_PAGE)
        return [one.message_id for one in listed if one.ord <= place.ord]

    def _place(self, talks: Conversations, entry_id: str, session_id: str = "") -> _Place | None:
        """Return where an entry stands, in this session if it does, and at the end of a line if it does.

        A line has the id of its order. An order that is no line is the pool of a session.
        """
        found = []
        for use in iterate(talks.progressions.containing, self._entry_key(entry_id), limit=_PAGE):
            branch = talks.branches.find(use.progression_id)
            if branch is not None:
                found.append(_Place(branch.id, branch.session_id, use.ord, branch.length))
        return max(found, key=lambda one: (one.session_id == session_id, one.ord + 1 == one.length), default=None)

    def _key(self, name: str) -> str:
        return composed(self._scope, conversing.CONVERSATION, name)

    def _entry_key(self, name: str) -> str:
        return composed(self._scope, conversing.ENTRY, name)

    def _refuse_other(self, conversation_id: str, extra: dict[str, Any] | None, expected: str | None) -> None:
        record = self._record(extra)
        if (None if record is None else record.revision) != expected:
            raise ConversationConflict(conversation_id)

    # Between pydantic's JSON, which says how bytes are written, and what is stored.

    def _record(self, extra: dict[str, Any] | None) -> ConversationRecord | None:
        stored = (extra or {}).get(_RECORD)
        return None if stored is None else self._records.validate_json(json.dumps(runtime.unpacked(stored)))

    def _message(self, entry: ConversationEntry) -> NewMessage:
        [content] = json.loads(ModelMessagesTypeAdapter.dump_json([entry.message]))
        facts = {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind}
        key, extra = self._entry_key(entry.id), {_ENTRY: facts}
        return NewMessage(entry.message.kind, runtime.packed(content), id=key, extra=extra)

    def _entry(self, stored: Message) -> ConversationEntry:
        [message] = ModelMessagesTypeAdapter.validate_json(json.dumps([runtime.unpacked(stored.content)]))
        return ConversationEntry(message=message, **(stored.extra or {})[_ENTRY])


def _lines(
    entries: Sequence[ConversationEntry], new: Sequence[NewMessage]
) -> list[tuple[str | None, list[NewMessage]]]:
    """Return the messages of entries that follow one another, and the entry that each line of them follows."""
    found: list[tuple[str | None, list[NewMessage]]] = []
    last = None
    for entry, message in zip(entries, new, strict=True):
        if found and entry.parent_id == last:
            found[-1][1].append(message)
        else:
            found.append((entry.parent_id, [message]))
        last = entry.id
    return found
