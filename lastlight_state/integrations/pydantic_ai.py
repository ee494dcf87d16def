"""A conversation store for pydantic-ai over ``store.conversations`` (extra ``pydantic-ai``).

::

    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.pydantic_ai import PydanticAIConversations

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        conversations = PydanticAIConversations(store)
        conversation = await conversations.load("ticket-17") or Conversation(conversation_id="ticket-17")
        await conversations.save(await agent.run("Release it?", conversation=conversation))

A conversation is stored as a session, with its record in the session's ``extra``. An entry is stored as a message, and
each line of entries as a branch. A cancelled call waits for the outcome of its write before it raises.
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
from lastlight_state.keys import compose_key
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
except ImportError:  # without pydantic-ai the module can be imported, but no store created
    ConversationStore = object

_RECORD, _ENTRY = "record", "entry"
#: Entries that one query reads, and entries that one write copies.
_PAGE, _BATCH = 500, 1_000


class _Place(NamedTuple):
    """The position of an entry: its branch, the session of that branch, its index, and the length of the branch."""

    branch_id: str
    session_id: str
    ord: int
    length: int


class PydanticAIConversations(ConversationStore):
    """A conversation store for pydantic-ai. The caller opens and closes the store.

    ``scope`` is the namespace of its conversations. A conversation has a scope of its own in pydantic-ai, such as a
    person; it is stored as the user of the session, for erasure. With a run's ``claim``, only the claim's holder may
    write: any other caller gets `ClaimLost`. Deleting a conversation deletes the entries that no other conversation
    uses. Raises `MisuseError` without pydantic-ai.
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
        """Return the records of one scope, or of all scopes, the last saved first."""
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
        """Store a record with its new entries in one transaction, if the stored record has the expected revision.

        Raises `ConversationConflict` for another revision, or if the record ends with an entry that does not exist.
        Raises `InvalidValue` for an id or scope that cannot be stored.
        """
        key = valid.identifier("conversation_id", self._key(record.conversation_id))
        valid.optional("scope", record.scope)
        extra = {_RECORD: runtime.pack_item(json.loads(self._records.dump_json(record)))}
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
        """Delete a conversation with the entries that no other conversation uses. Raises `ConversationConflict`."""
        key = self._key(conversation_id)
        if not valid.are_storable(key):
            raise ConversationConflict(conversation_id)

        def delete(talks: Conversations) -> None:
            stored = talks.sessions.find(key)
            if stored is None:
                raise ConversationConflict(conversation_id)
            talks.sessions.update(key, SessionPatch(name="deleted"), expect_version=stored.version)  # locks the session
            self._refuse_other(conversation_id, stored.extra, expected_revision)
            talks.sessions.delete(key)

        try:
            await self._talks.write(delete)
        except (NotFound, StaleVersion) as error:
            raise ConversationConflict(conversation_id) from error

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. Raises `KeyError` if it does not exist."""
        if not valid.are_storable(entry_id):
            raise KeyError(entry_id)
        found = await self._talks.read(lambda talks: talks.messages.find(self._entry_key(entry_id)))
        if found is None or _ENTRY not in (found.extra or {}):
            raise KeyError(entry_id)
        return self._entry(found)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to and including this one, oldest first, at most the last ``limit``.

        Raises `KeyError`.
        """
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

    # The parts of these methods that run inside a view or a transaction.

    def _extend(self, talks: Conversations, session_id: str, parent: str | None, new: Sequence[NewMessage]) -> None:
        """Append messages after an entry, to a branch of this session.

        If no branch of the session ends with that entry, a new branch is created, with copies of the references to the
        earlier entries. So no session forks another, and each can be deleted. Raises `NotFound` if the entry does not
        exist.
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
        """Return the position of an entry, preferably in this session, and within it preferably at the end of a branch.

        A branch of this adapter has the same id as its order. An order without a branch is the message list of a
        session.
        """
        found = []
        for use in iterate(talks.progressions.containing, self._entry_key(entry_id), limit=_PAGE):
            branch = talks.branches.find(use.progression_id)
            if branch is not None:
                found.append(_Place(branch.id, branch.session_id, use.ord, branch.length))
        return max(found, key=lambda one: (one.session_id == session_id, one.ord + 1 == one.length), default=None)

    def _key(self, name: str) -> str:
        return compose_key(self._scope, conversing.CONVERSATION, name)

    def _entry_key(self, name: str) -> str:
        return compose_key(self._scope, conversing.ENTRY, name)

    def _refuse_other(self, conversation_id: str, extra: dict[str, Any] | None, expected: str | None) -> None:
        record = self._record(extra)
        if (None if record is None else record.revision) != expected:
            raise ConversationConflict(conversation_id)

    # Conversion between pydantic's JSON, which encodes bytes in its own way, and the stored form.

    def _record(self, extra: dict[str, Any] | None) -> ConversationRecord | None:
        stored = (extra or {}).get(_RECORD)
        return None if stored is None else self._records.validate_json(json.dumps(runtime.unpack_item(stored)))

    def _message(self, entry: ConversationEntry) -> NewMessage:
        [content] = json.loads(ModelMessagesTypeAdapter.dump_json([entry.message]))
        facts = {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind}
        key, extra = self._entry_key(entry.id), {_ENTRY: facts}
        return NewMessage(entry.message.kind, runtime.pack_item(content), id=key, extra=extra)

    def _entry(self, stored: Message) -> ConversationEntry:
        [message] = ModelMessagesTypeAdapter.validate_json(json.dumps([runtime.unpack_item(stored.content)]))
        return ConversationEntry(message=message, **(stored.extra or {})[_ENTRY])


def _lines(
    entries: Sequence[ConversationEntry], new: Sequence[NewMessage]
) -> list[tuple[str | None, list[NewMessage]]]:
    """Group entries that follow one another into lines.

    Return, for each line, the preceding entry and the line's messages.
    """
    found: list[tuple[str | None, list[NewMessage]]] = []
    last = None
    for entry, message in zip(entries, new, strict=True):
        if found and entry.parent_id == last:
            found[-1][1].append(message)
        else:
            found.append((entry.parent_id, [message]))
        last = entry.id
    return found
