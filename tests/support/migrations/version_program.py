"""What the versions of a rehearsal do with a database: a program, run by the version that is on its path.

``fill URL`` stores rows of every kind, ``read URL`` prints everything that lists and look-ups show, ``write URL LABEL``
makes calls that write, ``command WORDS`` runs the command line. They are read from the standard input, one JSON list a
line: a folder, the verb and its words. ``serve URL LABEL``, as arguments, writes until the standard input ends, and
prints how long its calls took.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

from support.cli.calls import lastlight_state
from support.filled_store import REPORTS, ROWS, Report, scene
from support.shown import lists, looks

from lastlight_state import StateStore
from lastlight_state.journal import NewEvent, NewScore
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.states import State
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Gate, PhaseEntry, Trigger
from lastlight_state.workflows.arguments import RunOptions


def database_at(url: str) -> Database:
    """Return the database at the URL, whose clock stands."""
    return Database(url, url.partition(":")[0], FrozenClock(), Path("state"))


def fill(url: str) -> None:
    """Store rows of every kind."""
    store, _ = scene(database_at(url))
    store.close()


def read(url: str) -> Any:
    """Return what every list and look-up shows, as JSON."""
    with database_at(url).open(migrate=False) as store:
        for key in REPORTS:
            store.outputs.catalog.define(key, Report)
        found: dict[str, Any] = {name: _shown(listed().items) for name, (listed, _) in lists(store).items()}
        for n in range(ROWS):
            found |= {f"{name} {n}": _looked(look) for name, look in looks(store, n).items()}
        return found


def _shown(items: Any) -> list[Any]:
    return [json.loads(item.model_dump_json()) if hasattr(item, "model_dump_json") else repr(item) for item in items]


def _looked(look: Callable[[], Any]) -> Any:
    try:
        return _shown([look()])
    except LookupError as error:
        return repr(error)


def write(url: str, label: str) -> Any:
    """Make calls that write, in every domain that the next version changes, and return what they stored."""
    with StateStore.open(url, migrate=False, state_dir=Path("state")) as store:
        runs, states = store.workflows.runs, store.states
        runs.create("w", trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id=label))
        runs.append_phase(label, PhaseEntry("build", True))
        store.workflows.approvals.create(label, Gate("gate", "Sure?", id=label))
        store.workflows.approvals.answer(label, "approved", by="ana")
        store.journal.events.append_many(label, [NewEvent("e", {"n": n}) for n in range(3)])
        score = store.journal.scores.record(NewScore(label, "n", "s", "S", "live", 0.5, id=label))
        store.journal.scores.record(NewScore(label, "n", "s", "S", "live", 0.75, id=f"{label}-again"))
        session = store.messaging.sessions.create(ConversationKey("slack", label, "u"))
        store.messaging.messages.append_many(session.id, [MessageDraft("user", "hello")])
        for listed in states.list(scope="leaving").items:
            states.remove(listed.key, scope=listed.scope)
        states.put("kept", {"n": 1}, scope=label)
        states.put("gone", {"n": 1}, scope=label)
        states.remove("gone", scope=label)
        kept: State = states.get("kept", scope=label)
        return {
            "score": json.loads(score.model_dump_json()),
            "state": json.loads(kept.model_dump_json()),
            "events": len(store.journal.events.list(label).items),
        }


def serve(url: str, label: str) -> Any:
    """Write until the standard input ends. Return the number of calls, and the seconds of the slowest one."""
    ended, slowest, calls = Event(), 0.0, 0

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    Thread(target=listen, daemon=True).start()
    with StateStore.open(url, migrate=False, state_dir=Path("state")) as store:
        store.workflows.runs.create("w", trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id=label))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not ended.is_set():
            began = time.monotonic()
            store.journal.events.append_many(label, [NewEvent("e", {"n": calls})])
            store.journal.scores.record(NewScore(label, "n", "s", "S", "live", calls / 2))
            store.states.put("key", {"n": calls}, scope=label)
            slowest, calls = max(slowest, time.monotonic() - began), calls + 1
            time.sleep(0.005)
        return {"calls": calls, "slowest": slowest, "stored": store.journal.events.count(label)}


def command(*words: str) -> Any:
    """Run the command line, and return its exit code and what it prints."""
    said = lastlight_state(*words)
    return {"code": said.code, "out": said.out, "err": said.err}


def answer_requests() -> None:
    """Do what each line of the standard input asks for, and print the result or the error."""
    for line in iter(sys.stdin.readline, ""):
        folder, verb, *words = json.loads(line)
        os.chdir(folder)
        try:
            said = {"result": globals()[verb](*words)}
        except Exception as error:  # noqa: BLE001 the test is told
            said = {"error": type(error).__name__, "trace": traceback.format_exc()}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(serve(*sys.argv[2:])) + "\n")
    else:
        answer_requests()
