"""Reports and repairs that concern several domains at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.db.repository import Face
from lastlight_state.lazy import Part, public

if TYPE_CHECKING:
    from lastlight_state.files.agent_log import AgentLog
    from lastlight_state.maintenance.backup import Backup as Backup
    from lastlight_state.maintenance.backup.restoring import BackedFile as BackedFile, Manifest as Manifest
    from lastlight_state.maintenance.bundles import Bundles as Bundles
    from lastlight_state.maintenance.bundles.records import (
        Bundle as Bundle,
        BundlePart as BundlePart,
        LoadedBundle as LoadedBundle,
    )
    from lastlight_state.maintenance.chats import ChatMessages as ChatMessages, Chats as Chats, ChatThread as ChatThread
    from lastlight_state.maintenance.chats.agent_sessions import (
        AgentSession as AgentSession,
        AgentSessionPage as AgentSessionPage,
        AgentSessions as AgentSessions,
        SessionExecution as SessionExecution,
    )
    from lastlight_state.maintenance.copy import Copy as Copy
    from lastlight_state.maintenance.copy.tables import (
        CopiedTable as CopiedTable,
        CopyPlan as CopyPlan,
        CopyProgress as CopyProgress,
        CopyReport as CopyReport,
    )
    from lastlight_state.maintenance.doctor import Doctor as Doctor
    from lastlight_state.maintenance.doctor.check import (
        Finding as Finding,
        Report as Report,
        SkippedCheck as SkippedCheck,
    )
    from lastlight_state.maintenance.erase import Erase as Erase
    from lastlight_state.maintenance.erase.messages import (
        ErasePlan as ErasePlan,
        RedactPlan as RedactPlan,
        RedactPolicy as RedactPolicy,
    )
    from lastlight_state.maintenance.erase.redact import Redact as Redact
    from lastlight_state.maintenance.imports import Imports as Imports
    from lastlight_state.maintenance.imports.pieces import FailedUnit as FailedUnit, ImportReport as ImportReport
    from lastlight_state.maintenance.prune import Prune as Prune
    from lastlight_state.maintenance.prune.arguments import PrunePlan as PrunePlan, PrunePolicy as PrunePolicy
    from lastlight_state.maintenance.timeline import Timeline
    from lastlight_state.maintenance.timeline.records import (
        FollowedEntry as FollowedEntry,
        TimelineEntry as TimelineEntry,
    )
    from lastlight_state.maintenance.upkeep.checkpoint import Checkpoints as Checkpoints
    from lastlight_state.maintenance.upkeep.counters import (
        CounterPlan as CounterPlan,
        Counters as Counters,
        LateCounter as LateCounter,
    )
    from lastlight_state.maintenance.upkeep.reap import Reap as Reap, ReapPlan as ReapPlan
    from lastlight_state.maintenance.upkeep.records import (
        Checkpoint as Checkpoint,
        LineFiles as LineFiles,
        MessageCounts as MessageCounts,
        SchemaFacts as SchemaFacts,
        Stats as Stats,
        StatusCount as StatusCount,
        TableStats as TableStats,
        Vacuumed as Vacuumed,
    )
    from lastlight_state.maintenance.upkeep.reencrypt import Reencrypt as Reencrypt, Reencrypted as Reencrypted
    from lastlight_state.maintenance.upkeep.repair import (
        DamagedPart as DamagedPart,
        LineFileScan as LineFileScan,
        Repair as Repair,
        Repaired as Repaired,
    )
    from lastlight_state.maintenance.upkeep.stats import Statistics
    from lastlight_state.maintenance.upkeep.vacuum import Vacuum as Vacuum
    from lastlight_state.receipts import Receipts

public(
    globals(),
    {
        "chats.agent_sessions": "AgentSession AgentSessionPage AgentSessions SessionExecution",
        "backup": "Backup",
        "backup.restoring": "BackedFile Manifest",
        "bundles": "Bundles",
        "bundles.records": "Bundle BundlePart LoadedBundle",
        "chats": "ChatMessages ChatThread Chats",
        "upkeep.checkpoint": "Checkpoints",
        "copy": "Copy",
        "copy.tables": "CopiedTable CopyPlan CopyProgress CopyReport",
        "upkeep.counters": "Counters CounterPlan LateCounter",
        "doctor": "Doctor",
        "doctor.check": "Finding Report SkippedCheck",
        "erase": "Erase",
        "imports": "Imports",
        "imports.pieces": "FailedUnit ImportReport",
        "prune": "Prune",
        "prune.arguments": "PrunePolicy PrunePlan",
        "upkeep.reap": "Reap ReapPlan",
        "timeline.records": "FollowedEntry TimelineEntry",
        "upkeep.records": "Checkpoint LineFiles MessageCounts SchemaFacts Stats StatusCount TableStats Vacuumed",
        "erase.redact": "Redact",
        "erase.messages": "RedactPolicy ErasePlan RedactPlan",
        "upkeep.reencrypt": "Reencrypt Reencrypted",
        "upkeep.repair": "Repair DamagedPart LineFileScan Repaired",
        "upkeep.vacuum": "Vacuum",
    },
    "Maintenance",
)


class Maintenance(Face):
    """The repositories that work on several domains at once: ``store.maintenance``."""

    #: Counts and sizes of everything that is stored.
    stats: Part[Statistics] = Part("lastlight_state.maintenance.upkeep.stats.Statistics")
    #: Moves the write-ahead log into the database file.
    checkpoint: Part[Checkpoints] = Part("lastlight_state.maintenance.upkeep.checkpoint.Checkpoints")
    #: Frees the space of deleted rows.
    vacuum: Part[Vacuum] = Part("lastlight_state.maintenance.upkeep.vacuum.Vacuum")
    #: Looks for faults, and says what helps.
    doctor: Part[Doctor] = Part("lastlight_state.maintenance.doctor.Doctor")
    #: Removes records that ended long ago, with a dry run and a receipt.
    prune: Part[Prune] = Part("lastlight_state.maintenance.prune.Prune")
    #: Ends running sessions of conversations that show no sign of life.
    reap: Part[Reap] = Part("lastlight_state.maintenance.upkeep.reap.Reap")
    #: Copies everything at one moment into a folder; verifies and restores such a backup.
    backup: Part[Backup] = Part("lastlight_state.maintenance.backup.Backup")
    #: Copies everything into another database, and verifies the copy.
    copy: Part[Copy] = Part("lastlight_state.maintenance.copy.Copy")
    #: Saves one run or session as a file, and loads it.
    bundles: Part[Bundles] = Part("lastlight_state.maintenance.bundles.Bundles")
    #: Imports other programs' files, each unit completely or not at all.
    imports: Part[Imports] = Part("lastlight_state.maintenance.imports.Imports")
    #: Empties messages of conversations.
    redact: Part[Redact] = Part("lastlight_state.maintenance.erase.redact.Redact")
    #: Erases one person from conversations and chats.
    erase: Part[Erase] = Part("lastlight_state.maintenance.erase.Erase")
    #: Seals stored values with the codec's current key.
    reencrypt: Part[Reencrypt] = Part("lastlight_state.maintenance.upkeep.reencrypt.Reencrypt")
    #: The facts about a run, in order of time.
    timeline: Part[Timeline] = Part("lastlight_state.maintenance.timeline.Timeline")
    #: The agent's log files, with the newest execution of each session.
    agent_sessions: Part[AgentSessions] = Part(
        "lastlight_state.maintenance.chats.agent_sessions.AgentSessions",
        lambda face, kind: kind(face._context, face._logs.sessions),
    )
    #: Chat threads, from turns, logs and messages.
    chats: Part[Chats] = Part(
        "lastlight_state.maintenance.chats.Chats", lambda face, kind: kind(face._context, face._logs)
    )
    #: Scans, seals, copies and replaces damaged line files.
    repair: Part[Repair] = Part(
        "lastlight_state.maintenance.upkeep.repair.Repair",
        lambda face, kind: kind(
            face._context.settings.line_directories,
            face._context.clock,
            None if face._context.settings.read_only else face._receipts,
        ),
    )
    #: Raises counters that are behind the rows that they number.
    counters: Part[Counters] = Part("lastlight_state.maintenance.upkeep.counters.Counters")
    _logs: Part[AgentLog] = Part(
        "lastlight_state.files.agent_log.AgentLog",
        lambda face, kind: kind(face._context.settings.agent_sessions, clock=face._context.clock),
    )
    _receipts: Part[Receipts] = Part("lastlight_state.receipts.Receipts")
