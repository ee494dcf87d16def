"""``store.maintenance`` from coroutines."""

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
from lastlight_state.maintenance.stats import Statistics
from lastlight_state.maintenance.timeline import Timeline


class AsyncStatistics(Face[Statistics]):
    """``store.maintenance.stats``"""

    collect = reading(Statistics.collect)


class AsyncCheckpoints(Face[Checkpoints]):
    """``store.maintenance.checkpoint``"""

    run = writing(Checkpoints.run)


class AsyncVacuum(Face[Vacuum]):
    """``store.maintenance.vacuum``"""

    run = writing(Vacuum.run)


class AsyncReencrypt(Face[Reencrypt]):
    """``store.maintenance.reencrypt``. It runs in the readers' lane: it is long, and its writes are short."""

    plan = reading(Reencrypt.plan)
    run = reading(Reencrypt.run)


class AsyncDoctor(Face[Doctor]):
    """``store.maintenance.doctor``"""

    examine = reading(Doctor.examine)


class AsyncPrune(Face[Prune]):
    """``store.maintenance.prune``. A prune runs in the readers' lane: it is long, and its writes are short."""

    plan = reading(Prune.plan)
    run = reading(Prune.run)
    resume = reading(Prune.resume)


class AsyncReap(Face[Reap]):
    """``store.maintenance.reap``. It runs in the readers' lane, as a prune does."""

    plan = reading(Reap.plan)
    run = reading(Reap.run)


class AsyncBackup(Face[Backup]):
    """``store.maintenance.backup``. It reads this store; what it writes goes elsewhere."""

    create = reading(Backup.create)
    verify = reading(Backup.verify)
    restore = reading(Backup.restore)


class AsyncCopy(Face[Copy]):
    """``store.maintenance.copy``. It reads this store; what it writes goes to another one."""

    plan = reading(Copy.plan)
    run = reading(Copy.run)
    resume = reading(Copy.resume)


class AsyncRedact(Face[Redact]):
    """``store.maintenance.redact``. It runs in the readers' lane, as a prune does."""

    plan = reading(Redact.plan)
    run = reading(Redact.run)


class AsyncErase(Face[Erase]):
    """``store.maintenance.erase``. It runs in the readers' lane, as a prune does."""

    plan = reading(Erase.plan)
    run = reading(Erase.run)


class AsyncTimeline(Face[Timeline]):
    """``store.maintenance.timeline``"""

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
        """See `Timeline.follow`. Ends when the iteration is left or its task is cancelled."""
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
    """``store.maintenance.agent_sessions``"""

    list = reading(AgentSessions.list)
    repo_for_session = reading(AgentSessions.repo_for_session)


class AsyncChats(Face[Chats]):
    """``store.maintenance.chats``"""

    list = reading(Chats.list)
    get = reading(Chats.get)
    messages = reading(Chats.messages)
    log_path = reading(Chats.log_path)


class AsyncRepair(Face[Repair]):
    """``store.maintenance.repair``"""

    scan = reading(Repair.scan)
    seal = writing(Repair.seal)
    salvage = writing(Repair.salvage)


class AsyncImports(Face[Imports]):
    """``store.maintenance.imports``. It runs in the readers' lane, as a prune does."""

    detect = reading(Imports.detect)
    plan = reading(Imports.plan)
    run = reading(Imports.run)


class AsyncBundles(Face[Bundles]):
    """``store.maintenance.bundles``. It runs in the readers' lane, as a prune does."""

    export = reading(Bundles.export)
    read = reading(Bundles.read)
    plan = reading(Bundles.plan)
    load = reading(Bundles.load)


class AsyncCounters(Face[Counters]):
    """``store.maintenance.counters``. It runs in the readers' lane, as a prune does."""

    plan = reading(Counters.plan)
    run = reading(Counters.run)


class AsyncMaintenance(Face[Maintenance]):
    """``store.maintenance``"""

    #: Counts and sizes of everything that is stored.
    stats: Part[AsyncStatistics] = Part("lastlight_state.aio.maintenance.AsyncStatistics")
    #: Brings the write-ahead log into the database.
    checkpoint: Part[AsyncCheckpoints] = Part("lastlight_state.aio.maintenance.AsyncCheckpoints")
    #: Gives back the space of deleted rows.
    vacuum: Part[AsyncVacuum] = Part("lastlight_state.aio.maintenance.AsyncVacuum")
    #: Seals what is stored with the present key of the codec.
    reencrypt: Part[AsyncReencrypt] = Part("lastlight_state.aio.maintenance.AsyncReencrypt")
    #: Looks for what is wrong, and says what helps.
    doctor: Part[AsyncDoctor] = Part("lastlight_state.aio.maintenance.AsyncDoctor")
    #: Removes what ended long ago, with a dry run and a receipt.
    prune: Part[AsyncPrune] = Part("lastlight_state.aio.maintenance.AsyncPrune")
    #: Ends running sessions of conversations that show no sign of life.
    reap: Part[AsyncReap] = Part("lastlight_state.aio.maintenance.AsyncReap")
    #: Takes everything at one moment into a folder, verifies and restores it.
    backup: Part[AsyncBackup] = Part("lastlight_state.aio.maintenance.AsyncBackup")
    #: Fills another database with everything, and proves that it arrived.
    copy: Part[AsyncCopy] = Part("lastlight_state.aio.maintenance.AsyncCopy")
    #: Empties messages of conversations.
    redact: Part[AsyncRedact] = Part("lastlight_state.aio.maintenance.AsyncRedact")
    #: Takes one person out of conversations and chats.
    erase: Part[AsyncErase] = Part("lastlight_state.aio.maintenance.AsyncErase")
    #: What happened to a run, in order of time.
    timeline: Part[AsyncTimeline] = Part("lastlight_state.aio.maintenance.AsyncTimeline")
    #: The agent's log files, with the newest execution of each session.
    agent_sessions: Part[AsyncAgentSessions] = Part("lastlight_state.aio.maintenance.AsyncAgentSessions")
    #: Chat threads, from turns, logs and messages.
    chats: Part[AsyncChats] = Part("lastlight_state.aio.maintenance.AsyncChats")
    #: Damaged line files: scanned, sealed, copied clean, replaced.
    repair: Part[AsyncRepair] = Part("lastlight_state.aio.maintenance.AsyncRepair")
    #: Brings other programs' files in, each unit whole or not at all.
    imports: Part[AsyncImports] = Part("lastlight_state.aio.maintenance.AsyncImports")
    #: One run or session as a file, and back.
    bundles: Part[AsyncBundles] = Part("lastlight_state.aio.maintenance.AsyncBundles")
    #: Raises counters that are behind the rows that they number.
    counters: Part[AsyncCounters] = Part("lastlight_state.aio.maintenance.AsyncCounters")
