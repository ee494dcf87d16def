"""A cluster of three servers under Patroni whose leader falls again and again, under writers, a fleet and a follower.

``make cluster`` runs these: each takes some minutes, and prints what it counted.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path

import pytest
from support.cluster_load import Counts, Load
from support.patroni import PatroniCluster, patroni, why_not

from lastlight_state import StateStore

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=str(why_not())), pytest.mark.timeout(900)]

#: What happens to the leader: its server is killed, its host stops, its host is cut off.
FAULTS = ("killed", "stopped", "cut off")
TIMES = int(os.environ.get("LASTLIGHT_TEST_FAULTS", "10"))
#: Longer than Patroni takes to elect another one.
DOWN_SECONDS = 25
#: Longer than Patroni takes to say of a killed server that it leads no more, and than the writers stop for it.
NOTICED_SECONDS = 5


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[list[tuple[str, Counts]]]:
    found: list[tuple[str, Counts]] = []
    yield found
    with capsys.disabled():
        for name, counts in found:
            lines = [f"{name}:", *(f"  {key}: {value}" for key, value in asdict(counts).items())]
            sys.stdout.write("\n" + "\n".join(lines) + "\n")


def befall(cluster: PatroniCluster, load: Load, fault: str) -> None:
    """Let the leader fall, and wait until another one leads and the fallen one follows."""
    leader = cluster.settled()
    load.faults.append((fault, time.monotonic()))
    if fault == "killed":
        cluster.kill(leader)
        time.sleep(NOTICED_SECONDS)
    elif fault == "stopped":
        cluster.freeze(leader)
        time.sleep(DOWN_SECONDS)
        cluster.thaw(leader)
    else:
        cluster.cut_off(leader)
        time.sleep(DOWN_SECONDS)
        cluster.reconnect(leader)
    cluster.settled()
    time.sleep(2)


def carried(*, synchronous: bool) -> Counts:
    with patroni(synchronous=synchronous) as cluster:
        StateStore.open(cluster.url, migrate=True).close()
        load = Load(cluster.url)
        with load.running():
            time.sleep(2)
            for fault in islice(cycle(FAULTS), TIMES):
                befall(cluster, load, fault)
        return load.counted()


def test_with_a_synchronous_standby_nothing_is_lost(report: list[tuple[str, Counts]]) -> None:
    """cluster CL-20: nor done twice, and every run's events are numbered without a gap, whoever leads."""
    counts = carried(synchronous=True)
    report.append(("synchronous", counts))
    assert (counts.lost, counts.doubled, counts.gaps, counts.skipped) == (0, 0, 0, 0)
    assert counts.acknowledged > 100 * TIMES
    assert counts.followed > 10 * TIMES


def test_without_one_what_is_there_is_whole(report: list[tuple[str, Counts]]) -> None:
    """cluster CL-21: the last calls before a failover may be lost; nothing is done twice, and no number is missing."""
    counts = carried(synchronous=False)
    report.append(("asynchronous", counts))
    assert (counts.doubled, counts.gaps) == (0, 0)
    assert counts.acknowledged > 100 * TIMES
