"""``show``: shows one record, and what belongs to it. Never writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from lastlight_state.cli import opening
from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views import kind, maintenance, run_head
from lastlight_state.cli.views.kind import Kind, needed_run
from lastlight_state.cli.views.kinds import BY_NAME, COLUMNS, SINGULARS
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Page
from lastlight_state.domains import View
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import TimelineEntry
from lastlight_state.store import StateStore
from lastlight_state.workflows import RunState, UsageTotals


@dataclass(frozen=True)
class ShownRecord:
    """A record with its children. For an execution also its output text, and for a run its state and history."""

    kind: Kind
    record: Any
    children: Mapping[str, Page[Any]]
    output_text: str | None
    history: tuple[TimelineEntry, ...] | None
    state: RunState | None = None
    usage: UsageTotals | None = None
    why: str | None = None


@command("show")
@click.argument("kind", metavar="[KIND]", shell_complete=lambda *_: list(BY_NAME))
@click.argument("key", metavar="ID", required=False)
@click.option(
    "--run", "run_id", metavar="ID", help="The run that the record belongs to, for kinds that have a number there."
)
@click.option("--full", is_flag=True, help="Show long texts whole, and fields that are empty.")
@click.option("--history", is_flag=True, help="Of a run: everything that happened to it.")
def run(call: Call, kind: str, key: str | None, run_id: str | None, full: bool, history: bool) -> Answer:
    """Show one record with what belongs to it: executions and gates of a run, messages of a chat, fires of a cron.

    KIND is run, execution, approval, question, worker, messaging, session, thread, state, cron, fire, receipt, output,
    score or input, or with --run also event, signal, frame, tool-call or sandbox. The plural works too. KIND may be
    omitted if the ID alone identifies the record. ID is its id, name or key. For an input it is the run's id, and
    for records of a run their number in it. The beginning of an id is enough if no other id begins with it. last is the
    newest record.
    """
    kind = SINGULARS.get(kind, kind)
    if key is None and kind in BY_NAME:
        raise click.UsageError(f"Missing argument 'ID': which {kind}?")
    if key is not None:
        _refuse_flags(BY_NAME[valid.word("KIND", kind, BY_NAME)], run_id, history)
    found, named = read_once(
        call, lambda store: (_find_record(store, kind, key, run_id, history), store.backend.command)
    )
    data: dict[str, Any] = {"record": found.record, "children": found.children}
    if found.kind.name == "execution":
        data["output_text"] = found.output_text
    if found.kind.name == "run":
        data["state"] = found.state
    if found.history is not None:
        data["history"] = found.history
    return Answer(data, lambda screen: _lines(found, named, screen, full))


def _find_record(store: StateStore, word: str, key: str | None, run_id: str | None, history: bool) -> ShownRecord:
    if key is None:
        word, key = opening.resolve(store, word)
    else:
        key = opening.whole(store, key, word)
    kind = BY_NAME[word]
    _refuse_flags(kind, run_id, history)
    if run_id is not None:
        run_id = opening.whole(store, run_id, "run")
    with store.view() as view:
        record = _record(view, kind, key, run_id)
        children = kind.children(view, record)
        output = view.workflows.executions.find_output(key) if kind.name == "execution" else None
        is_run = kind.name == "run"
        state = view.workflows.health.get_state(key) if is_run else None
        usage = view.workflows.usage.for_run(key) if is_run else None
        why = view.workflows.lookups.get_errors([key]).get(key) if is_run else None
    told = maintenance.whole(store, key) if history else None
    return ShownRecord(kind, record, children, output, told, state, usage, why)


def _refuse_flags(kind: Kind, run_id: str | None, history: bool) -> None:
    if history and kind.name != "run":
        raise InvalidValue("--history", "only a run has one")
    if run_id is not None and kind.part is None:
        raise InvalidValue("--run", "must not be given: the ID is enough")


def _record(view: View, kind: Kind, key: str, run_id: str | None) -> Any:
    if kind.part is not None:
        return kind.part(view, needed_run(f"{kind.name} records", run_id), key)
    return kind.get(view, key) if kind.get is not None else None


def _lines(found: ShownRecord, named: Callable[..., str], screen: Screen, full: bool) -> Iterator[Any]:
    if found.state is not None and found.usage is not None:
        yield from run_head.lines(found.record, found.state, found.usage, found.why, named, screen)
    more = {} if found.output_text is None else {"output_text": found.output_text}
    yield from kind.lines(found.record, screen, full=full, more=more)
    for name, page in found.children.items():
        if not page.items:
            continue
        yield ""
        yield screen.heading(f"{name} ({len(page.items)}{' and more' if page.next_page_token else ''})")
        yield from screen.table(COLUMNS[name], page.items)
    if found.history is not None:
        yield ""
        yield screen.heading("history")
        yield from maintenance.lines(found.history, screen)
