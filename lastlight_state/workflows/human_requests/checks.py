"""What `human_requests` accepts: questions, checked before any statement, and answers to each kind of question."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.statements import Row
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import NodeRef, Question
from lastlight_state.workflows.human_requests import forms
from lastlight_state.workflows.human_requests.records import HumanRequest
from lastlight_state.workflows.tables import REQUESTS

_MOST = limits_of(REQUESTS)


class NewRequest(TypedDict):
    """The row of a new request."""

    id: str
    run_id: str
    node_id: str
    iteration: int
    kind: str
    blocks_run: bool
    on_expiry: str
    requested_at: datetime
    expires_at: datetime | None
    prompt: str
    options: str | None
    schema: str | None


def new_request(run_id: str, question: Question, now: datetime, *, blocks_run: bool) -> NewRequest:
    """Return the row of a new request. The schema of a form is checked here."""
    valid.group("question", question, Question)
    valid.group("question.node", question.node, NodeRef)
    kind = valid.word("question.kind", question.kind, words.HUMAN_KINDS)
    node_id = valid.identifier("question.node.node_id", question.node.node_id, _MOST.node_id)
    iteration = valid.number("question.node.iteration", question.node.iteration)
    own_id = None if question.id is None else valid.identifier("question.id", question.id, _MOST.id)
    return {
        "id": own_id or default_id(run_id, NodeRef(node_id, iteration)),
        "run_id": run_id,
        "node_id": node_id,
        "iteration": iteration,
        "kind": kind,
        "blocks_run": blocks_run,
        "on_expiry": valid.word("question.on_expiry", question.on_expiry, words.ON_EXPIRY),
        "requested_at": now,
        "expires_at": None if question.expires_at is None else aware_utc("question.expires_at", question.expires_at),
        "prompt": _prompt(question.prompt),
        "options": _options(kind, question.options),
        "schema": _schema(kind, question.schema),
    }


def default_id(run_id: str, node: NodeRef) -> str:
    """The default id of a node's request: run, node and iteration, or the SHA-256 of that if it is too long."""
    plain = f"human:{valid.content('run_id', run_id, _MOST.response)}:{node.node_id}:{node.iteration}"
    data = plain.encode()
    return plain if len(data) <= _MOST.id else hashlib.sha256(data).hexdigest()


def response(request: HumanRequest, given: Any) -> str:
    """The response as JSON text. Raises `InvalidValue` if it does not answer a request of its kind."""
    text = codec.encode("response", given, max_bytes=_MOST.response)
    check = _ANSWERS.get(request.kind)
    if check is None:
        raise InvalidValue("response", f"a request of kind {request.kind!r:.80} cannot be answered by this version")
    check(request, codec.decode(text))
    return text


def inbox_filters(run_id: str | None, kind: str | None) -> Row:
    """Return the filters of the inbox."""
    return {
        "run_id": valid.optional("run_id", run_id, _MOST.run_id),
        "kind": None if kind is None else valid.word("kind", kind, words.HUMAN_KINDS),
    }


def _prompt(prompt: str) -> str:
    text = valid.content("question.prompt", prompt, _MOST.prompt)
    if not text.strip():
        raise InvalidValue("question.prompt", "blank")
    return text


def _options(kind: str, options: Any) -> str | None:
    if kind != "select":
        _refuse("options", options, kind)
        return None
    if not options:
        raise InvalidValue("question.options", "must not be empty: a select needs options")
    return codec.encode("question.options", valid.several("question.options", options), max_bytes=_MOST.options)


def _schema(kind: str, schema: Any) -> str | None:
    if kind != "form":
        _refuse("schema", schema, kind)
        return None
    if schema is None:
        raise InvalidValue("question.schema", "missing: a form needs a schema")
    text = codec.encode("question.schema", schema, max_bytes=_MOST.schema)
    forms.check_schema("question.schema", codec.decode(text))
    return text


def _refuse(name: str, value: Any, kind: str) -> None:
    if value is not None:
        raise InvalidValue(f"question.{name}", f"must be None for a question of kind {kind}")


def _text(_: HumanRequest, given: Any) -> None:
    if not isinstance(given, str) or not given.strip():
        raise InvalidValue("response", "must be text that is not blank")


def _confirm(_: HumanRequest, given: Any) -> None:
    valid.flag("response", given)


def _select(request: HumanRequest, given: Any) -> None:
    if codec.canonical(given) not in map(codec.canonical, request.options or ()):
        raise InvalidValue("response", "must be one of the options")


def _form(request: HumanRequest, given: Any) -> None:
    if request.schema is not None:
        forms.check_response("response", request.schema, given)


_ANSWERS: dict[str, Callable[[HumanRequest, Any], None]] = {
    "text": _text,
    "confirm": _confirm,
    "select": _select,
    "form": _form,
}
