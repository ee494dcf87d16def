"""What adapters share: where they read and write, and how much at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from lastlight_state import codec
from lastlight_state.aio import AsyncStateStore
from lastlight_state.conversations import Conversations, NewMessage
from lastlight_state.domains import Transaction, View
from lastlight_state.errors import AlreadyExists
from lastlight_state.workflows import Claim

T = TypeVar("T")

# The words behind the scope in the keys of adapters. In one table no two adapters share a word: so an adapter reaches
# nothing of another one, also where both were given the same scope.

#: Ids of conversations and their messages: OpenAI's sessions, and the conversations and entries of pydantic-ai.
SESSION, CONVERSATION, ENTRY = "session", "conversation", "entry"
#: Scopes of states: A2A's tasks with their versions, events and webhooks, fasta2a's tasks and contexts, events of MCP
#: servers, LangGraph's items and embeddings, and those of ADK.
TASKS, VERSIONS, EVENTS, WEBHOOKS = "tasks", "versions", "events", "webhooks"
FAST_TASKS, FAST_CONTEXTS = "fast-tasks", "fast-contexts"
MCP_EVENTS = "mcp-events"
ITEMS, VECTORS = "items", "vectors"
ADK_APP, ADK_USER, ADK_SESSIONS, ADK_SESSION = "app", "user", "sessions", "session"

#: How much one append takes: so many messages, and bytes of their contents.
_MOST, _MOST_BYTES = 1_000, 24 * 1024 * 1024


class Calls:
    """The calls of an adapter: views and transactions of a store. With a claim only the claim's holder writes."""

    def __init__(self, store: AsyncStateStore, claim: Claim | None, *, label: str) -> None:
        self._store = store
        self._claim = claim
        self._label = label

    def view(self, work: Callable[[View], T]) -> Awaitable[T]:
        """Run a function that reads one moment, on a worker thread, and return its result."""

        def viewed() -> T:
            with self._store._store.view() as view:
                return work(view)

        return self._store._runner.read(viewed)

    def transact(self, work: Callable[[Transaction], T], *, repeatable: bool = False) -> Awaitable[T]:
        """Run a function in a transaction of its own, which is whole or not at all, and return its result.

        ``repeatable`` says that a second run of it finds what the first one wrote; then it is also run again where
        another writer has just made what it was about to make. A caller that is cancelled learns the outcome first.
        Raises `ClaimLost` where another runner has the claim by now.
        """

        def written() -> T:
            return self._store._store.run(work, claim=self._claim, label=self._label, repeatable=repeatable)

        def written_at_last() -> T:
            try:
                return written()
            except AlreadyExists:
                return written()

        return self._store._runner.write(written_at_last if repeatable else written)


class Talks(Calls):
    """The conversations of a store, for an adapter that needs nothing else of it."""

    def read(self, work: Callable[[Conversations], T]) -> Awaitable[T]:
        """Run a function over the conversations as `view` does."""
        return self.view(lambda view: work(view.conversations))

    def write(self, work: Callable[[Conversations], T], *, repeatable: bool = False) -> Awaitable[T]:
        """Run a function over the conversations as `transact` does."""
        return self.transact(lambda tx: work(tx.conversations), repeatable=repeatable)


def batches(messages: Sequence[NewMessage]) -> Iterator[list[NewMessage]]:
    """Give messages in pieces that one append takes."""
    batch: list[NewMessage] = []
    size = 0
    for one in messages:
        added = len(codec.encode_bytes("content", one.content))
        if batch and (len(batch) == _MOST or size + added > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += added
    if batch:
        yield batch
