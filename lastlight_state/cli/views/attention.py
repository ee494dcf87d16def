"""What needs attention: questions to people, runs without a worker, unhealthy runs, and what is switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import filterfalse, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from lastlight_state import iterate
from lastlight_state.cli.screen import Column, Screen, shortest
from lastlight_state.cli.views.pending import Waiting, name_of, pending_items, text_of
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.lazy import Module
from lastlight_state.store import StateStore

if TYPE_CHECKING:
    from lastlight_state.workflows import UnhealthyRun, WaitingWorkflow, sentences
else:
    sentences = Module("lastlight_state.workflows.sentences")

#: Most items of each list that are shown on a terminal.
FEW = 5
#: Most overrides that are searched for those that are off.
_MOST_SWITCHES = 500


class Switch(NamedTuple):
    """An operator's override of a workflow or a cron."""

    target: str
    name: str
    enabled: bool | None
    schedule: str | None
    by: str | None
    since: Any
    reason: str | None


class Attention(NamedTuple):
    """All that needs attention: four lists, each up to the requested length."""

    questions: Sequence[Waiting]
    waiting: Sequence[WaitingWorkflow]
    unhealthy: Sequence[Any]
    switched_off: Sequence[Switch]

    @property
    def data(self) -> dict[str, Any]:
        """Return the lists as the object that `--json` prints."""
        return {**self._asdict(), "switched_off": [switch._asdict() for switch in self.switched_off]}


SWITCHES: tuple[Column[Switch], ...] = (
    Column("WHAT", lambda one: one.target),
    Column("NAME", lambda one: one.name),
    Column("ENABLED", lambda one: one.enabled),
    Column("SCHEDULE", lambda one: one.schedule, rank=2),
    Column("BY", lambda one: one.by, rank=1),
    Column("SINCE", lambda one: one.since, keep=True),
    Column("REASON", lambda one: one.reason, below=True),
)


def read_attention(store: StateStore, limit: int) -> Attention:
    """Read what needs attention, at most ``limit`` items per list."""
    off = [switch for switch in switches(store, _MOST_SWITCHES) if switch.enabled is False]
    free = store.workflows.workers.list_waiting()
    unhealthy = _first(store.workflows.health.list_unhealthy, limit, but=_only_unserved)
    return Attention(pending_items(store, limit), free[:limit], unhealthy, off[:limit])


def _only_unserved(run: UnhealthyRun) -> bool:
    """True if the run's only trouble is that no worker takes it. Such runs are listed by workflow."""
    return run.state.unhealthy == ("no_worker",)


def switches(store: StateStore, limit: int) -> list[Switch]:
    """Return the overrides of workflows and of crons, at most ``limit`` of each."""
    workflows = _first(store.workflows.overrides.list, limit)
    crons = _first(store.schedules.overrides.list, limit)
    return [
        *(
            Switch("workflow", one.name, one.enabled, None, one.updated_by, one.updated_at, one.reason)
            for one in workflows
        ),
        *(Switch("cron", one.name, one.enabled, one.schedule, one.updated_by, one.updated_at, None) for one in crons),
    ]


def lines(found: Attention, command: Callable[..., str], screen: Screen) -> Iterator[Any]:
    """Return a summary line, then each item with its reason and remedy. ``command`` formats command lines."""
    most = None if screen.width is None else FEW
    parts: tuple[tuple[str, int, Iterator[Any], str], ...] = (
        (
            "waits for a person",
            len(found.questions),
            _questions(found.questions[:most], screen),
            f"answer: {command('inbox')}",
        ),
        (
            "waits for a worker",
            len(found.waiting),
            _waiting_lines(found.waiting[:most], screen),
            f"which there are: {command('ls', 'workers')}",
        ),
        (
            "runs that are not well",
            len(found.unhealthy),
            _unhealthy(found.unhealthy[:most], command, screen),
            f"look at one: {command('show', 'ID')}",
        ),
        (
            "switched off",
            len(found.switched_off),
            _switch_lines(found.switched_off[:most], screen),
            f"all changes: {command('override')}",
        ),
    )
    if not any(count for _, count, *_ in parts):
        yield "(nothing needs attention)"
        return
    yield from screen.wrapped_lines(_summary(found))
    for title, count, told, hint in parts:
        if count:
            yield ""
            yield screen.heading(f"{title} ({count})")
            yield from told
            more = 0 if most is None else max(count - most, 0)
            yield f"and {more} more; {hint}" if more else hint


def _summary(found: Attention) -> str:
    """Return a sentence with the number of waiting items, and the number that wait for a person and for a worker."""
    runs = sum(one.runs for one in found.waiting)
    told = (
        (len(found.questions), "question waits for a person", "questions wait for a person"),
        (runs, "run waits for a worker", "runs wait for a worker"),
        (len(found.unhealthy), "run is not well", "runs are not well"),
        (len(found.switched_off), "is switched off", "are switched off"),
    )
    return "; ".join(f"{count} {one if count == 1 else many}" for count, one, many in told if count)


def _questions(items: Sequence[Waiting], screen: Screen) -> Iterator[Any]:
    now, ids = SYSTEM_CLOCK.now(), _ids([one.id for one in items], screen)
    for one in items:
        asked = f"asked {screen.ago(one.asked_at, now)}"
        yield from screen.wrapped_lines(
            f"{ids[one.id]}  {one.workflow_name} waits for an answer to *{name_of(one)}*, {asked}"
        )
        yield from screen.indented_lines(text_of(one))


def _waiting_lines(items: Sequence[WaitingWorkflow], screen: Screen) -> Iterator[Any]:
    now = SYSTEM_CLOCK.now()
    for one in items:
        runs = "1 run" if one.runs == 1 else f"{one.runs} runs"
        yield from screen.wrapped_lines(
            f"{one.workflow_name}: {runs}, the first free to be taken {screen.ago(one.since, now)}"
        )
        yield from screen.indented_lines(one.why)


def _unhealthy(items: Sequence[UnhealthyRun], command: Callable[..., str], screen: Screen) -> Iterator[Any]:
    """Yield the unhealthy runs grouped by trouble, so that each trouble and remedy is printed once."""
    now, ids = SYSTEM_CLOCK.now(), _ids([one.id for one in items], screen)
    groups: dict[str, list[UnhealthyRun]] = {}
    for one in items:
        groups.setdefault(sentences.trouble_text(one.state.unhealthy), []).append(one)
    for told, runs in groups.items():
        yield from screen.wrapped_lines(told)
        for one in runs:
            yield f"    {ids[one.id]}  {one.workflow_name}, began {screen.ago(one.started_at, now)}"
        first = sentences.troubles(runs[0].state.unhealthy)[0]
        yield from screen.indented_lines(first.todo if first.verb is None else f"{first.todo}:")
        if first.verb is not None:
            yield f"    {command('run', 'ID', *first.verb.split())}"


def _switch_lines(items: Sequence[Switch], screen: Screen) -> Iterator[Any]:
    now = SYSTEM_CLOCK.now()
    for one in items:
        by = "" if one.by is None else f" by {one.by}"
        why = "" if one.reason is None else f": {one.reason}"
        yield from screen.wrapped_lines(f"{one.target} {one.name}, switched off {screen.ago(one.since, now)}{by}{why}")


def _ids(ids: Sequence[str], screen: Screen) -> dict[str, str]:
    """Return each id as the screen shows it: on a terminal, as a prefix of the shortest length at which all differ."""
    return {one: one for one in ids} if screen.width is None else shortest(ids)


def _first(pages: Callable[..., Any], limit: int, but: Callable[[Any], bool] = lambda _: False) -> list[Any]:
    return list(islice(filterfalse(but, iterate(pages)), limit))
