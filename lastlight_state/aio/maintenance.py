"""The async form of ``store.maintenance``."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

from lastlight_state.aio.blocks import StopEvent, stream_items
from lastlight_state.aio.forward import Face, forward_read, forward_write
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

    collect = forward_read(Statistics.collect)


class AsyncCheckpoints(Face[Checkpoints]):
    """The async form of ``store.maintenance.checkpoint``."""

    run = forward_write(Checkpoints.run)


class AsyncVacuum(Face[Vacuum]):
    """The async form of ``store.maintenance.vacuum``."""

    run = forward_write(Vacuum.run)


class AsyncReencrypt(Face[Reencrypt]):
    """The async form of ``store.maintenance.reencrypt``.

    It runs on the readers' threads, because it is long and its writes are short.
    """

    plan = forward_read(Reencrypt.plan)
    run = forward_read(Reencrypt.run)


class AsyncDoctor(Face[Doctor]):
    """The async form of ``store.maintenance.doctor``."""

    examine = forward_read(Doctor.examine)


class AsyncPrune(Face[Prune]):
    """The async form of ``store.maintenance.prune``.

    It runs on the readers' threads, because it is long and its writes are short.
    """

    plan = forward_read(Prune.plan)
    run = forward_read(Prune.run)
    resume = forward_read(Prune.resume)


class AsyncReap(Face[Reap]):
    """The async form of ``store.maintenance.reap``. It runs on the readers' threads, as a prune does."""

    plan = forward_read(Reap.plan)
    run = forward_read(Reap.run)


class AsyncBackup(Face[Backup]):
    """The async form of ``store.maintenance.backup``. It only reads from this store, and writes elsewhere."""

    create = forward_read(Backup.create)
    verify = forward_read(Backup.verify)
    restore = forward_read(Backup.restore)


class AsyncCopy(Face[Copy]):
    """The async form of ``store.maintenance.copy``. It only reads from this store, and writes to another."""

    plan = forward_read(Copy.plan)
    run = forward_read(Copy.run)
    resume = forward_read(Copy.resume)


class AsyncRedact(Face[Redact]):
    """The async form of ``store.maintenance.redact``. It runs on the readers' threads, as a prune does."""

    plan = forward_read(Redact.plan)
    run = forward_read(Redact.run)


class AsyncErase(Face[Erase]):
    """The async form of ``store.maintenance.erase``. It runs on the readers' threads, as a prune does."""

    plan = forward_read(Erase.plan)
    run = forward_read(Erase.run)


class AsyncTimeline(Face[Timeline]):
    """The async form of ``store.maintenance.timeline``."""

    list = forward_read(Timeline.list)

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
        return stream_items(
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

    list = forward_read(AgentSessions.list)
    repo_for_session = forward_read(AgentSessions.repo_for_session)


class AsyncChats(Face[Chats]):
    """The async form of ``store.maintenance.chats``."""

    list = forward_read(Chats.list)
    get = forward_read(Chats.get)
    messages = forward_read(Chats.messages)
    log_path = forward_read(Chats.log_path)


class AsyncRepair(Face[Repair]):
    """The async form of ``store.maintenance.repair``."""

    scan = forward_read(Repair.scan)
    seal = forward_write(Repair.seal)
    salvage = forward_write(Repair.salvage)


class AsyncImports(Face[Imports]):
    """The async form of ``store.maintenance.imports``. It runs on the readers' threads, as a prune does."""

    detect = forward_read(Imports.detect)
    plan = forward_read(Imports.plan)
    run = forward_read(Imports.run)


class AsyncBundles(Face[Bundles]):
    """The async form of ``store.maintenance.bundles``. It runs on the readers' threads, as a prune does."""

    export = forward_read(Bundles.export)
    read = forward_read(Bundles.read)
    plan = forward_read(Bundles.plan)
    load = forward_read(Bundles.load)


class AsyncCounters(Face[Counters]):
    """The async form of ``store.maintenance.counters``. It runs on the readers' threads, as a prune does."""

    plan = forward_read(Counters.plan)
    run = forward_read(Counters.run)


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
