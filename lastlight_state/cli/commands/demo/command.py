"""The command: sets the scene, plays the workflow, and tells what the store knows of it afterwards."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from lastlight_state import migrations
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.commands.demo import chat, report, supervisor
from lastlight_state.cli.commands.demo.story import APPROVER, CONTEXT, STEPS, TRIGGER, WORKFLOW
from lastlight_state.cli.opening import connected, settings_of
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore
from lastlight_state.workflows.words import TERMINAL


@command("demo")
def run(call: Call) -> Answer:
    """Run a real workflow here, with a crash on purpose, and print its story from the store.

    Without a state directory, given by --state-dir or the environment, it uses a temporary one and removes it in the
    end. In a database of yours, given by --url, its run stays for ever: nothing is deleted there.
    """
    begin = time.monotonic()

    def note(text: str) -> None:
        call.output.note(f"[{time.monotonic() - begin:5.1f} s] {text}")

    with _place(call) as settings:
        with closing(connected(call, settings)) as backend:
            note(f"migrating {backend.location}")
            migrations.migrate(backend)
        with StateStore.open(settings=settings) as store:
            told = report.of(store, *_play(store, settings, note))
    return Answer(told.data, told.lines)


def _play(store: StateStore, settings: Settings, note: supervisor.Note) -> tuple[str, str]:
    """The ids of the run and of the messaging session, after all is done."""
    run_id = store.workflows.runs.create(WORKFLOW, trigger=TRIGGER, phase=STEPS[0].phase, context=CONTEXT).id
    note(f"dispatched {WORKFLOW} for {TRIGGER.id}: run {run_id}")
    supervisor.work(settings, run_id, note)
    chat_id = chat.turn(store, 0)
    note(f"chat: session {chat_id}, first turn")
    while (status := store.workflows.runs.get(run_id).status) not in TERMINAL:
        if status == "paused":
            _approve(store, run_id, note)
        elif not supervisor.work(settings, run_id, note):
            note("the run is still running, and nobody drives it: another worker takes over")
    chat.turn(store, 1)
    note("chat: second turn")
    return run_id, chat_id


def _approve(store: StateStore, run_id: str, note: supervisor.Note) -> None:
    for gate in store.workflows.approvals.list_pending(run_id=run_id):
        answered = store.workflows.approvals.answer(gate.id, "approved", by=APPROVER, response="go ahead")
        note(f"gate {gate.gate} approved by {APPROVER}, the run is {answered.run.status}")


@contextmanager
def _place(call: Call) -> Iterator[Settings]:
    """The settings given; without a state directory in them, with a temporary one."""
    settings = settings_of(call, migrate=False)
    if "state_dir" in settings.model_fields_set:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="lastlight-demo-") as folder:
        yield settings_of(call, migrate=False, state_dir=Path(folder))
