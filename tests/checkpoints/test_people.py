"""Threads of a person who is erased, and threads as people see them."""

from __future__ import annotations

from typing import Any

from support.checkpoints.steps import step, write
from support.cli.calls import lastlight_state
from support.maintenance.rows import counts, difference

from lastlight_state.testing import Database, racing


def test_the_threads_of_a_person_go_whole_and_no_others(store: Any, database: Database) -> None:
    """checkpoints CK-31: plan and receipt say how many rows."""
    for thread, user in (("hers", "zoe"), ("also hers", "zoe"), ("his", "bob"), ("nobody's", None)):
        database.open().checkpoints.put(thread, step(1, {"a": "one"}), user=user)
        database.open().checkpoints.put_writes(thread, "step-1", "x", [write(0, "w")])
    before = counts(database)
    plan, receipt = store.maintenance.erase.plan("zoe"), store.maintenance.erase.run("zoe")
    gone = {"checkpoint_threads": 2, "checkpoint_values": 2, "checkpoint_writes": 2, "checkpoints": 2}
    assert plan.counts == receipt.counts == difference(before, counts(database)) == gone
    assert {one.key for one in database.open().checkpoints.threads()} == {"his", "nobody's"}


def test_a_thread_that_becomes_another_persons_meanwhile_stays(database: Database) -> None:
    """checkpoints CK-31: its user is looked at again under its lock."""
    store, rival = database.open(), database.open()
    store.checkpoints.put("t", step(1), user="zoe")
    with racing(store) as race:
        race.before_unit(3, lambda: rival.checkpoints.put("t", step(2), user="bob"))
        receipt = store.maintenance.erase.run("zoe")
    assert (race.left, receipt.counts, store.checkpoints.thread("t").user) == (0, {}, "bob")


def test_threads_are_listed_and_one_is_shown_with_its_newest_checkpoints(database: Database) -> None:
    """checkpoints CK-32."""
    store = database.open()
    for number in (1, 2):
        store.checkpoints.put("ticket", step(number, metadata={"step": number}), user="ana", scope="support")
    thread = store.checkpoints.thread("ticket", scope="support")
    listed = lastlight_state("ls", "threads", "--url", database.url)
    assert (listed.code, "ticket" in listed.out, "ana" in listed.out) == (0, True, True)
    shown = lastlight_state("show", "thread", thread.id, "--url", database.url)
    assert (shown.code, "step-2" in shown.out, '"step": 1' in shown.out or '{"step":1}' in shown.out) == (0, True, True)
    assert lastlight_state("show", "thread", "nobody", "--url", database.url).code == 1
    assert lastlight_state("ls", "threads", "--run", "r", "--url", database.url).code == 2
