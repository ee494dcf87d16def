"""The way from one file of SQLite to a cluster, as docs/scaling.md describes it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from support.cluster import pair

from lastlight_state import Settings, StateStore
from lastlight_state.errors import BackendUnavailable
from lastlight_state.workflows import RunOptions, Trigger

TRIGGER = Trigger("t", type="cli")
QUEUED = RunOptions(status="queued")


@pytest.mark.slow
def test_a_file_becomes_a_cluster_and_nothing_is_lost_on_the_way(tmp_path: Path) -> None:
    """cluster CL-50: copied to a primary with a standby, read there, and gone on with after the primary fell."""
    with StateStore.open(tmp_path / "one.db", state_dir=tmp_path) as one:
        runs = [one.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=QUEUED).id for _ in range(3)]
        for number in range(5):
            one.journal.events.append(runs[0], "e", {"n": number})
        before = one.journal.events.list(runs[0]).items
        with pair("synchronous_standby_names=*", "synchronous_commit=on") as servers:
            one.maintenance.copy.run(servers.url, migrate=True)
            patient = Settings(pool_timeout=20, state_dir=tmp_path, durability="full")
            with StateStore.open(servers.url, replica=servers.standby.url, settings=patient) as store:
                assert store.journal.events.list(runs[0]).items == before
                assert store.replica.journal.events.list(runs[0]).items == before
                [claim] = store.workflows.queue.admit_next(owner="w", cap=1, lease=timedelta(minutes=5))
                store.workflows.runs.finish(claim.run_id, "succeeded", claim=claim)
                assert store.replica.workflows.runs.get(claim.run_id).status == "succeeded"
                servers.fail_over()
                for _ in range(200):
                    try:
                        [claim] = store.workflows.queue.admit_next(owner="w", cap=1, lease=timedelta(minutes=5))
                        break
                    except BackendUnavailable:
                        continue
                last = store.journal.events.append(runs[0], "e", {"n": 5})
                assert last.seq == before[-1].seq + 1
                assert store.replica.journal.events.list(runs[0]).items[:-1] == before
