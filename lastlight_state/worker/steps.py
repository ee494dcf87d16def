"""The steps that a workflow's function performs for its run: phases, loops, questions, waits.

Each step is written once, as a coroutine. A thread worker runs it straight to its end, because its store's calls never
wait for an event loop. A task worker awaits the same calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from lastlight_state.clock import aware_utc
from lastlight_state.errors import (
    AlreadyExists,
    InvalidValue,
    MisuseError,
    PayloadTooLarge,
    StateError,
)
from lastlight_state.ids import new_id
from lastlight_state.journal import ANY, Signal
from lastlight_state.worker.calls import Entered, Left, RunFailed, failure_of, result_of
from lastlight_state.worker.memory import (
    POINTER,
    Place,
    check_type,
    parse_result,
    pointed_execution,
    read_output,
    stored_result,
)
from lastlight_state.worker.outages import outlast_outage, retry_in_outage
from lastlight_state.workflows import (
    Approval,
    Claim,
    Execution,
    ExecutionOptions,
    Gate,
    HumanRequest,
    NodeRef,
    Question,
    RunningExecution,
)
from lastlight_state.workflows.human_requests.checks import default_id

if TYPE_CHECKING:
    from lastlight_state.worker.held import HeldRun

T = TypeVar("T")
S = TypeVar("S")
W = TypeVar("W")
J = TypeVar("J")
B = TypeVar("B")


class _Arrived(Exception):
    """Raised to roll back a pause, because the awaited signal has already arrived."""


def require_input(given: Any) -> Any:
    """Return a job's input. Raises `MisuseError` if the workflow declares none."""
    if given is None:
        raise MisuseError("the workflow declares no input: register it with @worker.workflow(name, input=Model)")
    return given


class Steps(Generic[S, W, J, B]):
    """The steps of one place in a run: the run as a whole, or one turn of a loop.

    ``run`` is the run as the worker took it. ``store`` is the worker's store. Writes through ``workflows`` that drive
    the run, and all writes through ``journal``, carry the claim: they are refused once another worker holds the run.
    """

    def __init__(self, held: HeldRun[S, W, J, B], place: Place) -> None:
        self._held: Any = held
        self._place = place
        self.store = held.store
        self.run = held.run
        self.workflows = held.workflows
        self.journal = held.journal

    @property
    def claim(self) -> Claim:
        """Return the run's claim as it was last renewed."""
        return cast(Claim, self._held.driven.claim)

    def transaction(self, *, label: str | None = None) -> B:
        """Return a transaction over all domains. It is committed only if this worker still holds the run."""
        return cast(B, self._held.driven.transaction(label=label))

    def check(self) -> None:
        """Leave the function if the claim is lost, a cancel of the run was requested, or the worker stops.

        Every step calls this first. In long work, call it yourself wherever the run may be resumed later.
        """
        self._held.check()

    async def _phase(self, name: str, work: Callable[..., Any], returns: Any) -> Any:
        held, place = self._held, self._place
        path = place.path(place.take_name("phase", name))
        if name in place.results or (not place.loop and name in held.memory.outside):
            return parse_result(name, await outlast_outage(held, lambda: self._stored_result(name, path)), returns)
        held.check()
        if returns is not None:
            check_type(name, returns)
        limits = held.limits
        execution = RunningExecution(await self._start_execution(path), limits)
        try:
            result = await held.await_result(work(execution) if _takes_one(work) else work())
        except BaseException as error:
            await self._store_failure(execution, error)
            raise
        succeeds = execution.failure is None and execution.outcome in (None, "succeeded")
        try:
            async with held.storing_lock:
                room = held.memory.has_room(place)
                stored = stored_result(name, result, execution.output, returns, limits, has_room=room)
                value = {POINTER: execution.id} if stored.in_output else stored.value
                patch = held.memory.with_result(place, name, value) if succeeds else {}
                await self._finish(execution, stored.output, patch)
                if succeeds:
                    held.memory.keep(patch)
                    place.results[name] = value
                if place.loop and stored.output is not None:
                    held.memory.point(place.loop, execution.id)
        except StateError as error:
            await self._store_failure(execution, error)
            if isinstance(error, InvalidValue | PayloadTooLarge):  # a retry would fail in the same way
                raise RunFailed(f"phase {name!r}: {error}") from error
            raise
        return parse_result(name, stored.value, returns)

    async def _start_execution(self, path: str) -> Execution:
        """Start the execution of a phase. A retry after an unknown outcome does not start a second one."""
        held, executions = self._held, self._held.workflows.executions
        skill, options = f"{held.run.workflow_name}:{path}", ExecutionOptions(id=new_id())

        async def start() -> Execution:
            held.check()
            try:
                return cast(Execution, await result_of(executions.start(skill, run_id=held.run.id, options=options)))
            except AlreadyExists:
                return cast(Execution, await result_of(executions.get(options.id)))

        return await outlast_outage(held, start)

    async def _stored_result(self, name: str, path: str) -> Any:
        """Return the stored result of a phase that has already succeeded."""
        held, executions = self._held, self._held.workflows.executions
        value = self._place.results.get(name)
        found = pointed_execution(value)
        if name not in self._place.results:
            skill = f"{held.run.workflow_name}:{path}"
            of_run = await result_of(executions.list(run_id=held.run.id, skill=skill, outcomes=["succeeded"], limit=1))
            found = of_run.items[0].id if of_run.items else ""
        return value if found is None else read_output(await result_of(executions.find_output(found)))

    async def _finish(self, execution: RunningExecution, output: str | None, patch: dict[str, Any]) -> None:
        finish = partial(
            self._held.workflows.executions.finish_phase,
            execution.id,
            execution.outcome or ("failed" if execution.failure else "succeeded"),
            scratch=patch or None,
            usage=execution.usage,
            failure=execution.failure,
            stop_reason=execution.stop_reason,
            session_id=execution.session_id,
            output=output,
            pointer=self._place.loop if self._place.loop and output is not None else None,
            details=execution.details,
        )
        await outlast_outage(self._held, finish)

    async def _store_failure(self, execution: RunningExecution, error: BaseException) -> None:
        """Store that a phase raised, with its usage. If storing fails too, the phase's own error is still raised."""
        leaves = isinstance(error, Left) or self._held.is_stopped_by(error)
        executions = self._held.workflows.executions
        finish = partial(
            executions.finish if leaves else executions.finish_phase,
            execution.id,
            "interrupted" if leaves else "failed",
            usage=execution.usage,
            session_id=execution.session_id,
            stop_reason=execution.stop_reason,
            output=execution.output,
            details=execution.details,
            failure=failure_of(error),
        )
        try:
            await (result_of(finish()) if leaves else outlast_outage(self._held, finish))
        except StateError as failure:
            error.add_note(f"execution {execution.id!r} could not be finished: {type(failure).__name__}: {failure}")
            if execution.usage is not None:
                with suppress(StateError):  # the usage is stored even if another worker holds the run
                    await result_of(self._held.workflows.executions.update(execution.id, usage=execution.usage))

    @retry_in_outage
    async def _ask(self, gate: Gate | str, summary: str | None, details: Mapping[str, Any]) -> Approval:
        held, place = self._held, self._place
        asked = gate_of(gate, summary, details, place)
        place.take_name("gate", asked.gate)
        held.check()
        approvals = held.workflows.approvals
        found = await result_of(approvals.find(held.run.id, asked.gate, node=asked.node))
        return cast(Approval, await self._answer(approvals, found, asked))

    @retry_in_outage
    async def _question(self, question: Question) -> HumanRequest:
        held, place = self._held, self._place
        if place.loop:
            node = replace(question.node, node_id=f"{place.of}{question.node.node_id}", iteration=place.turn)
            question = replace(question, node=node)
        place.take_name("question", question.id or question.node.node_id)
        held.check()
        requests = held.workflows.human_requests
        found = await result_of(requests.find(question.id or default_id(held.run.id, question.node)))
        return cast(HumanRequest, await self._answer(requests, found, question))

    async def _answer(self, questions: Any, found: Any, asked: Gate | Question) -> Any:
        """Return the gate or question if it has been answered.

        Otherwise pause the run until it is, and leave the function.
        """
        if found is not None and found.status != "pending":
            return found
        run_id = self._held.run.id
        if found is None:
            await result_of(questions.pause(run_id, asked))
        else:
            await result_of(self._held.workflows.waits.pause(run_id, gates=[found.id]))
        raise Left

    @retry_in_outage
    async def _sleep(self, length: timedelta | None, until: datetime | None, name: str) -> None:
        held, place = self._held, self._place
        if (length is None) == (until is None):
            raise InvalidValue("until", "expected either a length of time or until=")
        place.take_name("wait", name)
        ends = self._end_of(name)
        if ends is None:
            ends = held.now() + length if length is not None else aware_utc("until", cast(datetime, until))
        if held.now() >= ends:
            return
        held.check()
        async with Entered(held.driven.transaction()) as tx:
            await result_of(tx.workflows.runs.merge_scratch(held.run.id, self._wait_until(name, ends)))
            await result_of(tx.workflows.waits.pause(held.run.id, until=ends))
        raise Left

    @retry_in_outage
    async def _wait_for(
        self, signal: str, correlation_id: str | None, within: timedelta | None, name: str | None
    ) -> Signal | None:
        held, place = self._held, self._place
        step = place.take_name("wait", name or signal)
        signals, consumer = held.journal.signals, place.once(step)
        sought = {"consumer": consumer, "correlation_id": ANY if correlation_id is None else correlation_id}
        if place.waits.get(step) == _TIMED_OUT:
            return None
        while True:
            held.check()
            taken: Signal | None = await result_of(signals.try_take(held.run.id, signal, **sought))
            if taken is not None:
                return taken
            ends = self._end_of(step)
            if ends is not None and held.now() >= ends:
                patch = self._wait_until(step, None)
                await result_of(held.workflows.runs.merge_scratch(held.run.id, patch))
                place.waits[step] = _TIMED_OUT
                held.memory.keep(patch)
                return None
            if ends is None and within is not None:
                ends = held.now() + within
            try:
                async with Entered(held.driven.transaction()) as tx:
                    if within is not None:
                        await result_of(tx.workflows.runs.merge_scratch(held.run.id, self._wait_until(step, ends)))
                    await result_of(
                        tx.workflows.waits.pause(held.run.id, signal=signal, correlation_id=correlation_id, until=ends)
                    )
                    here = await result_of(tx.journal.signals.try_take(held.run.id, signal, **sought))
                    _undo_if(here is not None)  # it came before the pause, so it would not wake the run
            except _Arrived:
                continue
            raise Left

    async def _emit(self, type: str, payload: dict[str, Any] | None, event_id: str | None) -> None:  # noqa: A002
        held, place = self._held, self._place
        key = None if event_id is None else place.once(event_id)
        append = partial(held.journal.events.append, held.run.id, type, payload, event_id=key)
        await outlast_outage(held, append, repeatable=key is not None)

    @retry_in_outage
    async def _answers(self) -> tuple[Approval, ...]:
        """Return the answered gates of earlier turns of this loop, oldest first."""
        held, place, token = self._held, self._place, None
        approvals = held.workflows.approvals
        found: list[Approval] = []
        while True:
            page = await result_of(approvals.list_for_run(held.run.id, limit=500, page_token=token))
            of_loop = [gate for gate in page.items if gate.node_id == place.node and gate.iteration < place.turn]
            found += [await result_of(approvals.get(gate.id)) for gate in of_loop if gate.status != "pending"]
            token = page.next_page_token
            if token is None:
                return tuple(found)

    @retry_in_outage
    async def _last_output(self) -> str | None:
        return cast(
            "str | None", await result_of(self._held.workflows.loops.find_output(self.run.id, self._place.loop))
        )

    def _end_of(self, name: str) -> datetime | None:
        kept = self._place.waits.get(name)
        return datetime.fromisoformat(kept) if isinstance(kept, str) and kept != _TIMED_OUT else None

    def _wait_until(self, name: str, ends: datetime | None) -> dict[str, Any]:
        """Return the scratch patch that stores the end of a wait. ``ends=None`` records that the wait timed out."""
        kept = _TIMED_OUT if ends is None else ends.isoformat()
        return cast(dict[str, Any], self._held.memory.with_wait(self._place, name, kept))


#: Stored in place of a wait's end after the signal did not arrive in time.
_TIMED_OUT = "timed out"


def _undo_if(arrived: bool) -> None:
    if arrived:
        raise _Arrived


def _takes_one(work: Callable[..., Any]) -> bool:
    """True if the function requires one positional argument: the running execution."""
    try:
        parameters = inspect.signature(work).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(one.kind in positional and one.default is inspect.Parameter.empty for one in parameters)


def gate_of(gate: Gate | str, summary: str | None, details: Mapping[str, Any], place: Place) -> Gate:
    """Return the gate that `Job.ask` describes. In a turn of a loop, its node is by default the loop's node."""
    if isinstance(gate, Gate):
        return gate
    if summary is None:
        raise InvalidValue("summary", "a gate needs a text for the person who answers it")
    at = {"node": NodeRef(place.node, place.turn)} if place.loop and "node" not in details else {}
    return Gate(gate, summary, **{**at, **details})
