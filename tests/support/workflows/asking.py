"""Steps of tests about requests to people."""

from __future__ import annotations

from typing import Any

from support.workflows.steps import started

from lastlight_state.workflows import HumanRequest, NodeRef, Question

WHO = Question(NodeRef("who"), "text", "Who reviews this?")
SURE = Question(NodeRef("sure"), "confirm", "Are you sure?")
WHICH = Question(NodeRef("which"), "select", "Which region?", options=["eu", "us", 1, None])
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "ages": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name"],
}
FORM = Question(NodeRef("form"), "form", "Who are you?", schema=PERSON)


def asked(store: Any, question: Question = WHO, **given: Any) -> HumanRequest:
    """A new run that waits for an answer."""
    request: HumanRequest = store.workflows.human_requests.pause(started(store, **given).id, question)
    return request
