from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import Said, lastlight_state
from support.preloaded import run_program
from support.processes import started

from lastlight_state.cli.commands.demo import agent, command as demo_command, worker
from lastlight_state.cli.commands.demo.agent import STEPS, TRIGGER, WORKFLOW
from lastlight_state.errors import MisuseError
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.databases import Database, SqliteTemplate

PROGRAM = [sys.executable, "-c", "from lastlight_state.cli import main; main()"]


def events_of(name: str) -> list[dict[str, Any]]:
    return [event for segment in agent.segments(name) for event in segment.events]


def test_the_recording_is_plain_lines_of_several_hundred_events_with_one_large_result() -> None:
    """packaging PT-2."""
    stream = Path(agent.__file__).with_name("stream.jsonl").read_bytes()
    events = [json.loads(line) for line in stream.splitlines()]
    assert len(stream) < 400_000
    assert len(events) > 300
    assert {"session", "message_end", "tool_execution_end", "usage_snapshot"} <= {event["type"] for event in events}
    assert max(len(str(event.get("result", ""))) for event in events) > 65_536


def test_each_step_has_its_recorded_session_and_one_was_cut_off() -> None:
    assert [len(agent.segments(step.phase)) for step in STEPS] == [1, 2, 1, 1, 1]
    assert [segment.is_cut for segment in agent.segments("executor")] == [True, False]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Said, str, Path]]:
    """What the demo said, its database and its state directory. Played once on each backend: it takes seconds."""
    folder = tmp_path_factory.mktemp("demo")
    if request.param == "sqlite":
        yield played(str(folder / "demo.db"), folder)
        return
    with request.getfixturevalue("postgres_server").database() as url:
        yield played(url, folder)


def played(url: str, folder: Path) -> tuple[Said, str, Path]:
    return lastlight_state("demo", "--url", url, "--state-dir", folder, "--json"), url, folder


def test_the_demo_ends_well_and_leaves_a_run_that_succeeded(told: tuple[Said, str, Path]) -> None:
    """packaging PT-2."""
    said, url, _ = told
    assert said.code == 0, said
    assert said.data["status"] == "succeeded"
    shown = lastlight_state("show", "run", said.data["run_id"], "--history", "--url", url, "--json").data
    assert shown["history"] == said.data["events"]
    assert [entry["phase"] for entry in shown["record"]["phase_history"]] == [step.phase for step in STEPS]


def test_a_worker_was_killed_and_another_one_resumed_the_phase(told: tuple[Said, str, Path]) -> None:
    """packaging PT-2."""
    said, _, _ = told
    assert ": kill -9 " in said.err
    outcomes = {found["id"]: (found["skill"], found["outcome"]) for found in said.data["executions"]}
    executor = [outcome for skill, outcome in outcomes.values() if skill == f"{WORKFLOW}:executor"]
    assert executor == ["interrupted", "succeeded"]
    assert [outcome for _, outcome in outcomes.values()].count("interrupted") == 1
    assert re.findall(r"(executor: )execution \S+, (attempt \d),", said.err) == [
        ("executor: ", "attempt 1"),
        ("executor: ", "attempt 2"),
    ]


def test_both_gates_paused_the_run_and_were_answered(told: tuple[Said, str, Path]) -> None:
    """packaging PT-2."""
    gates = [event["text"] for event in told[0].data["events"] if event["source"] == "approval"]
    assert gates == [
        f"gate {gate} {what}"
        for gate in ("post_architect", "post_reviewer")
        for what in ("asks for approval", "approved: go ahead")
    ]


def test_the_log_of_the_killed_session_holds_both_attempts_and_the_whole_result(told: tuple[Said, str, Path]) -> None:
    """packaging PT-2, agent-log L-71."""
    said, url, folder = told
    with StateStore.open(url, state_dir=folder) as store:
        session_id = said.data["session_id"]
        summary = store.agent_log.sessions.summary(session_id)
        kept = store.agent_log.raw.list(session_id)
        assert summary.result_count == 1
        assert len(kept) == 1
        assert kept[0].bytes > 65_536
        lines = [line.value for line in store.agent_log.reader.scan(session_id)]
    prompts = [line for line in lines if line["type"] == "user" and isinstance(line["message"]["content"], str)]
    assert len(prompts) == 2
    assert all("## Plan for acme/weather#42" in line["message"]["content"] for line in prompts)


def test_what_was_spent_is_counted_the_interrupted_attempt_included(told: tuple[Said, str, Path]) -> None:
    """packaging PT-2."""
    data = told[0].data
    meter = agent.Meter()
    for name in (*(step.phase for step in STEPS), "chat"):
        for event in events_of(name):
            meter.feed(event)
    usage = meter.usage
    assert float(data["cost_usd"]) == float(usage.cost_usd or 0)
    assert sum(found["output_tokens"] for found in data["executions"]) == usage.output_tokens
    assert sum(found["turns"] for found in data["executions"]) == usage.turns


def test_the_chat_is_stored_as_messages_and_as_a_log(told: tuple[Said, str, Path]) -> None:
    """packaging PT-3."""
    said, _, folder = told
    assert [message["role"] for message in said.data["messages"]] == ["user", "assistant"] * 2
    assert len(list((folder / "agent-sessions" / "projects" / "-app").glob("chat-*.jsonl"))) == 1


@pytest.mark.slow
def test_people_see_the_story_and_nothing_of_a_temporary_directory_stays(tmp_path: Path) -> None:
    """packaging PT-2."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    told = run_program([*PROGRAM, "demo"], env=environment, capture_output=True, text=True, check=True)
    headings = [
        line for line in told.stdout.splitlines() if line.startswith(("timeline", "executions", "chat", "trans"))
    ]
    assert [heading.split()[0] for heading in headings] == ["timeline", "executions", "chat", "transcript"]
    assert "\n8 executions, " in told.stdout
    assert " chat: second turn\n" in told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def database(sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock) -> Iterator[Database]:
    """One backend is enough for what only concerns processes."""
    with sqlite_template.fresh(tmp_path, frozen_clock) as database:
        yield database


def test_a_worker_takes_over_between_a_phase_and_its_gate(database: Database) -> None:
    """A worker that dies after the phase and before the gate leaves a run that the next one stops at the gate."""
    store = database.open()
    run_id = store.workflows.runs.create(WORKFLOW, trigger=TRIGGER, phase="architect").id
    worker.perform(store, run_id, STEPS[0])
    worker.drive(store, run_id)
    assert store.workflows.runs.get(run_id).status == "paused"
    assert [gate.gate for gate in store.workflows.approvals.list_pending()] == ["post_architect"]
    assert len(store.workflows.executions.list(run_id=run_id)) == 1


def test_a_gate_is_open_once_it_is_approved_and_opens_no_other(database: Database) -> None:
    """packaging PT-2: one that was only asked stays shut."""
    store = database.open()
    run_id = store.workflows.runs.create(WORKFLOW, trigger=TRIGGER, phase="architect").id
    worker.drive(store, run_id)
    (gate,) = store.workflows.approvals.list_pending()
    assert not worker.is_open(store, run_id, "post_architect")
    store.workflows.approvals.answer(gate.id, "approved", by="ana")
    assert worker.is_open(store, run_id, "post_architect")
    assert not worker.is_open(store, run_id, "post_reviewer")


def test_a_worker_whose_supervisor_is_gone_ends(database: Database) -> None:
    store = database.open()
    run_id = store.workflows.runs.create(WORKFLOW, trigger=TRIGGER, phase="architect").id
    worker.drive(store, run_id)
    (gate,) = store.workflows.approvals.list_pending()
    store.workflows.approvals.answer(gate.id, "approved", by="ana")
    settings = Settings(url=database.url, state_dir=database.state_dir)
    ended = run_program(
        [sys.executable, "-m", demo_command.WORKER, run_id],
        env=demo_command.environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 1
    (in_flight,) = store.workflows.executions.list(run_id=run_id, outcomes=["running"])
    assert in_flight.turns == 5


@pytest.mark.slow
def test_a_worker_that_fails_is_an_error(database: Database) -> None:
    settings = Settings(url=database.url, state_dir=database.state_dir)
    with pytest.raises(MisuseError, match="ended with 1"):
        demo_command.work(settings, "no-such-run", lambda _: None)


def test_a_worker_is_killed_where_its_supervisor_fails(database: Database) -> None:
    """It has done nothing of the run by then."""
    store = database.open()
    run_id = store.workflows.runs.create(WORKFLOW, trigger=TRIGGER, phase="architect").id

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo_command.work(Settings(url=database.url, state_dir=database.state_dir), run_id, interrupt)
    assert store.workflows.executions.list(run_id=run_id).items == ()


def test_an_interrupted_demo_leaves_no_worker_behind(database: Database, tmp_path: Path) -> None:
    """maintenance OP-72."""
    command = [*PROGRAM, "demo", "--url", database.url, "--state-dir", str(tmp_path)]
    with started(command) as program:
        assert program.stderr is not None
        pid = next(int(line.split()[-2]) for line in program.stderr if line.endswith("started\n"))
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=60)
    assert program.returncode == 143
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
