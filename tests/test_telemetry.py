"""Spans, durations and gauges, checked with the SDK's exporters in memory."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.callers import engine_on
from support.docs.pages import ROOT, blocks

from lastlight_state import AsyncStateStore, Settings, StateStore, metrics, telemetry
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, Provenance, RunOptions, Trigger, WorkflowRun


class Exported:
    """What was exported, and a tracer of the host's own."""

    def __init__(self) -> None:
        self.memory = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracer = tracers.get_tracer("host")
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        telemetry.instrument(tracer_provider=tracers, meter_provider=self.meters)

    def spans(self) -> list[Any]:
        return [span for span in self.memory.get_finished_spans() if span.name != "host"]

    def metric(self, name: str) -> Any:
        """The points of a metric."""
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
        found = [one for scope in scopes for one in scope.metrics if one.name == name]
        return [point for one in found for point in one.data.data_points]


@pytest.fixture
def exported() -> Iterator[Exported]:
    """Everything that is exported in this test."""
    try:
        yield Exported()
    finally:
        telemetry.uninstrument()


def begun(store: StateStore, **options: Any) -> WorkflowRun:
    return store.workflows.runs.create(
        "review", trigger=Trigger("t", type="cli"), phase="plan", options=RunOptions(**options)
    )


def test_each_call_is_a_span_with_its_verb_run_and_database(database: Database, exported: Exported) -> None:
    """house H-105: a call that a call makes is no span of its own."""
    store = database.open()
    run = begun(store)
    store.workflows.approvals.pause(run.id, Gate("ship", "Ship it?"))
    store.workflows.runs.get(run_id=run.id)
    assert [span.name for span in exported.spans()] == [
        "workflows.runs.create",
        "workflows.approvals.pause",
        "workflows.runs.get",
    ]
    system = "sqlite" if database.name == "sqlite" else "postgresql"
    assert [dict(span.attributes) for span in exported.spans()[1:]] == [
        {"db.system.name": system, "db.operation.name": span.name, "lastlight.run_id": run.id}
        for span in exported.spans()[1:]
    ]
    assert {span.kind for span in exported.spans()} == {trace.SpanKind.CLIENT}


def test_a_call_that_fails_names_its_error(sqlite_database: Database, exported: Exported) -> None:
    """house H-105."""
    store = sqlite_database.open()
    with pytest.raises(NotFound):
        store.workflows.runs.get("nobody")
    with pytest.raises(InvalidValue):
        store.workflows.runs.list(limit=0)
    assert [span.attributes["error.type"] for span in exported.spans()] == ["not_found", "invalid_value"]
    assert {span.status.status_code for span in exported.spans()} == {trace.StatusCode.ERROR}
    assert [point.count for point in exported.metric("db.client.operation.duration")] == [1, 1]


def test_a_run_keeps_the_span_that_it_was_created_in(database: Database, exported: Exported) -> None:
    """house H-106: what the caller names is kept, and without a span nothing is."""
    store = database.open()
    with exported.tracer.start_as_current_span("host") as span:
        run = begun(store)
        named = begun(store, provenance=Provenance(trace_id="mine"))
    context = span.get_span_context()
    assert (run.trace_id, run.span_id) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    assert (named.trace_id, named.span_id) == ("mine", None)
    [first, *_] = exported.spans()
    assert first.parent.span_id == context.span_id
    telemetry.uninstrument()
    assert begun(store).trace_id is None


def test_calls_of_coroutines_stand_below_their_own_spans(database: Database, exported: Exported) -> None:
    """house H-105."""

    async def main() -> list[str]:
        async with await AsyncStateStore.open(database.url) as store:

            async def one(number: int) -> str:
                with exported.tracer.start_as_current_span("host") as span:
                    await store.workflows.runs.list(limit=number)
                return f"{span.get_span_context().span_id:016x}"

            return list(await asyncio.gather(*(one(number) for number in range(1, 9))))

    parents = asyncio.run(main())
    found = [f"{span.parent.span_id:016x}" for span in exported.spans() if span.name == "workflows.runs.list"]
    assert sorted(found) == sorted(parents)


def test_gauges_write_nothing(database: Database, exported: Exported) -> None:
    """house H-107: a question that is overdue stays as it is stored until somebody takes its run."""
    store = database.open()
    telemetry.observe(store, meter_provider=exported.meters)
    run = begun(store)
    store.workflows.approvals.pause(
        run.id, Gate("ship", "Ship it?", expires_at=database.clock.now() + timedelta(seconds=1))
    )
    database.clock.advance(seconds=60)
    assert exported.metric("lastlight_state.claimable_runs")[0].value == 0
    assert exported.metric("lastlight_state.pending_approvals")[0].value == 0
    stored = database.raw().execute("SELECT status FROM workflow_approvals").fetchone()
    assert stored == ("pending",)


def test_gauges_tell_what_waits(database: Database, exported: Exported) -> None:
    """house H-107: a store that is closed tells nothing, and disturbs no exporter."""
    store = StateStore.open(database.url)
    telemetry.observe(store, meter_provider=exported.meters)
    begun(store, status="queued")
    begun(store, offered=True)
    store.workflows.approvals.pause(begun(store).id, Gate("ship", "Ship it?"))
    expected = {"pending_approvals": 1, "pending_requests": 0, "queued_runs": 1, "claimable_runs": 1}
    assert {name: exported.metric(f"lastlight_state.{name}")[0].value for name in expected} == expected
    store.close()
    assert exported.metric("lastlight_state.queued_runs") == []


def test_waits_for_a_connection_and_for_locks_are_histograms(database: Database, exported: Exported) -> None:
    """house H-117: in seconds, with bounds that tell milliseconds apart."""
    store = database.open(settings=Settings(pool_size=1))
    backend: Any = store.backend
    line = (backend._pool if database.name == "postgresql" else backend)._line
    entered, never = threading.Event(), threading.Event()

    def hold() -> None:
        with store.transaction():
            entered.set()
            while len(line) < 2:
                never.wait(0.01)
            never.wait(0.05)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        entered.wait()
        begun(store)
        holding.result()
    name = "db.client.connection.wait_time" if database.name == "postgresql" else "lastlight_state.lock.wait_time"
    [point] = exported.metric(name)
    assert point.count >= 2
    assert point.max >= 0.05 > point.min
    assert 0.005 in point.explicit_bounds


def test_waits_for_named_locks_are_told(postgres_database: Database, exported: Exported) -> None:
    """house H-117: an admission of the queue holds one."""
    store = postgres_database.open()
    begun(store, status="queued")
    store.workflows.queue.admit_next(cap=1, owner="w", lease=timedelta(seconds=5))
    points = exported.metric("lastlight_state.lock.wait_time")
    assert [dict(point.attributes) for point in points] == [{"lastlight.lock": "named"}]


@pytest.mark.parametrize("has_engine", [False, True])
def test_without_telemetry_no_unit_is_timed(
    database: Database, exported: Exported, monkeypatch: pytest.MonkeyPatch, *, has_engine: bool
) -> None:
    """house H-117: also on a caller's engine."""
    timed: list[str] = []

    def noted(awaited: str, call: Callable[..., Any], *given: Any) -> Any:
        timed.append(awaited)
        return call(*given)

    monkeypatch.setattr(metrics, "time_call", noted)
    engine = engine_on(database) if has_engine else None
    store = database.open(engine=engine) if engine is not None else database.open()
    begun(store)
    assert timed
    timed.clear()
    telemetry.uninstrument()
    begun(store)
    assert timed == []
    store.close()
    if engine is not None:
        engine.dispose()


@pytest.mark.slow
def test_the_recipe_for_prometheus_runs(sqlite_database: Database) -> None:
    """house H-118: counters, gauges and histograms are on its page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    [recipe] = blocks(ROOT / "docs" / "operations.md", "py")
    opened = f"StateStore.open({sqlite_database.url!r})"
    text = recipe.text.replace("9464", str(port)).replace("StateStore.open()", opened)
    program = f"""
{text}
from urllib.request import urlopen
from lastlight_state.workflows import RunOptions, Trigger
store.workflows.runs.create("review", trigger=Trigger("t"), phase="p", options=RunOptions(status="queued"))
store.metrics.count("retries")
print(urlopen("http://127.0.0.1:{port}/metrics").read().decode())
"""
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    samples = [line for line in told.splitlines() if not line.startswith("#")]
    for wanted in (
        r"lastlight_state_queued_runs\{.*\} 1\.0",
        r"lastlight_state_retries_total\{.*\} 1\.0",
        r'db_client_operation_duration_seconds_count\{.*db_operation_name="workflows.runs.create".*\} 1\.0',
        r'lastlight_state_lock_wait_time_seconds_bucket\{.*le="0.5".*\} 1\.0',
    ):
        assert any(re.fullmatch(wanted, line) for line in samples), told


def test_without_opentelemetry_the_extra_is_named() -> None:
    """house H-105."""
    program = (
        "import sys; sys.modules['opentelemetry'] = None\nfrom lastlight_state import telemetry\ntelemetry.instrument()"
    )
    failed = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert "MisuseError: OpenTelemetry is not installed: pip install lastlight-state[otel]" in failed.stderr
