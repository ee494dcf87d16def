"""Argument groups of conversations: what is stored, what is changed, what is asked for."""

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
    """A message to store. Needs no store to be made: its id is there from the start.

    ``content`` is any JSON but None: a text, or items such as tool calls, function outputs, reasoning and references to
    images. ``created_at`` is a datetime or a number of Unix seconds, which comes back exactly; without it the time at
    which it is stored. ``lion_class`` is the class in the runtime, else that in ``node_metadata``. ``embedding`` is a
    sequence of numbers, or their bytes. ``extra`` is an object of whatever has no column.
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
        """Return the message of a runtime's dictionary, of mode ``db``, ``json`` or ``python``.

        Keys without a field are kept in ``extra``; `Message.to_runtime` gives all of them back.
        """
        return cls(**runtime.message_fields(mapping))

    def to_runtime(self, mode: Mode = "db") -> dict[str, Any]:
        """Return the runtime's dictionary of this message, as `Message.to_runtime` gives it."""
        return runtime.message_mapping(runtime.timed(vars(self)), valid.word("mode", mode, MODES))


@dataclass(frozen=True)
class Provenance:
    """The provenance of a session, for display and filters: what it runs and where it comes from."""

    playbook_name: str | None = None
    agent_name: str | None = None
    invocation_kind: InvocationKind | None = None
    show_topic: str | None = None
    show_play_name: str | None = None
    artifacts_path: str | None = None
    source_kind: SourceKind | None = "live"


@dataclass(frozen=True)
class SessionTimes:
    """The times of a session, for imports. What is not given is now, or not known.

    ``ended_at_is_approximate`` says that nobody saw the end, and ``ended_at`` is the best guess.
    """

    created_at: datetime | float | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    last_message_at: datetime | None = None
    ended_at_is_approximate: bool | None = None


@dataclass(frozen=True)
class Reason:
    """Why a status changes: a known code (None for the usual one), who changes it, and what the caller knows of it."""

    code: str | None = None
    summary: str | None = None
    evidence: Any = None
    source: Source = "executor"
    actor: str | None = None


@dataclass(frozen=True)
class Limits:
    """After how long without a sign of life a running session counts as what; exactly so long is still within.

    ``heartbeat``: a heartbeat that is older is that of a dead process. ``busy``: until then it counts as running.
    ``idle``, and ``long_idle`` for those that run flows, plays and engines: until then it counts as idle.
    """

    heartbeat: timedelta = timedelta(seconds=90)
    busy: timedelta = timedelta(minutes=60)
    idle: timedelta = timedelta(hours=6)
    long_idle: timedelta = timedelta(hours=12)


@dataclass(frozen=True)
class NewSession:
    """A session to create. Without ``progression_id`` it gets a pool of its own.

    ``status`` is None where nobody states one; ``reason`` says why it has the one that is given.
    ``artifact_contract`` says what the session must deliver, ``artifact_verification`` what came of it.
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
    """A branch to create. ``system`` is its system message: a message to store, or the id of one that is stored.

    With ``parent_branch_id`` and ``forked_at_ord`` in ``node_metadata`` it is a fork. ``provider``, ``model`` and
    ``agent_name`` are for lists, by default those of ``node_metadata``.
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
    """A branch with the messages of its whole history in their order, those that a fork inherits included.

    A message may stand there twice. The system message need not stand there.
    """

    branch: NewBranch
    messages: Sequence[NewMessage] = ()


@dataclass(frozen=True)
class SessionTree:
    """A session with its branches and all their messages, as `store.conversations.trees` saves and loads it.

    The session and each branch have their ids.
    """

    session: NewSession
    branches: Sequence[BranchTree] = ()

    @classmethod
    def from_runtime(cls, mapping: Mapping[str, Any]) -> SessionTree:
        """Return the tree of a runtime's dictionary, of mode ``db``, ``json`` or ``python``.

        ``branches``, and the ``messages`` of each, are a list, or a pile: ``collections`` with a ``progression``. What
        has no field, such as logs and the configuration of models, is kept in ``extra``.
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
        """Return the runtime's dictionary of this tree, equal to what `from_runtime` took.

        In mode ``db`` the metadata of the session are ``node_metadata``; those of all that is in it are ``metadata``
        in every mode, as the runtime writes and reads them. Provenance is no part of the dictionary.
        """
        valid.word("mode", mode, MODES)
        return runtime.session_mapping(
            runtime.timed({**vars(self.session), "created_at": self.session.times.created_at}),
            [_branch_mapping(one) for one in self.branches],
            mode,
        )


def _branch_mapping(tree: BranchTree) -> dict[str, Any]:
    system = tree.branch.system
    return runtime.branch_mapping(
        runtime.timed(vars(tree.branch)),
        system.to_runtime("json") if isinstance(system, NewMessage) else system,
        [message.to_runtime("json") for message in tree.messages],
    )


@dataclass(frozen=True)
class SessionPatch:
    """The fields of a session to change: None clears a field, and what is not given stays."""

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
    """The fields of a branch to change: None clears a field, and what is not given stays."""

    name: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    node_metadata: dict[str, Any] | UnsetType | None = UNSET
    extra: dict[str, Any] | UnsetType | None = UNSET
    provider: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    agent_name: str | UnsetType | None = UNSET


@dataclass(frozen=True)
class MessageFilter:
    """A filter of messages: of any of these roles, of a sender, recipient, channel or class, created from ``since`` on
    and before ``until``. An empty collection of roles matches nothing.
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
    """The way to compare embeddings, and the least score to find. A greater score is nearer.

    ``l2`` scores are distances, negated.
    """

    metric: Metric = "cosine"
    min_score: float | None = None


@dataclass(frozen=True)
class Within:
    """The place of a search for messages: the pool of a session, the whole history of a branch, or an order."""

    session_id: str | None = None
    branch_id: str | None = None
    progression_id: str | None = None


@dataclass(frozen=True)
class SessionFilter:
    """A filter of sessions: of a user, of any of these statuses, by what they belong to,
    updated from ``updated_since`` on.

    An empty collection of statuses matches nothing.
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
