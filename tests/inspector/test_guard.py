"""Who may look: tokens, hosts, origins of forms, headers, and what is never shown."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from inspector.test_pages import JSON, token_of
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from support.each import with_each

from lastlight_state import InvalidValue, StateStore
from lastlight_state.inspector import inspector
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, RunOptions, Trigger

TOKEN = "a-token-of-this-test"
HERE = {"origin": "http://testserver"}


@pytest.fixture
def guarded(shown: StateStore) -> TestClient:
    """Return a browser in front of an inspector with a token."""
    return TestClient(inspector(shown, token=TOKEN))


@with_each("address", ["/", "/runs", "/runs/home", "/elsewhere", "/personal"])
def test_without_the_token_nothing_is_shown(guarded: TestClient, address: str) -> None:
    """inspector IN-10."""
    for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "lastlight_login=wrong"}):
        page, data = guarded.get(address, headers=headers), guarded.get(address, headers=JSON | headers)
        assert (page.status_code, data.status_code) == (401, 401)
        assert data.json() == {"error": {"code": "unauthorized", "message": "the token is needed"}}
        assert "wf-0" not in page.text
        assert page.headers["www-authenticate"] == "Bearer"


def test_the_token_is_taken_as_a_header(guarded: TestClient) -> None:
    """inspector IN-10."""
    assert guarded.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_is_asked_for_once(guarded: TestClient) -> None:
    """inspector IN-10: then a cookie that is not the token lets the browser in, back to where it wanted to go."""
    asked = guarded.get("/runs")
    assert 'action="/login?to=%2Fruns"' in asked.text
    form = {"form_token": guarded.cookies["lastlight_form"]}
    wrong = guarded.post("/login?to=/runs", data={**form, "token": "guess"}, headers=HERE)
    assert wrong.status_code == 401
    right = guarded.post("/login?to=/runs", data={**form, "token": TOKEN}, headers=HERE, follow_redirects=False)
    assert (right.status_code, right.headers["location"]) == (303, "/runs")
    cookie = next(value for value in right.headers.get_list("set-cookie") if value.startswith("lastlight_login"))
    assert TOKEN not in cookie
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert guarded.get("/runs").status_code == 200


@with_each("to", ["https://evil.example/", "//evil.example/", "/\\evil.example", "runs", "/\n/evil"])
def test_after_the_token_nobody_is_sent_elsewhere(guarded: TestClient, to: str) -> None:
    """inspector IN-10."""
    guarded.get("/")
    form = {"form_token": guarded.cookies["lastlight_form"], "token": TOKEN}
    answer = guarded.post("/login", params={"to": to}, data=form, headers=HERE, follow_redirects=False)
    assert answer.headers["location"] == "/"


@with_each(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=["none", "foreign", "null", "broken", "cross-site"],
)
def test_a_form_of_another_origin_is_refused(shown: StateStore, headers: dict[str, str]) -> None:
    """inspector IN-11."""
    client = TestClient(inspector(shown))
    form = {"form_token": token_of(client), "hide": "1"}
    answer = client.post("/personal", data=form, headers=headers | JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")


@with_each("token", [None, "", "guess"])
def test_a_form_without_the_token_of_the_browser_is_refused(shown: StateStore, token: str | None) -> None:
    """inspector IN-11: also one of the same origin."""
    client = TestClient(inspector(shown))
    for _ in range(2):  # without a cookie, and with one
        form = {"hide": "1"} | ({} if token is None else {"form_token": token})
        answer = client.post("/personal", data=form, headers=HERE | JSON)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_form")
        client.get("/")


def test_a_form_has_a_greatest_size(shown: StateStore) -> None:
    """inspector IN-11."""
    client = TestClient(inspector(shown))
    form = {"form_token": token_of(client), "hide": "x" * 1_100_000}
    assert client.post("/personal", data=form, headers=HERE).status_code == 413


@with_each("address", ["/personal", "/login", "/runs/home/cancel"])
def test_a_form_or_a_query_of_too_many_values_is_refused(shown: StateStore, address: str) -> None:
    """inspector IN-3, IN-11."""
    client = TestClient(inspector(shown, acting=True, person="ana"))
    answer = client.post(address, content="a=1&" * 1_001, headers=HERE | JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")
    for headers in ({}, JSON):
        assert client.get(f"/runs?{'a=1&' * 1_001}", headers=headers).status_code == 400
    locked = TestClient(inspector(shown, token=TOKEN))
    assert locked.get(f"/runs?{'a=1&' * 1_001}").status_code == 401


def test_a_browser_with_an_empty_cookie_is_given_a_token(shown: StateStore) -> None:
    """inspector IN-11."""
    client = TestClient(inspector(shown))
    client.cookies.set("lastlight_form", "", domain="testserver.local")
    form = {"form_token": token_of(client), "hide": "1"}
    assert client.post("/personal", data=form, headers=HERE, follow_redirects=False).status_code == 303


@with_each("path", ["/ü", "/日本", "/a b"])
def test_cookies_are_of_the_path_as_the_browser_has_it(shown: StateStore, path: str) -> None:
    """inspector IN-6, IN-10."""
    client = TestClient(Starlette(routes=[Mount(path, inspector(shown, token=TOKEN))]))
    [cookie] = client.get(f"{path}/runs").headers.get_list("set-cookie")
    assert f"Path={quote(path)};" in cookie


def test_it_answers_to_its_names_alone(shown: StateStore) -> None:
    """inspector IN-12: a name of another machine that was made to lead here shows nothing."""
    app = inspector(shown, hosts={"localhost", "127.0.0.1", "::1"})
    for host, status in (
        ("localhost", 200),
        ("LOCALHOST:8765", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8765", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8765", 421),
        ("localhost@evil.example", 421),
        ("[", 421),
        ("", 421),
    ):
        assert TestClient(app).get("/", headers={"host": host}).status_code == status, host


@pytest.mark.parametrize(
    ("peer", "host", "status"),
    [
        ("127.0.0.1", "localhost:8765", 303),
        ("::1", "[::1]:8765", 303),
        ("127.0.0.1", "evil.example", 403),  # a name of another site that was made to lead here
        ("127.0.0.1", "localhost.evil.example", 403),
        ("192.0.2.7", "localhost:8765", 403),
        (None, "localhost", 403),
    ],
)
def test_without_a_login_only_this_machine_acts(filled: StateStore, peer: str | None, host: str, status: int) -> None:
    """inspector IN-13: by its peer and by the name that it asks for."""
    app, run = inspector(filled, acting=True, person="ana"), "/runs/home"
    client = TestClient(Peer(app, peer), base_url=f"http://{host}")
    assert ("Pause" in client.get(run).text) is (status == 303)
    headers = {"origin": f"http://{host}", **JSON}
    form = {"form_token": token_of(client)}
    answer = client.post(f"{run}/pause", data=form, headers=headers, follow_redirects=False)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["code"] == "no_login"


@with_each(
    ("origin", "site", "status"),
    [
        ("http://testserver", None, 303),
        ("https://testserver", None, 403),
        ("https://testserver", "same-origin", 303),  # behind a proxy that ends TLS
        ("https://testserver", "same-site", 403),
        ("http://testserver", "cross-site", 403),
        ("https://evil.example", "same-origin", 403),
        (None, "same-origin", 303),
        (None, None, 403),
    ],
)
def test_a_form_is_of_the_same_scheme_and_host(
    shown: StateStore, origin: str | None, site: str | None, status: int
) -> None:
    """inspector IN-11"""
    client = TestClient(inspector(shown))
    given = {"origin": origin, "sec-fetch-site": site}
    headers = {name: value for name, value in given.items() if value is not None}
    form = {"form_token": token_of(client), "hide": "1"}
    assert client.post("/personal", data=form, headers=headers, follow_redirects=False).status_code == status


@with_each("address", ["/", "/assets/script.js", "/runs/nobody", "/login"])
def test_every_answer_binds_the_browser(shown: StateStore, address: str) -> None:
    """inspector IN-2."""
    headers = TestClient(inspector(shown)).get(address).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"


def test_only_those_may_act_for_whom_it_is_switched_on(filled: StateStore) -> None:
    """inspector IN-13."""
    with pytest.raises(InvalidValue, match="person"):
        inspector(filled, acting=True)
    with pytest.raises(InvalidValue, match="token"):
        inspector(filled, token=" ")


def test_a_store_that_only_reads_cannot_be_acted_on(fresh_database: Database) -> None:
    """inspector IN-13."""
    with pytest.raises(InvalidValue, match="reading only"):
        inspector(fresh_database.open(read_only=True), acting=True, person="ana")


def test_passwords_and_the_token_are_never_shown(fresh_database: Database) -> None:
    """inspector IN-14: also where somebody stored them."""
    store = fresh_database.open()
    url = "postgresql://app:swordfish-1@db.internal/agents"
    store.outputs.inputs.ensure(_run(store), {"url": url, "told": f"the token is {TOKEN}", url: 1})
    store.workflows.approvals.create("r", Gate(url, "?", id="g"))  # in a picture, and in the title of a window
    client = TestClient(inspector(store, token=TOKEN), headers={"authorization": f"Bearer {TOKEN}"})
    for address in ("/runs/r", "/inbox/gates/g"):
        assert "swordfish-1" not in client.get(address).text
    for text in (client.get("/runs/r").text, client.get("/runs/r", headers=JSON).text):
        assert "swordfish-1" not in text
        assert TOKEN not in text
        assert "postgresql://app:***@db.internal/agents" in text


class Peer:
    """An application whose requests come from one address."""

    def __init__(self, app: ASGIApp, address: str | None) -> None:
        self._app, self._client = app, None if address is None else (address, 50_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "client": self._client}, receive, send)


def _run(store: StateStore) -> str:
    trigger = Trigger("t", type="cli")
    return store.workflows.runs.create("w", trigger=trigger, phase="p", options=RunOptions(id="r")).id
