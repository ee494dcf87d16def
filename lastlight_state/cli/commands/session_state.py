"""``session-state``: works on the snapshots from which sessions resume. Needs no database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from lastlight_state.cli import arguments
from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.cli.views import logs
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.files.run_log import RunLog, SessionEntry, SessionPage, SessionState
from lastlight_state.files.run_log.states import States

SESSIONS: tuple[Column[SessionEntry], ...] = (
    Column("ID", lambda entry: entry.session_id, is_id=True),
    Column("UPDATED", lambda entry: entry.updated_at, keep=True),
    Column("RUN", lambda entry: entry.run_id, is_id=True, rank=2),
    Column("MESSAGES", lambda entry: entry.message_count, right=True),
    Column("WORKSPACE", lambda entry: entry.workspace_root, rank=1),
    Column("LAST", lambda entry: entry.problem or entry.last_user_message),
)


@command("session-state")
@click.argument("action", metavar="ls|show|clear|reconstruct")
@click.argument("key", metavar="[ID]", required=False)
@click.option("--workspace", metavar="DIR", help="With ls: only sessions of this workspace.")
@click.option("--limit", metavar="N", default=50, help="With ls: the number of sessions on a page, 1 to 500.")
@click.option("--page-token", metavar="TOKEN", help="With ls: go on where the page before ended.")
@click.option("--yes", "-y", is_flag=True, help="With clear: do not ask.")
def run(call: Call, action: str, key: str | None, yes: bool, **options: Any) -> Answer:
    """Work on the states of sessions: list them, show one, delete one, or reconstruct a lost one from the logs.

    reconstruct prints the state and stores nothing. clear deletes the state's snapshot. The logs of its runs stay.
    """
    states = RunLog(settings_of(call).anchored().run_logs).states
    if valid.word("ACTION", action, ("ls", *ACTIONS)) == "ls":
        page = states.list(**options)
        return Answer(
            {"items": page.items, "next_page_token": page.next_page_token}, lambda screen: _page(page, screen)
        )
    if key is None:
        raise InvalidValue("ID", "must be given: the id of a session")
    if action == "clear":
        arguments.ask(f"Delete the state of session {key}?", yes=yes)
    return ACTIONS[action](states, key)


def _show(states: States, key: str) -> Answer:
    return _state(states.get(key))


def _clear(states: States, key: str) -> Answer:
    cleared = states.clear(key)
    failure = None if cleared else Failure(NO, "not_found", f"no session_state {key!r}", {})
    return Answer({"cleared": cleared}, lambda _: ["deleted"] if cleared else [], failure)


def _reconstruct(states: States, key: str) -> Answer:
    state = states.reconstruct(key)
    if state is None:
        return Answer({"state": None}, failure=Failure(NO, "not_found", f"no prompt of session {key!r} is logged", {}))
    return _state(state)


ACTIONS: dict[str, Callable[[States, str], Answer]] = {"show": _show, "clear": _clear, "reconstruct": _reconstruct}


def _state(state: SessionState) -> Answer:
    return Answer({"state": state.to_json()}, lambda screen: _lines(state, screen))


def _lines(state: SessionState, screen: Screen) -> Iterator[Any]:
    value = state.to_json()
    yield from screen.fields({name: part for name, part in value.items() if name != "messages"})
    yield ""
    yield screen.heading(f"messages ({len(state.messages)})")
    yield from (logs.of_message(message, screen) for message in state.messages)


def _page(page: SessionPage, screen: Screen) -> Iterator[Any]:
    if page.items:
        yield from screen.table(SESSIONS, page.items)
    else:
        yield "(no sessions)"
    if page.next_page_token is not None:
        yield f"more: --page-token {page.next_page_token}"
