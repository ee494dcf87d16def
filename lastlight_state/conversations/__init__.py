"""Conversations: messages that are stored once each, message orders, sessions, branches and forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.db.repository import Face
from lastlight_state.lazy import Part, public

if TYPE_CHECKING:
    from lastlight_state.conversations.arguments import (
        BranchPatch as BranchPatch,
        BranchTree as BranchTree,
        Limits as Limits,
        MessageFilter as MessageFilter,
        NewBranch as NewBranch,
        NewMessage as NewMessage,
        NewSession as NewSession,
        Provenance as Provenance,
        Reason as Reason,
        Search as Search,
        SessionFilter as SessionFilter,
        SessionPatch as SessionPatch,
        SessionTimes as SessionTimes,
        SessionTree as SessionTree,
        Within as Within,
    )
    from lastlight_state.conversations.branches import Branches
    from lastlight_state.conversations.changes import Changes
    from lastlight_state.conversations.exchange import Exchange
    from lastlight_state.conversations.exchange.records import (
        Delivery as Delivery,
        Member as Member,
        Sent as Sent,
    )
    from lastlight_state.conversations.lifecycle import Lifecycle
    from lastlight_state.conversations.lifecycle_records import (
        Change as Change,
        NormalizedState as NormalizedState,
        StaleSession as StaleSession,
        Transition as Transition,
    )
    from lastlight_state.conversations.lineage import Lineage
    from lastlight_state.conversations.message_types import MessageTypes
    from lastlight_state.conversations.messages import Messages
    from lastlight_state.conversations.progressions import Progressions
    from lastlight_state.conversations.records import (
        Ancestor as Ancestor,
        Appended as Appended,
        Branch as Branch,
        BranchLink as BranchLink,
        BranchMessage as BranchMessage,
        BranchSummary as BranchSummary,
        ConversationSession as ConversationSession,
        Link as Link,
        Message as Message,
        MessageHit as MessageHit,
        MessageSummary as MessageSummary,
        MessageType as MessageType,
        MessageUse as MessageUse,
        Progression as Progression,
        ProgressionUse as ProgressionUse,
        SaveReport as SaveReport,
        SessionSummary as SessionSummary,
    )
    from lastlight_state.conversations.sessions import Sessions
    from lastlight_state.conversations.state import exit_code as exit_code, status_of_exit_code as status_of_exit_code
    from lastlight_state.conversations.trees import Trees
    from lastlight_state.conversations.vectors import Vectors
    from lastlight_state.conversations.vectors.records import (
        Chunk as Chunk,
        ChunkSummary as ChunkSummary,
        ChunkText as ChunkText,
        NewChunk as NewChunk,
        VectorHit as VectorHit,
        VectorIndex as VectorIndex,
        VectorNamespace as VectorNamespace,
    )

public(
    globals(),
    {
        "arguments": "BranchPatch BranchTree Limits MessageFilter NewBranch NewMessage NewSession Provenance "
        "Reason Search SessionFilter SessionPatch SessionTimes SessionTree Within",
        "exchange.records": "Delivery Member Sent",
        "vectors.records": "NewChunk Chunk ChunkSummary ChunkText VectorHit VectorIndex VectorNamespace",
        "records": "Ancestor Appended Branch BranchLink BranchMessage BranchSummary ConversationSession "
        "Link Message MessageHit MessageSummary MessageType MessageUse Progression "
        "ProgressionUse SaveReport SessionSummary",
        "lifecycle_records": "Change NormalizedState StaleSession Transition",
        "state": "exit_code status_of_exit_code",
    },
    "Conversations",
)


class Conversations(Face):
    """``store.conversations``"""

    #: Messages: each is stored once, and orders refer to it by its id.
    messages: Part[Messages] = Part("lastlight_state.conversations.messages.Messages")
    #: Message classes: the type names that runtimes give their messages.
    message_types: Part[MessageTypes] = Part("lastlight_state.conversations.message_types.MessageTypes")
    #: Message orders: lists of message ids.
    progressions: Part[Progressions] = Part("lastlight_state.conversations.progressions.Progressions")
    #: Sessions, each with the pool of its messages.
    sessions: Part[Sessions] = Part("lastlight_state.conversations.sessions.Sessions")
    #: Branches of sessions: appends and histories.
    branches: Part[Branches] = Part("lastlight_state.conversations.branches.Branches")
    #: Forks and ancestors of branches.
    lineage: Part[Lineage] = Part("lastlight_state.conversations.lineage.Lineage")
    #: Session trees: whole sessions, saved and loaded in one call.
    trees: Part[Trees] = Part("lastlight_state.conversations.trees.Trees")
    #: Chunks of text with their embeddings.
    vectors: Part[Vectors] = Part("lastlight_state.conversations.vectors.Vectors")
    #: Statuses of sessions, their history, and signs of life.
    lifecycle: Part[Lifecycle] = Part("lastlight_state.conversations.lifecycle.Lifecycle")
    #: Feeds of changes in sessions, for programs that follow a conversation.
    changes: Part[Changes] = Part("lastlight_state.conversations.changes.Changes")
    #: The message exchange: sending to inboxes, and taking and acknowledging deliveries.
    exchange: Part[Exchange] = Part("lastlight_state.conversations.exchange.Exchange")
