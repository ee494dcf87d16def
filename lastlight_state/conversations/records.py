"""Records of conversations."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.conversations import runtime, similarity, words
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Record, needed_columns

#: Stands for the position of a pointer, which has none. Below every position.
NO_ORD = -1


class MessageType(Record):
    """A message class, with its number."""

    type_id: int
    lion_class: str


class MessageSummary(Record):
    """A message as lists show it: without content, metadata, embedding and extra.

    ``lion_class`` is the message's class in its runtime, ``__unknown__`` if it has none. ``created_at_unix`` is the
    number that the caller gave. ``revision`` counts the message's changes; ``revised_at`` is the time of the last one.
    """

    id: str
    created_at: datetime
    created_at_unix: float | None
    sender: str | None
    recipient: str | None
    channel: str | None
    role: str
    lion_class: str
    revision: int
    revised_at: datetime | None


class Message(MessageSummary):
    """A whole message. ``embedding`` is a tuple of 32-bit floats."""

    embedding_model: str | None
    node_metadata: dict[str, Any] | None
    extra: dict[str, Any] | None
    content: Any
    embedding: tuple[float, ...] | None

    @classmethod
    def of(cls, values: Any) -> Self:
        if values["embedding"] is not None:
            values["embedding"] = similarity.unpack(values["embedding"])
        return super().of(values)

    def to_runtime(self, mode: words.Mode = "db") -> dict[str, Any]:
        """Convert this message to a runtime's dictionary, equal to the one that `NewMessage.from_runtime` was given.

        Known keys without a value are left out; ``created_at`` is in Unix seconds.
        """
        return runtime.message_mapping(self.__dict__, valid.word("mode", mode, words.MODES))


class MessageHit(Record):
    """A message that a search found, with its similarity score: a greater score is nearer."""

    message: Message
    score: float


class MessageUse(Record):
    """A reference to a message: a position ``ord`` in a progression, or a pointer of a session or branch.

    ``kind`` is ``progression``, ``system_msg``, ``first_msg`` or ``last_msg``; ``id`` is the id of the progression,
    branch or session. ``ord`` is None for a pointer.
    """

    kind: str
    id: str
    ord: int | None

    @classmethod
    def of(cls, values: Any) -> Self:
        if values["ord"] == NO_ORD:
            values["ord"] = None
        return super().of(values)


class Progression(Record):
    """A message order without its messages. Its own links have the positions ``start_ord`` to ``next_ord - 1``."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    name: str | None
    start_ord: int
    next_ord: int
    version: int
    node_metadata: dict[str, Any] | None
    extra: dict[str, Any] | None

    @property
    def size(self) -> int:
        """Return the number of the progression's own links, without inherited ones."""
        return self.next_ord - self.start_ord


class Link(Record):
    """A message at a position of a progression."""

    ord: int
    message_id: str


class ProgressionUse(Record):
    """A progression that holds a message, with the message's position ``ord``."""

    progression_id: str
    ord: int


class Appended(Record):
    """The result of an append: the first new position, and the counts of messages appended and skipped.

    ``first_ord`` is None if nothing was appended.
    """

    first_ord: int | None
    appended: int
    skipped: int


class SessionSummary(Record):
    """A session as lists show it. ``message_count`` is the size of its pool, repetitions included.

    ``status`` is None if the session has no status. ``owner`` sent the last heartbeat. ``change_seq`` is the number of
    the last entry in its feed, ``transition_seq`` the number of its last status change. A session with a
    ``hold_reason`` is kept by every prune. If ``ended_at_is_approximate``, ``ended_at`` is a guess from the last known
    time.
    """

    id: str
    created_at: datetime
    created_at_unix: float | None
    name: str | None
    user: str | None
    progression_id: str
    first_msg_id: str | None
    last_msg_id: str | None
    updated_at: datetime
    playbook_name: str | None
    agent_name: str | None
    invocation_kind: str | None
    show_topic: str | None
    show_play_name: str | None
    artifacts_path: str | None
    source_kind: str | None
    started_at: datetime | None
    ended_at: datetime | None
    last_message_at: datetime | None
    version: int
    status: str | None
    status_reason: str | None
    transition_seq: int
    change_seq: int
    owner: str | None
    heartbeat_at: datetime | None
    ended_at_is_approximate: bool
    project: str | None
    agent_session_id: str | None
    workflow_run_id: str | None
    hold_reason: str | None
    message_count: int
    branch_count: int


class ConversationSession(SessionSummary):
    """A whole session.

    ``artifact_contract`` describes what it must deliver, ``artifact_verification`` the result of the check.
    """

    node_metadata: dict[str, Any] | None
    extra: dict[str, Any] | None
    artifact_contract: dict[str, Any] | None
    artifact_verification: dict[str, Any] | None


class BranchSummary(Record):
    """A branch as lists show it. ``length`` counts the messages of its whole history, inherited ones included."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    user: str | None
    name: str | None
    session_id: str
    progression_id: str
    system_msg_id: str | None
    parent_branch_id: str | None
    forked_at_ord: int | None
    fork_depth: int
    status: str | None
    started_at: datetime | None
    ended_at: datetime | None
    provider: str | None
    model: str | None
    agent_name: str | None
    length: int


class Branch(BranchSummary):
    """A whole branch. The configuration of its agent is in ``node_metadata``."""

    node_metadata: dict[str, Any] | None
    extra: dict[str, Any] | None


class BranchLink(Record):
    """A position of a branch's history: the message's id, and the branch to which the message was appended."""

    ord: int
    branch_id: str
    message_id: str


class BranchMessage(Record):
    """A position of a branch's history with its message, and the branch to which the message was appended."""

    ord: int
    branch_id: str
    message: Message

    _computed = frozenset({"message"})
    _consumed = frozenset(needed_columns(Message))

    @classmethod
    def of(cls, values: Any) -> Self:
        ord_, branch_id = values.pop("ord"), values.pop("branch_id")
        return super().of({"ord": ord_, "branch_id": branch_id, "message": Message.of(values)})


class SaveReport(Record):
    """The result of `trees.save`: the session's id, and counts of what was written.

    ``session_id`` is the tree's id, or the id of the stored session that was continued. ``fields_changed`` counts
    sessions and branches whose fields, other than the message order, were changed.
    """

    session_id: str
    session_created: bool
    branches_created: int
    fields_changed: int
    messages_created: int
    messages_revised: int
    links_added: int
    systems_replaced: int
    orders_replaced: int

    @property
    def changed(self) -> bool:
        """True if anything was written."""
        return any(value for name, value in self if name != "session_id")


class Ancestor(Record):
    """An ancestor of a branch. It contributes positions ``from_ord`` to ``until_ord - 1`` to the branch's history."""

    branch_id: str
    from_ord: int
    until_ord: int
