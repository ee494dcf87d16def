"""Code that the adapters share: access to a store, the words in their keys, and the batch size of appends."""

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

# The words that follow the scope in adapters' keys. No two adapters share a word within one table, so that no adapter
# reaches another's rows, even with the same scope.

#: For ids of conversations and messages: sessions of OpenAI Agents, conversations and entries of pydantic-ai.
SESSION, CONVERSATION, ENTRY = "session", "conversation", "entry"
#: For scopes of states: A2A's tasks with their versions, events and webhooks; fasta2a's tasks and contexts; events of
#: MCP servers; LangGraph's items and embeddings; ADK's states.
TASKS, VERSIONS, EVENTS, WEBHOOKS = "tasks", "versions", "events", "webhooks"
FAST_TASKS, FAST_CONTEXTS = "fast-tasks", "fast-contexts"
MCP_EVENTS = "mcp-events"
ITEMS, VECTORS = "items", "vectors"
ADK_APP, ADK_USER, ADK_SESSIONS, ADK_SESSION = "app", "user", "sessions", "session"

#: Limits of one append: the number of messages, and the bytes of their contents.
_MOST, _MOST_BYTES = 1_000, 24 * 1024 * 1024


class Calls:
    """The views and transactions through which an adapter uses a store.

    With a claim, only the claim's holder may write.
    """

    def __init__(self, store: AsyncStateStore, claim: Claim | None, *, label: str) -> None:
        self._store = store
        self._claim = claim
        self._label = label

    def view(self, work: Callable[[View], T]) -> Awaitable[T]:
        """Run a function with a view of the store, on a worker thread, and return its result."""

        def run_in_view() -> T:
            with self._store._store.view() as view:
                return work(view)

        return self._store._runner.read(run_in_view)

    def transact(self, work: Callable[[Transaction], T], *, repeatable: bool = False) -> Awaitable[T]:
        """Run a function in a transaction of its own on a worker thread, and return its result.

        ``repeatable=True`` means that the function finds what an earlier run of it committed, so that it may be
        retried. It is then also run again if another writer has just created the same row. If the caller is cancelled,
        it first waits for the outcome. Raises `ClaimLost` if another runner now holds the claim.
        """

        def run_in_transaction() -> T:
            return self._store._store.run(work, claim=self._claim, label=self._label, repeatable=repeatable)

        def written_at_last() -> T:
            try:
                return run_in_transaction()
            except AlreadyExists:
                return run_in_transaction()

        return self._store._runner.write(written_at_last if repeatable else run_in_transaction)


class Talks(Calls):
    """An adapter's access to the conversations of a store, without its other domains."""

    def read(self, work: Callable[[Conversations], T]) -> Awaitable[T]:
        """Run a function with the conversations in a view, and return its result."""
        return self.view(lambda view: work(view.conversations))

    def write(self, work: Callable[[Conversations], T], *, repeatable: bool = False) -> Awaitable[T]:
        """Run a function with the conversations in a transaction, and return its result."""
        return self.transact(lambda tx: work(tx.conversations), repeatable=repeatable)


def batches(messages: Sequence[NewMessage]) -> Iterator[list[NewMessage]]:
    """Split messages into batches that are small enough for one append each."""
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
