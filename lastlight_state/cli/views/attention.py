"""What needs attention: what waits for a person or a worker, runs that are not well, and what is switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import filterfalse, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from lastlight_state import iterate
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views.kind import column
from lastlight_state.cli.views.pending import TEXT, WHAT, Waiting, waiting
from lastlight_state.cli.views.run_kinds import UNHEALTHY, WAITING_WORKFLOWS
from lastlight_state.store import StateStore

if TYPE_CHECKING:
    from lastlight_state.workflows import UnhealthyRun, WaitingWorkflow

#: So many of each list are shown on a terminal.
FEW = 5
#: Of so many, those that are off are looked for.
_MOST_SWITCHES = 500


class Switch(NamedTuple):
    """A workflow or a cron that an operator has changed."""

    target: str
    name: str
    enabled: bool | None
    schedule: str | None
    by: str | None
    since: Any
    reason: str | None


class Attention(NamedTuple):
    """All of it, each list with at most so many as were asked for."""

    questions: Sequence[Waiting]
    waiting: Sequence[WaitingWorkflow]
    unhealthy: Sequence[Any]
    switched_off: Sequence[Switch]

    @property
    def data(self) -> dict[str, Any]:
        """Return it as the object that `--json` prints."""
        return {**self._asdict(), "switched_off": [switch._asdict() for switch in self.switched_off]}


QUESTIONS = (
    column("ID", is_id=True),
    WHAT,
    column("WORKFLOW", "workflow_name"),
    column("ASKED", "asked_at", keep=True),
    TEXT,
)
SWITCHES = (
    column("WHAT", "target"),
    column("NAME"),
    column("ENABLED"),
    column("SCHEDULE", rank=2),
    column("BY", rank=1),
    column("SINCE", keep=True),
    column("REASON", below=True),
)


def read_attention(store: StateStore, limit: int) -> Attention:
    """Return what needs attention."""
    off = [switch for switch in switches(store, _MOST_SWITCHES) if switch.enabled is False]
    free = store.workflows.workers.list_waiting()
    unhealthy = _first(store.workflows.health.list_unhealthy, limit, but=_only_unserved)
    return Attention(waiting(store, limit), free[:limit], unhealthy, off[:limit])


def _only_unserved(run: UnhealthyRun) -> bool:
    """True if nothing is wrong with a run but that it waits for a worker, which is told by its workflow."""
    return run.state.unhealthy == ("no_worker",)


def switches(store: StateStore, limit: int) -> list[Switch]:
    """Return the overrides of workflows and of crons, of each so many at most."""
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
    """Return a table of each list that has anything, and what to call next, as ``command`` writes it."""
    parts = (
        ("waits for a person", QUESTIONS, found.questions, f"answer: {command('inbox')}"),
        ("waits for a worker", WAITING_WORKFLOWS, found.waiting, f"which there are: {command('ls', 'workers')}"),
        ("runs that are not well", UNHEALTHY, found.unhealthy, f"look at one: {command('show', 'ID')}"),
        ("switched off", SWITCHES, found.switched_off, f"all changes: {command('override')}"),
    )
    is_first = True
    for title, columns, items, hint in parts:
        if items:
            if not is_first:
                yield ""
            shown = items if screen.width is None else items[:FEW]
            yield screen.heading(f"{title} ({len(items)})")
            yield from screen.table(columns, shown)
            yield f"and {len(items) - len(shown)} more; {hint}" if len(items) > len(shown) else hint
            is_first = False
    if is_first:
        yield "(nothing needs attention)"


def _first(pages: Callable[..., Any], limit: int, but: Callable[[Any], bool] = lambda _: False) -> list[Any]:
    return list(islice(filterfalse(but, iterate(pages)), limit))
