"""``timeline``: prints everything that happened to a run, and with ``--follow`` new entries too. Never writes."""

from __future__ import annotations

import click

from lastlight_state.cli import opening
from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.views import maintenance
from lastlight_state.maintenance import TimelineEntry
from lastlight_state.store import StateStore


@command("timeline")
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until the run has ended.")
def run(call: Call, run_id: str, follow: bool) -> Answer:
    """Print what happened to a run, oldest first: transitions, questions, executions, inputs, signals and events.

    With --follow each entry is a line of its own, with --json an object. Executions then appear as their phases.
    """
    if follow:
        return read_once(call, lambda store: _follow_run(call, store, run_id))

    def entries(store: StateStore) -> tuple[TimelineEntry, ...]:
        return maintenance.whole(store, opening.whole(store, run_id, "run"))

    found = read_once(call, entries)
    return Answer({"items": found}, lambda screen: maintenance.lines(found, screen))


def _follow_run(call: Call, store: StateStore, run_id: str) -> Answer:
    output = call.output
    for entry in store.maintenance.timeline.follow(opening.whole(store, run_id, "run"), until_end=True):
        output.line(entry if call.flags.json else maintenance.line(entry, output.screen))
    return Answer()
