"""``reap``: ends running sessions of conversations that send no heartbeat any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from lastlight_state.cli import arguments
from lastlight_state.cli.opening import read_once, writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.conversations import StaleSession
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import ReapPlan
from lastlight_state.maintenance.upkeep.reap import ENDS

SESSIONS: tuple[Column[StaleSession], ...] = (
    Column("SESSION", lambda one: one.id, is_id=True),
    Column("OWNER", lambda one: one.owner),
    Column("LAST SIGN", lambda one: one.last_sign, keep=True),
)


@command("reap")
@click.option("--older-than", metavar="AGE", default="24h", help="Silent for longer than that: 90m, 24h (default), 7d.")
@click.option("--to", "end", metavar="WORD", default=ENDS[0], help="How they end: aborted (default) or failed.")
@click.option("--dry-run", is_flag=True, help="Only say which sessions would be ended.")
def run(call: Call, older_than: str, end: Any, dry_run: bool) -> Answer:
    """End running sessions of conversations whose processes died without ending them.

    Signs of life of a session are heartbeats, messages and changes of status. A session is ended as of its last sign of
    life, and its history says why. A session that shows life meanwhile is skipped. `reopen` lets an ended session run
    again.
    """
    age = arguments.age(older_than)
    if age is None:
        raise InvalidValue("--older-than", f"expected an age, got {older_than!r:.80}", permitted=("90m", "24h", "7d"))
    if end not in ENDS:
        raise InvalidValue("--to", f"expected an end, got {end!r:.80}", permitted=ENDS)
    plan = read_once(call, lambda store: store.maintenance.reap.plan(older_than=age))
    data: dict[str, Any] = {"dry_run": dry_run, **plan.model_dump(), "skipped": 0, "receipt": None}
    if dry_run:
        return Answer(
            data, lambda screen: _lines(screen, plan, f"would end {plan.retired} of {plan.running} running sessions")
        )
    with writable_store(call) as store:
        receipt = store.maintenance.reap.run(older_than=age, to=end)
    retired, skipped = (receipt.counts.get(name, 0) for name in ("retired", "skipped"))
    data |= {"retired": retired, "skipped": skipped, "receipt": receipt}
    told = f"receipt {receipt.id}: ended {retired} of {plan.running} running sessions, skipped {skipped}"
    return Answer(data, lambda screen: _lines(screen, plan, told))


def _lines(screen: Screen, plan: ReapPlan, told: str) -> Iterator[Any]:
    yield told
    if plan.sessions:
        yield from screen.table(SESSIONS, plan.sessions)
