"""Spans, durations and gauges by OpenTelemetry, for services that ask for them (extra ``otel``).

::

    from lastlight_state import telemetry

    telemetry.instrument()          # once in a process: a span and a duration for each call of a repository
    telemetry.observe(store)        # gauges of what waits, read when the exporter asks

Without `instrument` a call pays for one comparison. The counters of `lastlight_state.metrics` need neither.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lastlight_state import metrics as own_metrics
from lastlight_state.errors import MisuseError, StateError
from lastlight_state.lazy import load
from lastlight_state.workflows import RunFilter

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
    from opentelemetry.trace import TracerProvider

    from lastlight_state.store import StateStore

NAME = "lastlight_state"
#: The most claimable runs that a gauge counts. If there are more, this number is reported.
MOST_CLAIMABLE = 500

#: Bucket bounds for histograms of seconds, as OpenTelemetry's database conventions recommend.
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)

#: The span in which the present call was made; it may be invalid. None: there is no call.
_caller: ContextVar[Any] = ContextVar("lastlight_state_caller", default=None)
#: The names of the database products in OpenTelemetry.
_SYSTEMS = {"sqlite": "sqlite", "postgresql": "postgresql"}


def instrument(*, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None) -> None:
    """Record a span and a duration for each repository call in this process, sync and async.

    A span is named after its method (``workflows.runs.create``). It has ``db.system.name``, ``db.operation.name``,
    ``lastlight.run_id`` if the call names a run, and ``error.type``: the code of one of our errors. The histogram is
    ``db.client.operation.duration``, in seconds. A run created in a span stores the trace and span, unless `Provenance`
    names others. No span contains stored values. Raises `MisuseError` without OpenTelemetry.

    Two more histograms record waits. ``db.client.connection.wait_time``: each Postgres unit's wait for a connection.
    ``lastlight_state.lock.wait_time``: each writing unit's wait for the lock of its SQLite file (``lastlight.lock`` is
    ``file``), and each wait for a named lock (``named``).
    """
    trace, metrics = _api("trace"), _api("metrics")
    tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
    meter = metrics.get_meter(NAME, meter_provider=meter_provider)
    histogram = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=BUCKETS)
    durations = histogram("db.client.operation.duration", description="Duration of calls of the state layer.")
    own_metrics.observer = _Spans(trace, tracer, durations)
    own_metrics.waits = _waits(
        histogram("db.client.connection.wait_time", description="Wait for a connection of the pool."),
        histogram(f"{NAME}.lock.wait_time", description="Wait for the lock of a SQLite file, or for a named lock."),
    )
    own_metrics.current_span = lambda: _ids(_caller.get())


def uninstrument() -> None:
    """Stop recording spans, durations and waits."""
    own_metrics.observer = own_metrics.current_span = own_metrics.waits = None


def observe(store: StateStore, *, meter_provider: MeterProvider | None = None) -> None:
    """Register gauges of a store. They are read when an exporter requests them, and write nothing.

    ``lastlight_state.pending_approvals``, ``lastlight_state.pending_requests`` and ``lastlight_state.queued_runs`` are
    each read by a count, and ``lastlight_state.claimable_runs`` by a list of at most 500. If the store is closed or the
    database cannot be reached, nothing is reported.
    """
    metrics = _api("metrics")
    meter = metrics.get_meter(NAME, meter_provider=meter_provider)
    workflows = store.workflows

    def claimable() -> int:
        with store.view() as view:  # a view does not expire overdue questions first
            return len(view.workflows.claims.list_claimable(limit=MOST_CLAIMABLE).items)

    gauges: dict[str, Callable[[], int]] = {
        "pending_approvals": workflows.approvals.count_pending,
        "pending_requests": workflows.human_requests.count_pending,
        "queued_runs": lambda: workflows.lookups.count(RunFilter(statuses=["queued"])).value,
        "claimable_runs": claimable,
    }
    for name, count in gauges.items():
        meter.create_observable_gauge(f"{NAME}.{name}", callbacks=[_gauge(metrics.Observation, count)])


def _waits(pool: Histogram, lock: Histogram) -> Callable[[own_metrics.Awaited, float], None]:
    def record_wait(awaited: own_metrics.Awaited, seconds: float) -> None:
        if awaited == "pool":
            pool.record(seconds, {"db.system.name": "postgresql", "db.client.connection.pool.name": NAME})
        else:
            lock.record(seconds, {"lastlight.lock": awaited})

    return record_wait


def _gauge(
    observation: Callable[[int], Observation], count: Callable[[], int]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe_count(_: CallbackOptions) -> Iterator[Observation]:
        try:
            yield observation(count())
        except StateError:  # an unreachable database is reported elsewhere
            return

    return observe_count


class _Spans:
    """Records a span for each call, except calls that are made inside another call."""

    def __init__(self, trace: Any, tracer: Any, durations: Any) -> None:
        self._current = trace.get_current_span
        self._client = trace.SpanKind.CLIENT
        self._tracer = tracer
        self._durations = durations

    def __call__(self, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if _caller.get() is not None:
            return method(*given, **named)
        name, run_at = _method_facts(method)
        told = {"db.system.name": _system(given), "db.operation.name": name}
        run_id = named.get("run_id") if run_at is None or run_at >= len(given) else given[run_at]
        facts = told if not isinstance(run_id, str) else {**told, "lastlight.run_id": run_id}
        began = time.perf_counter()
        caller = _caller.set(self._current().get_span_context())
        try:
            with self._tracer.start_as_current_span(name, kind=self._client, attributes=facts) as span:
                try:
                    return method(*given, **named)
                except Exception as error:  # raised again after its span has named it
                    told["error.type"] = error.code if isinstance(error, StateError) else type(error).__qualname__
                    span.set_attribute("error.type", told["error.type"])
                    raise
        finally:
            _caller.reset(caller)
            self._durations.record(time.perf_counter() - began, told)


@cache
def _method_facts(method: Callable[..., Any]) -> tuple[str, int | None]:
    """Return the public name of a method, and the position of the argument that names its run."""
    module = method.__module__.removeprefix(f"{NAME}.").split(".")
    domain, owner = module[0], method.__qualname__.partition(".")[0]
    repository = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in owner).lstrip("_")
    parameters = list(inspect.signature(method).parameters)
    place = parameters.index("run_id") if "run_id" in parameters else None
    return f"{domain}.{repository}.{method.__name__}", place


def _system(given: tuple[Any, ...]) -> str:
    name = given[0]._scope.backend.name if given else ""
    return _SYSTEMS.get(name, name)


def _ids(context: Any) -> tuple[str, str] | None:
    return None if context is None or not context.is_valid else (f"{context.trace_id:032x}", f"{context.span_id:016x}")


def _api(name: str) -> Any:
    try:
        return load(f"opentelemetry.{name}")
    except ImportError as error:
        raise MisuseError("OpenTelemetry is not installed: pip install lastlight-state[otel]", extra="otel") from error
