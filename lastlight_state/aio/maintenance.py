"""The async form of ``store.maintenance``."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

from lastlight_state.aio.blocks import StopEvent, streamed
from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.lazy import Part
from lastlight_state.maintenance import (
    AgentSessions,
    Backup,
    Bundles,
    Chats,
    Checkpoints,
    Copy,
    Counters,
    Doctor,
    Erase,
    FollowedEntry,
    Imports,
    Maintenance,
    Prune,
    Reap,
    Redact,
    Reencrypt,
    Repair,
    Vacuum,
)
from lastlight_state.maintenance.timeline import Timeline
from lastlight_state.maintenance.upkeep.stats import Statistics


class AsyncStatistics(Face[Statistics]):
    """The async form of ``store.maintenance.stats``."""

    collect = reading(Statistics.collect)


class AsyncCheckpoints(Face[Checkpoints]):
    """The async form of ``store.maintenance.checkpoint``."""

    run = writing(Checkpoints.run)


class AsyncVacuum(Face[Vacuum]):
    """The async form of ``store.maintenance.vacuum``."""

    run = writing(Vacuum.run)


class AsyncReencrypt(Face[Reencrypt]):
    """The async form of ``store.maintenance.reencrypt``.

    It runs on the readers' threads, because it is long and its writes are short.
    """

    plan = reading(Reencrypt.plan)
    run = reading(Reencrypt.run)


class AsyncDoctor(Face[Doctor]):
    """The async form of ``store.maintenance.doctor``."""

    examine = reading(Doctor.examine)


class AsyncPrune(Face[Prune]):
    """The async form of ``store.maintenance.prune``.

    It runs on the readers' threads, because it is long and its writes are short.
    """

    plan = reading(Prune.plan)
    run = reading(Prune.run)
    resume = reading(Prune.resume)


class AsyncReap(Face[Reap]):
    """The async form of ``store.maintenance.reap``. It runs on the readers' threads, as a prune does."""

    plan = reading(Reap.plan)
    run = reading(Reap.run)


class AsyncBackup(Face[Backup]):
    """The async form of ``store.maintenance.backup``. It only reads from this store, and writes elsewhere."""

    create = reading(Backup.create)
    verify = reading(Backup.verify)
    restore = reading(Backup.restore)


class AsyncCopy(Face[Copy]):
    """The async form of ``store.maintenance.copy``. It only reads from this store, and writes to another."""

    plan = reading(Copy.plan)
    run = reading(Copy.run)
    resume = reading(Copy.resume)


class AsyncRedact(Face[Redact]):
    """The async form of ``store.maintenance.redact``. It runs on the readers' threads, as a prune does."""

    plan = reading(Redact.plan)
    run = reading(Redact.run)


class AsyncErase(Face[Erase]):
    """The async form of ``store.maintenance.erase``. It runs on the readers' threads, as a prune does."""

    plan = reading(Erase.plan)
    run = reading(Erase.run)


class AsyncTimeline(Face[Timeline]):
    """The async form of ``store.maintenance.timeline``."""

    list = reading(Timeline.list)

    def follow(
        self,
        run_id: str,
        *,
        after: str | None = None,
        until_end: bool = False,
        idle_timeout: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[FollowedEntry]:
        """See `Timeline.follow`. Ends when the loop over it is left or its task is cancelled."""
        left = StopEvent(stop)
        return streamed(
            lambda: self._target.follow(
                run_id,
                after=after,
                until_end=until_end,
                idle_timeout=idle_timeout,
                poll_interval=poll_interval,
                stop=left,
            ),
            left,
        )


class AsyncAgentSessions(Face[AgentSessions]):
    """The async form of ``store.maintenance.agent_sessions``."""

    list = reading(AgentSessions.list)
    repo_for_session = reading(AgentSessions.repo_for_session)


class AsyncChats(Face[Chats]):
    """The async form of ``store.maintenance.chats``."""

    list = reading(Chats.list)
    get = reading(Chats.get)
    messages = reading(Chats.messages)
    log_path = reading(Chats.log_path)


class AsyncRepair(Face[Repair]):
    """The async form of ``store.maintenance.repair``."""

    scan = reading(Repair.scan)
    seal = writing(Repair.seal)
    salvage = writing(Repair.salvage)


class AsyncImports(Face[Imports]):
    """The async form of ``store.maintenance.imports``. It runs on the readers' threads, as a prune does."""

    detect = reading(Imports.detect)
    plan = reading(Imports.plan)
    run = reading(Imports.run)


class AsyncBundles(Face[Bundles]):
    """The async form of ``store.maintenance.bundles``. It runs on the readers' threads, as a prune does."""

    export = reading(Bundles.export)
    read = reading(Bundles.read)
    plan = reading(Bundles.plan)
    load = reading(Bundles.load)


class AsyncCounters(Face[Counters]):
    """The async form of ``store.maintenance.counters``. It runs on the readers' threads, as a prune does."""

    plan = reading(Counters.plan)
    run = reading(Counters.run)


class AsyncMaintenance(Face[Maintenance]):
    """The async form of ``store.maintenance``."""

    #: Row counts and sizes of everything stored.
    stats: Part[AsyncStatistics] = Part("lastlight_state.aio.maintenance.AsyncStatistics")
    #: Moves the write-ahead log into the database file.
    checkpoint: Part[AsyncCheckpoints] = Part("lastlight_state.aio.maintenance.AsyncCheckpoints")
    #: Frees the space of deleted rows.
    vacuum: Part[AsyncVacuum] = Part("lastlight_state.aio.maintenance.AsyncVacuum")
    #: Encrypts stored values anew with the codec's current key.
    reencrypt: Part[AsyncReencrypt] = Part("lastlight_state.aio.maintenance.AsyncReencrypt")
    #: Looks for faults, and names a remedy for each.
    doctor: Part[AsyncDoctor] = Part("lastlight_state.aio.maintenance.AsyncDoctor")
    #: Deletes data that ended long ago, with a dry run and a receipt.
    prune: Part[AsyncPrune] = Part("lastlight_state.aio.maintenance.AsyncPrune")
    #: Ends running conversation sessions that send no heartbeat.
    reap: Part[AsyncReap] = Part("lastlight_state.aio.maintenance.AsyncReap")
    #: Writes a snapshot of everything into a folder, verifies it and restores it.
    backup: Part[AsyncBackup] = Part("lastlight_state.aio.maintenance.AsyncBackup")
    #: Copies everything into another database, and verifies the copy.
    copy: Part[AsyncCopy] = Part("lastlight_state.aio.maintenance.AsyncCopy")
    #: Empties the text of conversation messages.
    redact: Part[AsyncRedact] = Part("lastlight_state.aio.maintenance.AsyncRedact")
    #: Removes one person from conversations and chats.
    erase: Part[AsyncErase] = Part("lastlight_state.aio.maintenance.AsyncErase")
    #: The history of a run across all domains, in order of time.
    timeline: Part[AsyncTimeline] = Part("lastlight_state.aio.maintenance.AsyncTimeline")
    #: The agent's log files, each with its session's newest execution.
    agent_sessions: Part[AsyncAgentSessions] = Part("lastlight_state.aio.maintenance.AsyncAgentSessions")
    #: Chat threads, collected from turns, logs and messages.
    chats: Part[AsyncChats] = Part("lastlight_state.aio.maintenance.AsyncChats")
    #: Damaged line files: scanned, sealed, copied clean, replaced.
    repair: Part[AsyncRepair] = Part("lastlight_state.aio.maintenance.AsyncRepair")
    #: Imports other programs' files, each unit whole or not at all.
    imports: Part[AsyncImports] = Part("lastlight_state.aio.maintenance.AsyncImports")
    #: Writes one run or session to a file, and reads it back.
    bundles: Part[AsyncBundles] = Part("lastlight_state.aio.maintenance.AsyncBundles")
    #: Raises counters that lag behind the rows they number.
    counters: Part[AsyncCounters] = Part("lastlight_state.aio.maintenance.AsyncCounters")
