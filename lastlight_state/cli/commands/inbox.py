"""``inbox``: shows everything that waits for a person, and on a terminal takes the answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click

from lastlight_state import codec
from lastlight_state.cli import answers, opening
from lastlight_state.cli.arguments import BY, acting_person, since
from lastlight_state.cli.opening import read_once, writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views import pending
from lastlight_state.cli.views.pending import Waiting
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.db import valid
from lastlight_state.errors import StateError
from lastlight_state.plain import plain
from lastlight_state.store import StateStore
from lastlight_state.workflows import PendingApproval

#: Characters after which the library's inboxes cut a text.
CUT = 500


@command("inbox")
@click.option("--limit", metavar="N", default=20, help="The most gates, and the most requests, 1 to 500.")
@click.option("--run", "run_id", metavar="ID", help="Only what this run waits for.")
@BY
def run(call: Call, limit: int, run_id: str | None, by: str | None) -> Answer:
    """Show what waits for a person, gates and requests, oldest first, each with its complete text.

    On a terminal you are then asked which one to answer, by its number. With a pipe or --json you only get the list.
    """
    valid.page_limit(limit)
    found, shows = read_once(
        call, lambda store: (_list_waiting(store, limit, run_id), partial(store.backend.command, "show"))
    )
    if call.flags.json or not (sys.stdin.isatty() and sys.stdout.isatty()) or not found:
        return Answer({"items": found}, lambda screen: _lines(found, shows, screen))
    for line in _lines(found, shows, call.output.screen):
        call.output.line(line)
    with writable_store(call) as store:
        _converse(call, store, found, acting_person(by))
    return Answer()


def _list_waiting(store: StateStore, limit: int, run_id: str | None) -> list[Waiting]:
    return pending.pending_items(store, limit, None if run_id is None else opening.whole(store, run_id, "run"))


def _lines(found: Sequence[Waiting], shows: Callable[..., str], screen: Screen) -> Iterator[Any]:
    if not found:
        yield "(nothing waits for a person)"
    now = SYSTEM_CLOCK.now()
    for number, one in enumerate(found, 1):
        what = one.gate if isinstance(one, PendingApproval) else f"{one.node_id} ({one.kind})"
        yield screen.heading(f"{number}. {what}: {one.workflow_name}, asked {since(one.asked_at, now)}")
        text = one.summary if isinstance(one, PendingApproval) else one.prompt
        yield from screen.indented_lines(text)
        if len(text) >= CUT:
            yield f"    It goes on: {shows(one.id, '--full')}"
        for title, value in _item_details(one, shows):
            yield from screen.indented_lines(f"{title}: {screen.format_value(value)}")
        yield f"    id {one.id}"
        yield f"    run {one.run_id}"


def _item_details(one: Waiting, shows: Callable[..., str]) -> Iterator[tuple[str, Any]]:
    """Yield what a person must see before answering: action, options, form and expiry."""
    if isinstance(one, PendingApproval):
        if one.action is not None:
            yield "action", one.action
        elif one.action_digest is not None:
            yield "action", f"too large for this list: {shows('approval', one.id, '--full')}"
    else:
        if one.options is not None:
            yield "options", one.options
        if one.has_schema:
            yield "form", shows("question", one.id, "--full")
        if one.expires_at is not None:
            yield "expires", one.expires_at


def _converse(call: Call, store: StateStore, found: Sequence[Waiting], by: str) -> None:
    """Ask the person which item to answer, and store the answer, until an empty line."""
    while text := _ask_person("Answer which number (empty: none)?"):
        if not text.isdecimal() or not 1 <= int(text) <= len(found):
            call.output.note(f"expected a number from 1 to {len(found)}")
            continue
        one = found[int(text) - 1]
        try:
            given = _answer_of(one)
            if given is not None:
                done = answers.answer(store, one.id, given, digest=_digest(one), by=by)
                call.output.note(answers.line_of(done))
        except StateError as error:
            call.output.note(str(error))


def _answer_of(one: Waiting) -> answers.AnswerFlag | None:
    """Ask for the answer to one item. Returns None if the person gives none."""
    if isinstance(one, PendingApproval):
        if one.kind == "reply":
            text = _ask_person("Reply (empty: none):")
            return answers.AnswerFlag("--reply", text) if text else None
        return _yes_or_no("Approve? [y/n, empty: neither]")
    if one.kind == "confirm":
        return _yes_or_no("Yes? [y/n, empty: neither]")
    if one.kind == "text":
        text = _ask_person("Answer (empty: none):")
        return answers.AnswerFlag("--reply", text) if text else None
    if isinstance(one.options, list):
        text = _ask_person(f"Which option, 1 to {len(one.options)} (empty: none)?")
        if not text.isdecimal() or not 1 <= int(text) <= len(one.options):
            return None
        return answers.AnswerFlag("--value", codec.encode_sound(plain(one.options[int(text) - 1])).decode())
    text = _ask_person("Answer as JSON (empty: none):")
    return answers.AnswerFlag("--value", text) if text else None


def _digest(one: Waiting) -> str | None:
    """Return the digest of the action that was shown, or None."""
    return one.action_digest if isinstance(one, PendingApproval) else None


def _yes_or_no(question: str) -> answers.AnswerFlag | None:
    text = _ask_person(question).lower()
    flags = {"y": "--approve", "yes": "--approve", "n": "--reject", "no": "--reject"}
    return answers.AnswerFlag(flags[text], True) if text in flags else None


def _ask_person(question: str) -> str:
    sys.stderr.write(f"{question} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()
