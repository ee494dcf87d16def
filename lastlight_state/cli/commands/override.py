"""``override``: sets, shows or clears an operator's override of a workflow or cron."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from lastlight_state.cli.arguments import BY, acting_person
from lastlight_state.cli.opening import read_once, writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views import attention
from lastlight_state.cli.views.attention import Switch
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore

_TARGETS = ("workflow", "cron")
#: Most overrides of workflows, and of crons, that are listed.
_MOST = 500


@command("override")
@click.argument("target", metavar="[workflow|cron", required=False, shell_complete=lambda *_: list(_TARGETS))
@click.argument("name", metavar="NAME]", required=False)
@click.option("--on/--off", "is_on", default=None, help="It runs, or it does not.")
@click.option("--schedule", metavar="PATTERN", help="Of a cron: when it runs.")
@click.option("--clear", is_flag=True, help="What the program says holds again.")
@click.option("--reason", metavar="TEXT", help="Of a workflow: why.")
@BY
def run(
    call: Call,
    target: str | None,
    name: str | None,
    is_on: bool | None,
    schedule: str | None,
    clear: bool,
    reason: str | None,
    by: str | None,
) -> Answer:
    """Switch a workflow or cron on or off, or give a cron another schedule, until the override is cleared.

    Without a name, list the overrides of workflows and crons: by whom, since when and why. With only a name, show what
    is in effect for it.
    """
    says_nothing = is_on is None and schedule is None and not clear
    if target is None:
        if not says_nothing or reason is not None:
            raise click.UsageError("Missing argument 'workflow|cron': which one?")
        found = read_once(call, lambda store: attention.switches(store, _MOST))
        return Answer({"overrides": [one._asdict() for one in found]}, lambda screen: _list(found, screen))
    valid.word("workflow|cron", target, _TARGETS)
    if name is None:
        raise click.UsageError(f"Missing argument 'NAME': which {target}?")
    if says_nothing and reason is None:
        return _answer(target, name, read_once(call, lambda store: _in_effect(store, target, name)))
    if clear is not (is_on is None and schedule is None):
        raise InvalidValue("override", "expected --on, --off or --schedule, or else --clear")
    switched = UNSET if is_on is None else is_on
    with writable_store(call) as store:
        if target == "workflow":
            data = _workflow(store, name, switched, schedule, reason, acting_person(by))
        else:
            data = _cron(store, name, switched, schedule, reason, acting_person(by))
    return _answer(target, name, data)


def _answer(target: str, name: str, data: Any) -> Answer:
    return Answer(data, lambda _: [_status_line(target, name, data)])


def _list(found: Sequence[Switch], screen: Screen) -> Iterator[Any]:
    if not found:
        yield "(nothing is switched)"
    else:
        yield from screen.table(attention.SWITCHES, found)


def _in_effect(store: StateStore, target: str, name: str) -> Any:
    """Return the settings in effect for a workflow or cron, and its override if there is one."""
    if target == "cron":
        return {"override": store.schedules.overrides.find(name), "effective": store.schedules.crons.find(name)}
    return {"override": store.workflows.overrides.find(name), **_effective(store, name)}


def _effective(store: StateStore, name: str) -> dict[str, Any]:
    known = bool(store.workflows.runs.list(workflow_names=[name], limit=1).items)
    return {"effective": {"enabled": store.workflows.overrides.is_enabled(name)}, "has_runs": known}


def _workflow(store: StateStore, name: str, switched: Any, schedule: str | None, reason: str | None, by: str) -> Any:
    overrides = store.workflows.overrides
    if schedule is not None:
        raise InvalidValue("--schedule", "only a cron has one")
    if switched is UNSET:
        overrides.clear(name)
        stored = None
    else:
        stored = overrides.put(name, enabled=switched, by=by, reason=reason)
    return {"override": stored, **_effective(store, name)}


def _cron(store: StateStore, name: str, switched: Any, schedule: str | None, reason: str | None, by: str) -> Any:
    overrides = store.schedules.overrides
    if reason is not None:
        raise InvalidValue("--reason", "only the override of a workflow keeps one")
    if switched is UNSET and schedule is None:
        overrides.clear(name)
        stored = None
    else:
        stored = overrides.put(name, enabled=switched, schedule=UNSET if schedule is None else schedule, by=by)
    return {"override": stored, "effective": store.schedules.crons.find(name)}


def _status_line(target: str, name: str, data: Any) -> str:
    effective = data["effective"]
    if effective is None:
        return f"cron {name}: overridden, and not planned by any program yet" if data["override"] else f"cron {name}: -"
    if target == "workflow":
        hint = "" if data["has_runs"] else " (no run of this name is stored: is it spelled right?)"
        return f"workflow {name}: {'on' if effective['enabled'] else 'off'}{hint}"
    due = effective.next_run_at
    return f"cron {name}: {'never' if due is None else f'next at {due:%Y-%m-%dT%H:%M:%SZ}'}"
