"""The ``demo`` command: prepares a database, runs the workflow, and prints what is then stored about it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from lastlight_state import codec, migrations
from lastlight_state.cli.commands.demo.agent import APPROVER, CHAT, CONTEXT, STEPS, TRIGGER, WORKFLOW, replay, segments
from lastlight_state.cli.opening import backend_for_call, settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views import logs, maintenance
from lastlight_state.cli.views.kinds import MESSAGES
from lastlight_state.cli.views.run_kinds import EXECUTIONS
from lastlight_state.errors import MisuseError
from lastlight_state.files.agent_log import LogLine, RawFile
from lastlight_state.maintenance import TimelineEntry
from lastlight_state.messaging import MessagingMessageSummary
from lastlight_state.settings import DATABASE_FILE, PREFIX, Settings
from lastlight_state.store import StateStore
from lastlight_state.workflows import ExecutionSummary, Trigger, WorkflowRun
from lastlight_state.workflows.words import TERMINAL

# The demo's result from the store: timeline, cost, transcript.

#: Lines of the transcript that are shown.
HEAD = 16


@dataclass(frozen=True)
class Story:
    """The story of one run and its chat, as read from the store."""

    run: WorkflowRun
    events: tuple[TimelineEntry, ...]
    executions: Sequence[ExecutionSummary]
    messages: Sequence[MessagingMessageSummary]
    session_id: str
    transcript: Sequence[LogLine]
    whole_results: Sequence[RawFile]

    @property
    def cost_usd(self) -> Decimal:
        """Return the run's cost in US dollars."""
        return sum((found.cost_usd or Decimal(0) for found in self.executions), Decimal(0))

    @property
    def data(self) -> dict[str, Any]:
        """Return the story as data for programs."""
        return {
            "run_id": self.run.id,
            "status": self.run.status,
            "cost_usd": self.cost_usd,
            "events": self.events,
            "executions": self.executions,
            "messages": self.messages,
            "session_id": self.session_id,
        }

    def lines(self, screen: Screen) -> Iterator[Any]:
        """Yield the story as lines for people."""
        yield screen.heading(f"timeline of run {self.run.id}")
        yield from maintenance.lines(self.events, screen)
        yield ""
        yield screen.heading("executions")
        yield from screen.table(EXECUTIONS, self.executions)
        tokens = sum((found.input_tokens or 0) + (found.output_tokens or 0) for found in self.executions)
        yield f"{len(self.executions)} executions, {tokens:,} tokens in and out, ${self.cost_usd:.4f}"
        yield ""
        yield screen.heading("chat")
        yield from screen.table(MESSAGES, self.messages)
        yield ""
        yield screen.heading(f"transcript of session {self.session_id}, which was killed and resumed")
        for line in self.transcript:
            yield logs.text_of(line, screen)
        yield "..."
        for kept in self.whole_results:
            yield f"a tool result of {kept.bytes:,} bytes is cut there, and kept whole beside the log"


def of(store: StateStore, run_id: str, chat_id: str) -> Story:
    """Read the story of a run and a chat from the store."""
    executions = [*store.workflows.executions.list(run_id=run_id), *store.workflows.executions.list(trigger_id=chat_id)]
    executions.sort(key=lambda found: found.started_at)
    session_id = next(found.session_id for found in executions if found.outcome == "interrupted") or ""
    return Story(
        run=store.workflows.runs.get(run_id),
        events=maintenance.whole(store, run_id),
        executions=tuple(executions),
        messages=store.messaging.messages.list(chat_id).items[::-1],
        session_id=session_id,
        transcript=store.agent_log.reader.read(session_id, limit=HEAD).lines,
        whole_results=store.agent_log.raw.list(session_id),
    )


# Starts workers, and kills the worker whose agent waits for a tool without an answer.

WORKER = "lastlight_state.cli.commands.demo.worker"

Note = Callable[[str], None]


def work(settings: Settings, run_id: str, note: Note) -> bool:
    """Start a worker process for the run and wait for its end. Returns False if it had to be killed."""
    command = [sys.executable, "-m", WORKER, run_id]
    with subprocess.Popen(  # noqa: S603 our own interpreter and our own module
        command,
        env=environment(settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that Ctrl-C reaches only this process, which ends the worker
    ) as worker:
        try:
            note(f"worker {worker.pid} started")
            killed = _listen(worker, note)
        except BaseException:
            worker.kill()
            raise
    if worker.returncode != (-signal.SIGKILL if killed else 0):
        raise MisuseError(f"worker {worker.pid} ended with {worker.returncode}")
    return not killed


def environment(settings: Settings) -> dict[str, str]:
    """Return environment variables that name the database.

    Arguments would be visible to others, and a URL may hold a password.
    """
    given = {
        "URL": settings.url or str(settings.state_dir / DATABASE_FILE),
        "STATE_DIR": str(settings.state_dir),
        "SCHEMA": settings.schema_name,
        "AGENT_LOG_DIR": settings.agent_log_dir,
    }
    inherited = {name: text for name, text in os.environ.items() if name != PREFIX + "URL_FILE"}
    return inherited | {PREFIX + name: str(value) for name, value in given.items() if value is not None}


def _listen(worker: subprocess.Popen[str], note: Note) -> bool:
    """Print the worker's messages. If the worker reports that it is stuck, kill it without clean-up and return True."""
    for line in worker.stdout or ():
        said = codec.load_line(line.encode())
        if "note" in said:
            note(said["note"])
            continue
        note(f"{said['stuck']}: kill -9 {worker.pid}")
        os.kill(worker.pid, signal.SIGKILL)
        return True
    return False


# The chat beside the run: a user asks, the agent answers, and both are stored.

SKILL = "chat"


def turn(store: StateStore, number: int) -> str:
    """Replay the recorded question and answer with this number. Returns the id of the messaging session."""
    segment = segments(SKILL)[number]
    session = store.messaging.sessions.resume(CHAT).session
    agent_session = store.messaging.sessions.ensure_agent_session(session.id, f"chat-{session.id[-12:]}")
    store.messaging.messages.append(session.id, role="user", content=segment.prompt)
    trigger = Trigger(session.id, type="chat", actor=CHAT.user_id, actor_type="slack")
    execution = store.workflows.executions.start(SKILL, trigger=trigger, session_id=agent_session)
    replayed = replay(store, segment, session_id=agent_session, prompt=segment.prompt, execution_id=execution.id)
    store.messaging.messages.append(session.id, role="assistant", content=segment.last_text)
    store.workflows.executions.finish(execution.id, "succeeded", usage=replayed.usage)
    return session.id


@command("demo")
def run(call: Call) -> Answer:
    """Run a real workflow here, with a deliberate crash, and print its story from the store.

    Without a state directory, given by --state-dir or the environment, a temporary one is used and removed at the end.
    If you give a database of your own by --url, the run stays in it: nothing is deleted there.
    """
    begin = time.monotonic()

    def note(text: str) -> None:
        call.output.note(f"[{time.monotonic() - begin:5.1f} s] {text}")

    with _place(call) as settings:
        with closing(backend_for_call(call, settings)) as backend:
            note(f"migrating {backend.location}")
            migrations.migrate(backend)
        with StateStore.open(settings=settings) as store:
            told = of(store, *_play(store, settings, note))
    return Answer(told.data, told.lines)


def _play(store: StateStore, settings: Settings, note: Note) -> tuple[str, str]:
    """Run the whole demo against a store. Returns the ids of the run and of the messaging session."""
    run_id = store.workflows.runs.create(WORKFLOW, trigger=TRIGGER, phase=STEPS[0].phase, context=CONTEXT).id
    note(f"dispatched {WORKFLOW} for {TRIGGER.id}: run {run_id}")
    work(settings, run_id, note)
    chat_id = turn(store, 0)
    note(f"chat: session {chat_id}, first turn")
    while (status := store.workflows.runs.get(run_id).status) not in TERMINAL:
        if status == "paused":
            _approve(store, run_id, note)
        elif not work(settings, run_id, note):
            note("the run is still running, and nobody drives it: another worker takes over")
    turn(store, 1)
    note("chat: second turn")
    return run_id, chat_id


def _approve(store: StateStore, run_id: str, note: Note) -> None:
    for gate in store.workflows.approvals.list_pending(run_id=run_id):
        answered = store.workflows.approvals.answer(gate.id, "approved", by=APPROVER, response="go ahead")
        note(f"gate {gate.gate} approved by {APPROVER}, the run is {answered.run.status}")


@contextmanager
def _place(call: Call) -> Iterator[Settings]:
    """Yield the given settings. Without a state directory, use a temporary one until the block ends."""
    settings = settings_of(call, migrate=False)
    if "state_dir" in settings.model_fields_set:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="lastlight-demo-") as folder:
        yield settings_of(call, migrate=False, state_dir=Path(folder))
