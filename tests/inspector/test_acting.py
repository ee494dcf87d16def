"""Answers, cancels, pauses and resumes by forms of the pages, with the checks and errors of the library."""

from __future__ import annotations

from typing import Any

import pytest
from inspector.test_pages import JSON, Parsed, token_of
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.inspector import forms, inspector
from lastlight_state.inspector.pages import PAGES
from lastlight_state.inspector.rendering import segment
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, NodeRef, Question, RunOptions, Trigger

HERE = {"origin": "http://testserver"}
SCHEMA = {
    "type": "object",
    "required": ["<b>name</b>"],
    "properties": {
        "<b>name</b>": {"type": "string", "description": "who & what"},
        "count": {"type": "integer", "title": "How many"},
        "sure": {"type": "boolean"},
        "size": {"enum": ["small", 2, None]},
        "more": {"type": "array", "items": {"type": "number"}},
    },
    "additionalProperties": False,
}


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    """Return a store with one run."""
    store = fresh_database.open()
    store.workflows.runs.create("w", trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id="r"))
    return store


@pytest.fixture
def ana(store: StateStore) -> TestClient:
    """Return the browser of a person who may act."""
    return TestClient(inspector(store, acting=True, person="ana", hosts={"testserver"}))


def sent(client: TestClient, address: str, **fields: str) -> Response:
    """Send a form of the page of this address."""
    form = {"form_token": token_of(client), **fields}
    answer: Any = client.post(address, data=form, headers=HERE | JSON, follow_redirects=False)
    return answer  # type: ignore[no-any-return]


def by_label(store: StateStore, request_id: str, said: dict[str, str]) -> dict[str, str]:
    """Return what is said under the names of its fields, of which each database has an order of its own."""
    asked = store.workflows.human_requests.get(request_id)
    names = {field.label: field.name for field in forms.fields_of(asked.kind, asked.options, asked.schema)}
    return {names[label]: value for label, value in said.items()}


def digest_on(client: TestClient, address: str) -> str:
    """Return the digest that the form on this page carries."""
    fields = [attributes for tag, attributes in Parsed(client.get(address).text).tags if tag == "input"]
    return str(next(field["value"] for field in fields if field.get("name") == "digest"))


def test_a_gate_is_answered_for_the_action_on_the_page(ana: TestClient, store: StateStore) -> None:
    """inspector IN-30: and it is stored who did it, and how."""
    store.workflows.approvals.create("r", Gate("ship", "Ship it?", id="g", action={"do": "ship"}))
    digest = digest_on(ana, "/inbox/gates/g")
    moved = sent(ana, "/inbox/gates/g", decision="approved", digest=digest, response="fine")
    assert (moved.status_code, moved.headers["location"]) == (303, "/inbox/gates/g")
    stored = store.workflows.approvals.get("g")
    assert (stored.status, stored.answered_by, stored.answered_via) == ("approved", "ana", "person")
    assert stored.response == "fine"


def test_a_gate_of_another_action_is_not_answered(ana: TestClient, store: StateStore) -> None:
    """inspector IN-30, IN-31: what was typed is kept, and the page says why."""
    store.workflows.approvals.create("r", Gate("ship", "Ship it?", id="g", action={"do": "ship"}))
    form = {"form_token": token_of(ana), "decision": "approved", "digest": "0" * 64, "response": "as I typed it"}
    answer = ana.post("/inbox/gates/g", data=form, headers=HERE)
    assert answer.status_code == 409
    assert "stale_version" in answer.text
    assert "as I typed it" in answer.text
    assert store.workflows.approvals.get("g").status == "pending"


def test_the_second_answer_is_told_who_was_first(ana: TestClient, store: StateStore) -> None:
    """inspector IN-31."""
    store.workflows.approvals.create("r", Gate("ship", "Ship it?", id="g"))
    store.workflows.approvals.answer("g", "rejected", by="ben")
    answer: Any = sent(ana, "/inbox/gates/g", decision="approved")
    assert (answer.status_code, answer.json()["problem"]["code"]) == (409, "already_answered")
    assert answer.json()["gate"]["answered_by"] == "ben"


def test_a_reply_and_a_rejection_are_stored(ana: TestClient, store: StateStore) -> None:
    """inspector IN-30."""
    store.workflows.approvals.create("r", Gate("say", "What?", id="g", kind="reply"))
    sent(ana, "/inbox/gates/g", decision="replied", response="this")
    assert store.workflows.approvals.get("g").response == "this"
    store.workflows.approvals.create("r", Gate("sure", "Sure?", id="h"))
    sent(ana, "/inbox/gates/h", decision="rejected", response="no")
    assert store.workflows.approvals.get("h").status == "rejected"


@pytest.mark.parametrize("decision", ["", "maybe", "replied"])
def test_a_decision_that_is_none_is_refused(ana: TestClient, store: StateStore, decision: str) -> None:
    """inspector IN-31."""
    store.workflows.approvals.create("r", Gate("sure", "Sure?", id="h"))
    assert sent(ana, "/inbox/gates/h", decision=decision).status_code == 400


@pytest.mark.parametrize(
    ("question", "said", "answer"),
    [
        (Question(NodeRef("n"), "text", "Which?"), {"Answer": "one\r\ntwo"}, "one\ntwo"),
        (Question(NodeRef("n"), "confirm", "Sure?"), {"Answer": "no"}, False),
        (Question(NodeRef("n"), "select", "Which?", options=["a", {"b": 1}, 3]), {"Answer": "1"}, {"b": 1}),
        (Question(NodeRef("n"), "form", "All?", schema={"type": "number"}), {"Answer as JSON": "1.5"}, 1.5),
        (
            Question(NodeRef("n"), "form", "All?", schema=SCHEMA),
            {"<b>name</b>": "x", "How many": "12", "sure": "yes", "size": "1", "more": "[1, 2]"},
            {"<b>name</b>": "x", "count": 12, "sure": True, "size": 2, "more": [1, 2]},
        ),
        (
            Question(NodeRef("n"), "form", "All?", schema=SCHEMA),
            {"<b>name</b>": "x", "How many": ""},
            {"<b>name</b>": "x"},
        ),
    ],
    ids=["text", "confirm", "select", "json", "form", "part"],
)
def test_a_request_is_answered_by_the_form_of_its_kind(
    ana: TestClient, store: StateStore, question: Question, said: dict[str, str], answer: Any
) -> None:
    """inspector IN-32."""
    request = store.workflows.human_requests.create("r", question)
    address, fields = f"/inbox/requests/{segment(request.id)}", by_label(store, request.id, said)
    page = Parsed(ana.get(address).text)
    named = {str(attributes.get("name")) for tag, attributes in page.tags if tag in ("input", "select", "textarea")}
    assert set(fields) <= named
    assert "b" not in [tag for tag, _ in page.tags]
    assert sent(ana, address, **fields).status_code == 303
    stored = store.workflows.human_requests.get(request.id)
    assert (stored.status, stored.answered_by, stored.response) == ("answered", "ana", answer)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"<b>name</b>": "x", "How many": "many"},
        {"<b>name</b>": "x", "size": "9"},
        {"<b>name</b>": "x", "more": "{"},
    ],
    ids=["missing", "number", "choice", "json"],
)
def test_what_does_not_fit_the_form_is_refused_and_kept(
    ana: TestClient, store: StateStore, said: dict[str, str]
) -> None:
    """inspector IN-31, IN-32."""
    request = store.workflows.human_requests.create("r", Question(NodeRef("n"), "form", "All?", schema=SCHEMA))
    form = {"form_token": token_of(ana), **by_label(store, request.id, said)}
    answer = ana.post(f"/inbox/requests/{segment(request.id)}", data=form, headers=HERE)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    for value in said.values():
        assert value in answer.text
    assert store.workflows.human_requests.get(request.id).status == "pending"


@with_each("schema", [None, True, [], {"properties": []}, {"properties": {"a": True}, "required": 1}])
def test_fields_are_made_of_any_schema(schema: Any) -> None:
    """inspector IN-32: also of one that another program stored."""
    [field] = forms.fields_of("form", None, schema)
    assert field.kind == "json"


def test_questions_are_cancelled(ana: TestClient, store: StateStore) -> None:
    """inspector IN-30."""
    store.workflows.approvals.create("r", Gate("ship", "Ship it?", id="g"))
    store.workflows.human_requests.create("r", Question(NodeRef("n"), "text", "Which?", id="q"))
    for kind, key in (("gates", "g"), ("requests", "q")):
        assert sent(ana, f"/inbox/{kind}/{key}/cancel", reason="not any more").status_code == 303
    gate, request = store.workflows.approvals.get("g"), store.workflows.human_requests.get("q")
    assert (gate.status, gate.answered_by, gate.closed_reason) == ("cancelled", "ana", "not any more")
    assert (request.status, request.answered_by) == ("cancelled", "ana")


def test_a_run_is_paused_resumed_and_cancelled(ana: TestClient, store: StateStore) -> None:
    """inspector IN-33."""
    for verb, status in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        moved = sent(ana, f"/runs/r/{verb}", reason=f"{verb} it")
        assert (moved.status_code, moved.headers["location"]) == (303, "/runs/r")
        assert store.workflows.runs.get("r").status == status
        change = store.workflows.lookups.list_transitions("r").items[0]
        assert (change.actor, change.source, change.detail) == ("ana", "operator", f"{verb} it")
    refused: Any = sent(ana, "/runs/r/resume")
    assert (refused.status_code, refused.json()["problem"]["code"]) == (409, "run_status")
    assert sent(ana, "/runs/r/explode").status_code == 404


@pytest.mark.parametrize("person", [None, lambda _: None, lambda _: ""], ids=["off", "guest", "nameless"])
def test_nobody_acts_where_it_is_off_or_for_whom_it_is_not(store: StateStore, person: Any) -> None:
    """inspector IN-13: there is no form either."""
    store.workflows.approvals.create("r", Gate("ship", "Ship it?", id="g"))
    guest = TestClient(inspector(store, acting=person is not None, person=person))
    assert "Approve" not in guest.get("/inbox/gates/g").text
    writes = [
        route.path.format(run_id="r", verb="pause", id="g") for page in PAGES for route in page.routes if route.acts
    ]
    assert len(writes) == 6
    for address in writes:
        answer: Any = sent(guest, address, decision="approved")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "only_looking")
    assert store.workflows.approvals.get("g").status == "pending"
    assert store.workflows.runs.get("r").status == "running"


def test_who_acts_is_told_by_the_login_of_the_service(store: StateStore) -> None:
    """inspector IN-13."""
    store.workflows.approvals.create("r", Gate("ship", "Ship it?", id="g"))

    def person(request: Request) -> str | None:
        return request.headers.get("x-user")

    client = TestClient(inspector(store, acting=True, person=person), headers={"x-user": "cleo"})
    assert "Approve as cleo" in client.get("/inbox/gates/g").text
    sent(client, "/inbox/gates/g", decision="approved")
    assert store.workflows.approvals.get("g").answered_by == "cleo"


def test_no_form_of_another_site_acts(ana: TestClient, store: StateStore) -> None:
    """inspector IN-11."""
    store.workflows.approvals.create("r", Gate("ship", "Ship it?", id="g"))
    form = {"form_token": token_of(ana), "decision": "approved"}
    assert ana.post("/inbox/gates/g", data=form, headers={"origin": "https://evil.example"}).status_code == 403
    assert ana.post("/inbox/gates/g", data={"decision": "approved"}, headers=HERE).status_code == 403
    assert store.workflows.approvals.get("g").status == "pending"
