"""A session for the OpenAI Agents SDK over ``store.conversations`` (extra ``openai-agents``).

::

    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.openai_agents import OpenAIAgentsSession

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        session = OpenAIAgentsSession("ticket-17", store)
        result = await Runner.run(agent, "Release it?", session=session)

A session of the SDK is stored as a session with one branch, and an item as a message. The branch uses the session's own
list of messages. A cancelled call waits for the outcome of its write before it raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from lastlight_state.aio import AsyncStateStore
from lastlight_state.conversations import Conversations, NewBranch, NewMessage, NewSession, runtime
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import iterate
from lastlight_state.errors import MisuseError, NotFound, StaleVersion
from lastlight_state.integrations import conversing
from lastlight_state.integrations.conversing import Talks
from lastlight_state.keys import compose_key
from lastlight_state.workflows import Claim

try:
    from agents.memory import SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
except ImportError:  # without the SDK the module can be imported, but no session created
    SessionSettings = None

#: Items that one query reads, and items that one write puts back.
_PAGE, _BATCH = 500, 1_000
#: The methods that the SDK requires of every session.
_VERBS = ("get_items", "add_items", "pop_item", "clear_session")


class CompactionSnapshot(NamedTuple):
    """The last items of a session, for the SDK's compaction.

    ``complete`` is True if the session has no earlier items. ``replace_suffix`` replaces the items from an index on, in
    one transaction. If the session was changed after the snapshot, it returns False and changes nothing.
    """

    items: list[Any]
    complete: bool
    replace_suffix: Callable[[int, list[Any]], Awaitable[bool]]


class _End(NamedTuple):
    """The last items of a session, the position of the first one, the session's length, and its order's version."""

    items: list[Any]
    first: int
    length: int
    version: int


class OpenAIAgentsSession:
    """A session of the OpenAI Agents SDK. The caller opens and closes the store.

    ``session_settings`` are the SDK's, possibly as a dictionary. ``scope`` is the namespace of its sessions. ``user``
    is the person to whom the session belongs, for erasure. Scope and session id have at most 247 bytes together.
    Content that JSON allows and databases refuse, such as a NUL character, is read back unchanged. With a run's
    ``claim``, only the claim's holder may change the session: any other caller gets `ClaimLost`. Raises `MisuseError`
    without the SDK.
    """

    def __init__(
        self,
        session_id: str,
        store: AsyncStateStore,
        *,
        session_settings: Any = None,
        scope: str = "openai-agents",
        user: str | None = None,
        claim: Claim | None = None,
    ) -> None:
        if SessionSettings is None:
            raise MisuseError.missing_extra("openai-agents", what="a session for the OpenAI Agents SDK")
        self.session_id = session_id
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or {})
        self._key = _key(scope, session_id)
        self._scope = scope
        self._user = user
        self._talks = Talks(store, claim, label=type(self).__name__)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the last ``limit`` items, oldest first.

        Without ``limit``, the limit in the session's settings is used.
        """
        most = resolve_session_limit(limit, self.session_settings)
        return (await self._talks.read(lambda talks: self._tail(talks, most))).items

    async def add_items(self, items: Sequence[Any]) -> None:
        """Append items to the session, all or none."""
        new = _messages(items)
        if new:
            await self._talks.write(lambda talks: self._append(talks, new), repeatable=True)

    async def pop_item(self) -> Any | None:
        """Remove the last item and return it. Returns None if the session is empty."""
        return await self._pop_item_with_validation()

    async def clear_session(self) -> None:
        """Delete the session with all its items."""
        if valid.are_storable(self._key):
            await self._talks.write(lambda talks: talks.sessions.delete(self._key))

    # Private hooks of the SDK for compaction and encryption. Sessions without them are cleared and refilled.

    async def _pop_item_with_validation(self, validate: Callable[[Any], object] | None = None) -> Any | None:
        def pop(talks: Conversations) -> Any | None:
            try:
                taken = talks.branches.pop(self._key)
            except NotFound:
                return None
            item = runtime.unpack_item(taken[0].message.content) if taken else None
            if taken and validate is not None:
                validate(item)
            return item

        return await self._talks.write(pop) if valid.are_storable(self._key) else None

    async def _atomic_replace_items(self, items: Sequence[Any]) -> bool:
        if self._is_changed():
            return False
        new = _messages(items)
        await self._talks.write(lambda talks: self._replace(talks, 0, new))
        return True

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> CompactionSnapshot | None:
        if self._is_changed():
            return None
        end = await self._talks.read(lambda talks: self._tail(talks, limit))
        if len(end.items) != end.length - end.first:
            return None  # an item cannot be read

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            new = _messages(output)
            if start >= len(end.items):
                return False

            def replace(talks: Conversations) -> None:
                self._replace(talks, end.first + start, new, end.version)
                if prune_prefix is not None:
                    self._drop_beginning(talks, end.first + start, prune_prefix)

            try:
                await self._talks.write(replace)
            except (NotFound, StaleVersion):
                return False
            return True

        return CompactionSnapshot(end.items, end.first == 0, replace_suffix)

    def _is_changed(self) -> bool:
        """True if a subclass overrides a public method. The SDK's private hooks would bypass the override."""
        return any(getattr(type(self), name) is not getattr(OpenAIAgentsSession, name) for name in _VERBS)

    # The parts of these methods that run inside a view or a transaction.

    def _tail(self, talks: Conversations, limit: int | None) -> _End:
        branch = talks.branches.find(self._key) if valid.are_storable(self._key) else None
        if branch is None or limit == 0:
            return _End([], 0, 0, 0)
        first = 0 if limit is None or limit < 0 else max(branch.length - limit, 0)
        version = talks.progressions.get(branch.progression_id).version
        items = [runtime.unpack_item(one) for one in talks.branches._contents(self._key, first, branch.length)]
        return _End(items, first, branch.length, version)

    def _append(self, talks: Conversations, new: Sequence[NewMessage]) -> None:
        if talks.branches.find(self._key) is None:
            session = talks.sessions.ensure(NewSession(self._key, user=self._user, project=self._scope or None))
            talks.branches.ensure(self._key, NewBranch(self._key, progression_id=session.progression_id))
        for batch in conversing.batches(new):
            talks.branches.append(self._key, batch)

    def _replace(self, talks: Conversations, first: int, new: Sequence[NewMessage], version: int | None = None) -> None:
        branch = talks.branches.find(self._key)
        if branch is not None:
            talks.progressions.truncate(branch.progression_id, first, expect_version=version)
        elif version is not None:
            raise NotFound("branch", self._key)
        if new:
            self._append(talks, new)

    def _drop_beginning(self, talks: Conversations, until: int, is_dropped: Callable[[Any], bool]) -> None:
        """Remove the first items as long as ``is_dropped`` accepts them, at most up to position ``until``."""
        first = 0
        for one in iterate(talks.branches.history, self._key, limit=_PAGE):
            if first == until or one.ord != first or not is_dropped(runtime.unpack_item(one.message.content)):
                break
            first += 1
        if first:
            order = talks.branches.get(self._key).progression_id
            kept = [one.message_id for one in iterate(talks.progressions.ids, order, after_ord=first - 1, limit=_PAGE)]
            talks.progressions.truncate(order, 0)
            for at in range(0, len(kept), _BATCH):
                talks.branches.append(self._key, kept[at : at + _BATCH], on_repeat="keep")


def _key(scope: str, session_id: str) -> str:
    """Return the id that both the stored session and its branch have."""
    return compose_key(scope, conversing.SESSION, session_id)


def _messages(items: Sequence[Any]) -> list[NewMessage]:
    return [NewMessage(runtime.role_of(item), runtime.pack_item(item)) for item in items]
