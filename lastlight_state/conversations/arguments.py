"""Argument groups of conversations: records to create, patches to apply, and filters to search by."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lastlight_state.conversations import runtime
from lastlight_state.conversations.words import (
    MODES,
    InvocationKind,
    Metric,
    Mode,
    SessionStatus,
    Source,
    SourceKind,
)
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.ids import new_id


@dataclass(frozen=True)
class NewMessage:
    """A message to store. It gets its id when it is constructed, without a store.

    ``content`` is any JSON value but None: a text, or items such as tool calls, function outputs, reasoning and image
    references. ``created_at`` is a datetime or a number of Unix seconds, which is returned exactly; the default is the
    time of storing. ``lion_class`` is the message's class in the runtime; the default is the class named in
    ``node_metadata``. ``embedding`` is a sequence of numbers, or their bytes. ``extra`` is an object of further fields,
    which have no column.
    """

    role: str
    content: Any
    id: str = field(default_factory=new_id)
    created_at: datetime | float | None = None
    sender: str | None = None
    recipient: str | None = None
    channel: str | None = None
    lion_class: str | None = None
    node_metadata: dict[str, Any] | None = None
    embedding: Sequence[float] | bytes | None = None
    extra: dict[str, Any] | None = None

    @classmethod
    def from_runtime(cls, mapping: Mapping[str, Any]) -> NewMessage:
        """Convert a runtime's dictionary, of mode ``db``, ``json`` or ``python``, to a message.

        Keys that match no field are kept in ``extra``, from where `Message.to_runtime` restores them.
        """
        return cls(**runtime.message_fields(mapping))

    def to_runtime(self, mode: Mode = "db") -> dict[str, Any]:
        """Convert this message to a runtime's dictionary of the given mode, as `Message.to_runtime` does."""
        return runtime.message_mapping(runtime.add_unix_time(vars(self)), valid.word("mode", mode, MODES))


@dataclass(frozen=True)
class Provenance:
    """The origin of a session, for display and filters: the playbook or agent that it runs, and its source."""

    playbook_name: str | None = None
    agent_name: str | None = None
    invocation_kind: InvocationKind | None = None
    show_topic: str | None = None
    show_play_name: str | None = None
    artifacts_path: str | None = None
    source_kind: SourceKind | None = "live"


@dataclass(frozen=True)
class SessionTimes:
    """The times of a session, for imports. ``created_at`` defaults to now, other times to derived values or unknown.

    ``ended_at_is_approximate=True`` means that the end was not recorded and ``ended_at`` is only the best guess.
    """

    created_at: datetime | float | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    last_message_at: datetime | None = None
    ended_at_is_approximate: bool | None = None


@dataclass(frozen=True)
class Reason:
    """The reason of a status change: a known code (None: the status's usual code), a source, an actor, and evidence."""

    code: str | None = None
    summary: str | None = None
    evidence: Any = None
    source: Source = "executor"
    actor: str | None = None


@dataclass(frozen=True)
class Limits:
    """The time limits from which the health of a running session is derived.

    A time equal to a limit is still within it. If the last heartbeat is older than ``heartbeat``, the process counts as
    dead. A session is running while its last activity is at most ``busy`` ago, and idle while it is at most ``idle``
    ago. For sessions that run flows, plays or engines, ``long_idle`` replaces ``idle``.
    """

    heartbeat: timedelta = timedelta(seconds=90)
    busy: timedelta = timedelta(minutes=60)
    idle: timedelta = timedelta(hours=6)
    long_idle: timedelta = timedelta(hours=12)


@dataclass(frozen=True)
class NewSession:
    """A session to create. Without ``progression_id`` it gets a new message pool of its own.

    If ``status`` is None, the session has no status; otherwise ``reason`` gives the reason for it.
    ``artifact_contract`` describes the artifacts that the session must deliver, ``artifact_verification`` the result of
    checking them.
    """

    id: str | None = None
    name: str | None = None
    user: str | None = None
    progression_id: str | None = None
    provenance: Provenance = Provenance()
    times: SessionTimes = SessionTimes()
    node_metadata: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None
    status: SessionStatus | None = None
    reason: Reason = Reason()
    project: str | None = None
    agent_session_id: str | None = None
    workflow_run_id: str | None = None
    artifact_contract: dict[str, Any] | None = None
    artifact_verification: dict[str, Any] | None = None


@dataclass(frozen=True)
class NewBranch:
    """A branch to create. ``system`` is its system message: a message to store, or the id of a stored message.

    If ``node_metadata`` has ``parent_branch_id`` and ``forked_at_ord``, the branch is a fork. ``provider``, ``model``
    and ``agent_name`` are shown in lists; they default to the values in ``node_metadata``.
    """

    id: str | None = None
    name: str | None = None
    user: str | None = None
    created_at: datetime | float | None = None
    node_metadata: dict[str, Any] | None = None
    progression_id: str | None = None
    system: NewMessage | str | None = None
    extra: dict[str, Any] | None = None
    provider: str | None = None
    model: str | None = None
    agent_name: str | None = None


@dataclass(frozen=True)
class BranchTree:
    """A branch with the messages of its whole history, in order. A fork's inherited messages are included.

    A message may occur twice. The system message need not be among the messages.
    """

    branch: NewBranch
    messages: Sequence[NewMessage] = ()


@dataclass(frozen=True)
class SessionTree:
    """A session with its branches and all their messages, as `store.conversations.trees` saves and loads it.

    The session and each branch must have an id.
    """

    session: NewSession
    branches: Sequence[BranchTree] = ()

    @classmethod
    def from_runtime(cls, mapping: Mapping[str, Any]) -> SessionTree:
        """Convert a runtime's dictionary, of mode ``db``, ``json`` or ``python``, to a session tree.

        ``branches``, and the ``messages`` of each branch, are a list, or a pile: an object with ``collections`` and a
        ``progression``. Keys that match no field, such as logs and model configuration, are kept in ``extra``.
        """
        fields, given = runtime.session_fields(mapping)
        branches = []
        for i, one in enumerate(given):
            of_branch, system, messages = runtime.branch_fields(one, f"branches[{i}]")
            if isinstance(system, Mapping):
                system = NewMessage(**runtime.message_fields(system, f"branches[{i}].system"))
            said = [
                NewMessage(**runtime.message_fields(message, f"branches[{i}].messages[{j}]"))
                for j, message in enumerate(messages)
            ]
            branches.append(BranchTree(NewBranch(**of_branch, system=system), tuple(said)))
        moment = SessionTimes(created_at=fields.pop("created_at"))
        return cls(NewSession(**fields, times=moment), tuple(branches))

    def to_runtime(self, mode: Mode = "db") -> dict[str, Any]:
        """Convert this tree to a runtime's dictionary, equal to the dictionary that `from_runtime` was given.

        In mode ``db`` the session's metadata have the key ``node_metadata``. Metadata of branches and messages have the
        key ``metadata`` in every mode, as the runtime reads and writes them. Provenance is not in the dictionary.
        """
        valid.word("mode", mode, MODES)
        return runtime.session_mapping(
            runtime.add_unix_time({**vars(self.session), "created_at": self.session.times.created_at}),
            [_branch_mapping(one) for one in self.branches],
            mode,
        )


def _branch_mapping(tree: BranchTree) -> dict[str, Any]:
    system = tree.branch.system
    return runtime.branch_mapping(
        runtime.add_unix_time(vars(tree.branch)),
        system.to_runtime("json") if isinstance(system, NewMessage) else system,
        [message.to_runtime("json") for message in tree.messages],
    )


@dataclass(frozen=True)
class SessionPatch:
    """The fields of a session to change. None clears a field; fields that are not given keep their values."""

    name: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    node_metadata: dict[str, Any] | UnsetType | None = UNSET
    extra: dict[str, Any] | UnsetType | None = UNSET
    playbook_name: str | UnsetType | None = UNSET
    agent_name: str | UnsetType | None = UNSET
    invocation_kind: InvocationKind | UnsetType | None = UNSET
    show_topic: str | UnsetType | None = UNSET
    show_play_name: str | UnsetType | None = UNSET
    artifacts_path: str | UnsetType | None = UNSET
    source_kind: SourceKind | UnsetType | None = UNSET
    started_at: datetime | UnsetType | None = UNSET
    ended_at: datetime | UnsetType | None = UNSET
    updated_at: datetime | UnsetType = UNSET
    project: str | UnsetType | None = UNSET
    agent_session_id: str | UnsetType | None = UNSET
    workflow_run_id: str | UnsetType | None = UNSET
    artifact_contract: dict[str, Any] | UnsetType | None = UNSET


@dataclass(frozen=True)
class BranchPatch:
    """The fields of a branch to change. None clears a field; fields that are not given keep their values."""

    name: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    node_metadata: dict[str, Any] | UnsetType | None = UNSET
    extra: dict[str, Any] | UnsetType | None = UNSET
    provider: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    agent_name: str | UnsetType | None = UNSET


@dataclass(frozen=True)
class MessageFilter:
    """A filter of messages by roles (any of them), sender, recipient, channel, class and time of creation.

    Messages must be created at or after ``since``, and before ``until``. An empty collection of roles matches nothing.
    """

    roles: Collection[str] | None = None
    sender: str | None = None
    recipient: str | None = None
    channel: str | None = None
    lion_class: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Search:
    """The metric that compares embeddings, and the least score of a result. A higher score means a nearer embedding.

    Under ``l2``, a score is the negated distance.
    """

    metric: Metric = "cosine"
    min_score: float | None = None


@dataclass(frozen=True)
class Within:
    """The scope of a message search: the pool of a session, the whole history of a branch, or a message order."""

    session_id: str | None = None
    branch_id: str | None = None
    progression_id: str | None = None


@dataclass(frozen=True)
class SessionFilter:
    """A filter of sessions by user, statuses (any of them), provenance, last update, project and related records.

    Sessions must be updated at or after ``updated_since``. An empty collection of statuses matches nothing.
    """

    invocation_kind: InvocationKind | None = None
    source_kind: SourceKind | None = None
    agent_name: str | None = None
    playbook_name: str | None = None
    show_topic: str | None = None
    show_play_name: str | None = None
    updated_since: datetime | None = None
    statuses: Collection[SessionStatus] | None = None
    project: str | None = None
    agent_session_id: str | None = None
    workflow_run_id: str | None = None
    user: str | None = None
