"""``show``: one record, and what belongs to it. Never writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
import orjson

from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.opening import look
from lastlight_state.cli.plain import plain
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views import timelines
from lastlight_state.cli.views.kind import Kind, needed_run
from lastlight_state.cli.views.kinds import BY_NAME, COLUMNS
from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import TimelineEntry
from lastlight_state.store import StateStore, View

#: Characters of a text that are shown without ``--full``.
SHORT = 200


@dataclass(frozen=True)
class Found:
    """A record, its children, the text it produced (executions), and what happened to it (runs)."""

    record: Any
    children: Mapping[str, Page[Any]]
    output_text: str | None
    history: tuple[TimelineEntry, ...] | None


@command("show")
@click.argument("kind", metavar="KIND")
@click.argument("key", metavar="ID")
@click.option(
    "--run", "run_id", metavar="ID", help="The run that the record belongs to, for kinds that have a number there."
)
@click.option("--full", is_flag=True, help="Show long texts whole, and fields that are empty.")
@click.option("--history", is_flag=True, help="Of a run: everything that happened to it.")
def run(call: Call, kind: str, key: str, run_id: str | None, full: bool, history: bool) -> Answer:
    """Show one record with what belongs to it: executions and gates of a run, messages of a chat, fires of a cron.

    KIND is run, execution, approval, messaging, session, cron, receipt, output, score or input, or with --run one
    of event, signal, frame, tool-call and sandbox. ID is the record's id, name or key, of an input its run, or the
    number in the run.
    """
    chosen = BY_NAME[valid.word("KIND", kind, BY_NAME)]
    if history and kind != "run":
        raise InvalidValue("--history", "only a run has one")
    if run_id is not None and chosen.part is None:
        raise InvalidValue("--run", "must not be given: the ID is enough")
    found = look(call, lambda store: _found(store, chosen, key, run_id, history))
    data: dict[str, Any] = {"record": found.record, "children": found.children}
    if kind == "execution":
        data["output_text"] = found.output_text
    if found.history is not None:
        data["history"] = found.history
    return Answer(data, lambda screen: _lines(found, screen, full))


def _found(store: StateStore, kind: Kind, key: str, run_id: str | None, history: bool) -> Found:
    with store.view() as view:
        record = _record(view, kind, key, run_id)
        children = kind.children(view, record)
        output = view.workflows.executions.find_output(key) if kind.name == "execution" else None
    return Found(record, children, output, timelines.whole(store, key) if history else None)


def _record(view: View, kind: Kind, key: str, run_id: str | None) -> Any:
    if kind.part is not None:
        return kind.part(view, needed_run(f"{kind.name} records", run_id), key)
    return kind.get(view, key) if kind.get is not None else None


def _lines(found: Found, screen: Screen, full: bool) -> Iterator[Any]:
    fields = {name: getattr(found.record, name) for name in type(found.record).model_fields}
    long = {name: text for name, value in fields.items() if (text := _long(value))}
    shown = {name: value for name, value in fields.items() if name not in long and (full or value is not None)}
    yield from screen.fields(shown)
    if found.output_text is not None:
        long["output_text"] = found.output_text
    for name, text in long.items():
        yield from _text(name, text, screen, full)
    for name, page in found.children.items():
        yield ""
        yield screen.heading(f"{name} ({len(page.items)}{' and more' if page.next_page_token else ''})")
        yield from screen.table(COLUMNS[name], page.items) if page.items else ()
    if found.history is not None:
        yield ""
        yield screen.heading("history")
        yield from timelines.lines(found.history, screen)


def _long(value: Any) -> str | None:
    """The text of a value that does not fit beside its name."""
    if isinstance(value, str):
        return value if len(value) > SHORT or "\n" in value else None
    if isinstance(value, dict | list):
        text = orjson.dumps(plain(value), option=orjson.OPT_INDENT_2).decode()
        return text if len(text) > SHORT else None
    return None


def _text(name: str, text: str, screen: Screen, full: bool) -> Iterator[Any]:
    yield ""
    yield screen.heading(name)
    if full or len(text) <= SHORT:
        yield text
        return
    yield f"{text[:SHORT]}…"
    yield f"[{len(text):,} characters; --full shows all]"
