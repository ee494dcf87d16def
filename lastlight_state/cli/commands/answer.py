"""``answer``: answers a run's pending question, which is an approval or a request to a person."""

from __future__ import annotations

from typing import Any

import click

from lastlight_state import codec
from lastlight_state.cli import answers, opening
from lastlight_state.cli.answers import AnswerFlag
from lastlight_state.cli.arguments import BY, YES, acting_person, ask
from lastlight_state.cli.opening import writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.errors import InvalidValue
from lastlight_state.plain import plain
from lastlight_state.store import StateStore
from lastlight_state.workflows import Answered

_FLAGS = ("--approve", "--reject", "--reply", "--value")


@command("answer")
@click.argument("question_id", metavar="ID")
@click.option("--approve", is_flag=True, help="Yes.")
@click.option("--reject", is_flag=True, help="No.")
@click.option("--reply", metavar="TEXT", help="A text in place of yes or no.")
@click.option("--value", metavar="JSON", help="The answer to a request, such as a form or a choice.")
@click.option("--reason", metavar="TEXT", help="Of an approval: why; the run can read it.")
@click.option("--digest", metavar="HEX", help="Of the action that is approved, as `show approval` tells it.")
@BY
@YES
def run(
    call: Call, question_id: str, reason: str | None, digest: str | None, by: str | None, yes: bool, **flags: Any
) -> Answer:
    """Answer a question, so that its run goes on. ID is the id of an approval or of a request to a person.

    One flag gives the answer. The first answer counts: if somebody was faster, the exit code is 1, and the error names
    the answer that won. A gate with an action is approved with the action's digest. Without --digest, the action is
    shown, and you are asked whether it is the right one.
    """
    given = _answer_flag(**flags)
    with writable_store(call) as store:
        kind, question_id = opening.resolve(store, question_id, ("approval", "question"))
        if kind == "approval" and given.flag == "--approve" and digest is None:
            digest = _confirmed_digest(call, store, question_id, yes=yes)
        done = answers.answer(store, question_id, given, reason=reason, digest=digest, by=acting_person(by))
    stored = done.approval if isinstance(done, Answered) else done.request
    data = {"answer": stored, "run": done.run, "repeated": done.repeated}
    return Answer(data, lambda _: [answers.line_of(done)])


def _answer_flag(approve: bool, reject: bool, reply: str | None, value: str | None) -> AnswerFlag:
    values = (approve or None, reject or None, reply, value)
    found = [AnswerFlag(flag, given) for flag, given in zip(_FLAGS, values, strict=True) if given is not None]
    if len(found) != 1:
        raise InvalidValue("answer", f"expected one of {', '.join(_FLAGS)}, got {len(found)}")
    return found[0]


def _confirmed_digest(call: Call, store: StateStore, approval_id: str, *, yes: bool) -> str | None:
    """Show a gate's action to the person, ask for confirmation, and return the action's digest.

    None without an action.
    """
    gate = store.workflows.approvals.get(approval_id)
    if gate.action is None or gate.status != "pending":
        return None
    call.output.note(f"action: {codec.encode_sound(plain(gate.action)).decode()}")
    ask("Approve this action?", yes=yes)
    return gate.action_digest
