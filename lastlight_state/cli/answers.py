"""Answering a gate or a request to a person, by its id, from the flags of a command."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from lastlight_state import codec
from lastlight_state.errors import AlreadyAnswered, InvalidValue
from lastlight_state.plain import plain
from lastlight_state.store import StateStore
from lastlight_state.workflows import Answered, AnsweredRequest, HumanRequest

Done = Answered | AnsweredRequest
Flag = Literal["--approve", "--reject", "--reply", "--value"]


class AnswerFlag(NamedTuple):
    """The answer flag that was given, with its value. Exactly one may be given."""

    flag: str
    value: Any


def answer(
    store: StateStore, question_id: str, given: AnswerFlag, *, digest: str | None, by: str, reason: str | None = None
) -> Done:
    """Answer a gate or a request to a person. Raises the library's errors.

    `AlreadyAnswered` contains who answered first. The error for an invalid answer lists the request's options.
    """
    try:
        request = store.workflows.human_requests.find(question_id)
        if request is not None:
            if reason is not None:
                raise InvalidValue("--reason", "is for approvals: of a request the answer alone is kept")
            return store.workflows.human_requests.answer(question_id, _response(given, request), by=by)
        return _approval(store, question_id, given, reason, digest, by)
    except AlreadyAnswered as lost:
        winner = lost.winner
        lost.args = (f"{lost}: {winner.status} by {winner.answered_by or 'nobody who is named'}",)
        raise


def line_of(done: Done) -> str:
    """Return one line for people that reports the stored answer."""
    stored = done.approval if isinstance(done, Answered) else done.request
    return f"{stored.id}: {stored.status}; run {done.run.id}: {done.run.status}"


def _approval(
    store: StateStore, approval_id: str, given: AnswerFlag, reason: str | None, digest: str | None, by: str
) -> Answered:
    approvals = store.workflows.approvals
    if given.flag == "--value":
        raise InvalidValue("--value", "is for requests to a person; an approval is approved, rejected or replied to")
    if given.flag == "--reply":
        if reason is not None:
            raise InvalidValue("--reason", "a reply is its own text")
        return approvals.answer(approval_id, "replied", by=by, response=given.value)
    if given.flag == "--reject":
        return approvals.answer(approval_id, "rejected", by=by, response=reason)
    return approvals.answer(approval_id, "approved", by=by, response=reason, digest=digest)


def _response(given: AnswerFlag, request: HumanRequest) -> Any:
    """Return the response to a request. An option that is a text may be given without quotes."""
    options = request.options if isinstance(request.options, list) else []
    if given.flag != "--value":
        said = given.value if given.flag == "--reply" else given.flag == "--approve"
        if options and said not in options:
            raise InvalidValue(given.flag, f"does not answer it: give --value{_choice(options)}")
        return said
    if given.value in options:
        return given.value
    try:
        found = codec.decode(given.value)
    except ValueError as error:
        raise InvalidValue("--value", f"is not JSON: {error}{_choice(options)}") from None
    if options and found not in options:
        raise InvalidValue("--value", f"must be one of the options{_choice(options)}")
    return found


def _choice(options: list[Any]) -> str:
    return f"; the options are {codec.encode_sound(plain(options)).decode()}" if options else ""
