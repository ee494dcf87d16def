"""Mailboxes: all messages between one host and the agent of one session, in two SQLite files.

Only one side writes each file, so they work across container, VM and network mounts. The files have the format of the
original program, so that it can be on either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.files.mailbox.agent import AgentMailbox as AgentMailbox
    from lastlight_state.files.mailbox.arguments import (
        Attachment as Attachment,
        Deliver as Deliver,
        NewDestination as NewDestination,
        NewMessage as NewMessage,
        Origin as Origin,
        Routing as Routing,
        StalePolicy as StalePolicy,
        When as When,
        WhenChange as WhenChange,
    )
    from lastlight_state.files.mailbox.face import Mailboxes as Mailboxes
    from lastlight_state.files.mailbox.folder import (
        heartbeat_path as heartbeat_path,
        inbound_db_path as inbound_db_path,
        inbox_dir as inbox_dir,
        outbound_db_path as outbound_db_path,
        outbox_dir as outbox_dir,
        session_dir as session_dir,
    )
    from lastlight_state.files.mailbox.host import HostMailbox as HostMailbox
    from lastlight_state.files.mailbox.host.outbox import Undeliverable as Undeliverable
    from lastlight_state.files.mailbox.records import (
        Batch as Batch,
        Claim as Claim,
        Delivery as Delivery,
        Destination as Destination,
        DueMessage as DueMessage,
        Ensured as Ensured,
        Finding as Finding,
        MailboxInfo as MailboxInfo,
        MailboxStatus as MailboxStatus,
        MessageIn as MessageIn,
        MessageInSummary as MessageInSummary,
        MessageOut as MessageOut,
        MessageOutSummary as MessageOutSummary,
        MessageRef as MessageRef,
        OutboxFile as OutboxFile,
        OutboxFiles as OutboxFiles,
        StateEntry as StateEntry,
        Task as Task,
        TaskSummary as TaskSummary,
    )
    from lastlight_state.files.mailbox.reports import (
        AdvanceReport as AdvanceReport,
        Assessment as Assessment,
        DrainReport as DrainReport,
        PruneReport as PruneReport,
        ReleaseReport as ReleaseReport,
        StartReport as StartReport,
        SweepReport as SweepReport,
        SyncReport as SyncReport,
    )

public(
    globals(),
    {
        "agent": "AgentMailbox",
        "arguments": "Attachment Deliver NewDestination NewMessage Origin Routing StalePolicy When WhenChange",
        "face": "Mailboxes",
        "folder": "heartbeat_path inbound_db_path inbox_dir outbound_db_path outbox_dir session_dir",
        "host": "HostMailbox",
        "host.outbox": "Undeliverable",
        "records": "Batch Claim Delivery Destination DueMessage Ensured Finding MailboxInfo MailboxStatus MessageIn "
        "MessageInSummary MessageOut MessageOutSummary MessageRef OutboxFile OutboxFiles StateEntry Task "
        "TaskSummary",
        "reports": "AdvanceReport Assessment DrainReport PruneReport ReleaseReport StartReport SweepReport SyncReport",
    },
)
