"""The inbox: questions that wait for a person, with their complete texts and, if acting is enabled, answer forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

from lastlight_state.errors import InvalidValue, StateError
from lastlight_state.inspector import forms
from lastlight_state.inspector.page import MOST_ROWS, ROWS, Ask, Moved, Page, View, status_of
from lastlight_state.inspector.rendering import segment
from lastlight_state.workflows import HumanRequest

page = Page("inbox", "Inbox", "/inbox", "i")

Decision = Literal["approved", "rejected", "replied"]
Order = Literal["newest", "oldest"]
#: The default reason for cancelling a question or ending a run.
FROM_HERE = "from the inspector"


@page.look(live=True, takes="run order limit gates requests")
def question_list(ask: Ask) -> View:
    """Show the pending questions of one run, or of all."""
    run_id, limit = ask.text("run"), ask.number("limit", ROWS, most=MOST_ROWS)
    order = cast(Order, ask.text("order") or "oldest")  # the library refuses another word
    with ask.store.view() as moment:
        w = moment.workflows
        gates = w.approvals.list_pending(run_id=run_id, order=order, limit=limit, page_token=ask.text("gates"))
        requests = w.human_requests.list_pending(
            run_id=run_id, order=order, limit=limit, page_token=ask.text("requests")
        )
        counts = {"gates": w.approvals.count_pending(), "requests": w.human_requests.count_pending()}
    return View("inbox.html", {"gates": gates, "requests": requests, "counts": counts}, "Inbox")


@page.look("/gates/{id}")
def gate(ask: Ask, problem: StateError | None = None) -> View:
    """Show an approval gate with its complete text, its action and the action's digest."""
    with ask.store.view() as moment:
        found = moment.workflows.approvals.get(ask.path["id"])
        data = {"gate": found, "run": moment.workflows.runs.get(found.run_id)}
    return _with_form(ask, "gate.html", data, f"Gate {found.gate}", problem, {})


@page.look("/requests/{id}")
def request(ask: Ask, problem: StateError | None = None) -> View:
    """Show a request with its complete text, and its options or form."""
    with ask.store.view() as moment:
        found = moment.workflows.human_requests.get(ask.path["id"])
        data = {"question": found, "run": moment.workflows.runs.get(found.run_id)}
    fields = forms.fields_of(found.kind, found.options, found.schema)
    return _with_form(ask, "request.html", data, f"Request of {found.node_id}", problem, {"fields": fields})


@page.act("/gates/{id}")
def answer_gate(ask: Ask) -> View | Moved:
    """Answer an approval gate. The digest in the form proves which action the page showed."""

    def work() -> None:
        decision = ask.form_value("decision")
        if decision is None:
            raise InvalidValue("decision", "must be chosen")
        ask.store.workflows.approvals.answer(
            ask.path["id"],
            cast(Decision, decision),  # the library refuses another word
            by=_person(ask),
            response=ask.form_value("response"),
            digest=ask.form_value("digest"),
        )

    return _act_and_redirect(ask, work, gate, "gates")


@page.act("/gates/{id}/cancel")
def cancel_gate(ask: Ask) -> View | Moved:
    """Cancel an approval gate without an answer."""
    cancel = ask.store.workflows.approvals.cancel
    return _act_and_redirect(ask, lambda: cancel(ask.path["id"], by=_person(ask), reason=_reason(ask)), gate, "gates")


@page.act("/requests/{id}")
def answer_request(ask: Ask) -> View | Moved:
    """Answer a request."""

    def work() -> None:
        requests = ask.store.workflows.human_requests
        asked: HumanRequest = requests.get(ask.path["id"])
        answer = forms.answer_of(asked.kind, asked.options, asked.schema, ask.form_value)
        requests.answer(asked.id, answer, by=_person(ask))

    return _act_and_redirect(ask, work, request, "requests")


@page.act("/requests/{id}/cancel")
def cancel_request(ask: Ask) -> View | Moved:
    """Cancel a request without an answer."""
    cancel = ask.store.workflows.human_requests.cancel
    return _act_and_redirect(
        ask, lambda: cancel(ask.path["id"], by=_person(ask), reason=_reason(ask)), request, "requests"
    )


def _act_and_redirect(ask: Ask, work: Callable[[], object], again: Callable[..., View], kind: str) -> View | Moved:
    """Carry out an action and redirect to the question. If the action is refused, show the question with the error."""
    try:
        work()
    except StateError as problem:
        return again(ask, problem)
    return Moved(f"/inbox/{kind}/{segment(ask.path['id'])}")


def _with_form(
    ask: Ask, template: str, data: dict[str, Any], title: str, problem: StateError | None, more: dict[str, Any]
) -> View:
    if problem is not None:
        data["problem"] = {"code": problem.code, "text": str(problem)}
    filled = {name: values[0] for name, values in ask.form.items() if values}
    status = 200 if problem is None else status_of(problem)
    return View(template, data, title, more={"filled": filled, "problem": problem, **more}, status=status)


def _reason(ask: Ask) -> str:
    return ask.form_value("reason") or FROM_HERE


def _person(ask: Ask) -> str:
    if ask.person is None:
        raise InvalidValue("person", "must be given: the function that names the sender found nobody for this request")
    return ask.person
