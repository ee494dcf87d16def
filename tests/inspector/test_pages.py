"""Every page as HTML and as JSON, over rows of every kind, and over what is hostile."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from inspector.conftest import LONG
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from support.each import with_each
from support.run_log.logs import EXAMPLE_RUN

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.inspector import inspector
from lastlight_state.inspector.page import Ask, Route
from lastlight_state.inspector.pages import PAGES
from lastlight_state.inspector.rendering import segment
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, RunOptions, Trigger

JSON = {"accept": "application/json"}
#: An address for each route of each page; a page is tested as soon as it is here, and missing here fails a test.
ADDRESSES = {
    "": ["/"],
    "/conversations": ["/conversations", "/conversations?status=running&limit=1&since=900w"],
    "/conversations/{session_id}": ["/conversations/talk-0", "/conversations/talk-1"],
    "/conversations/branches/{branch_id}": ["/conversations/branches/branch-0"],
    "/conversations/messages/{message_id}": ["/conversations/messages/msg-0", "/conversations/messages/circular"],
    "/cost": ["/cost", "/cost?days=366&workflow=home&by=model&measure=total_tokens"],
    "/health": ["/health", "/health?kind=prune&state=running"],
    "/inbox": ["/inbox", "/inbox?run=run-0&order=newest", "/inbox?limit=1"],
    "/inbox/gates/{id}": ["/inbox/gates/open-0", "/inbox/gates/ap-0", "/inbox/gates/done-0"],
    "/inbox/requests/{id}": ["/inbox/requests/open-0", "/inbox/requests/hr-0"],
    "/mailboxes": ["/mailboxes", "/mailboxes?group=crew&limit=1"],
    "/runs": [
        "/runs",
        "/runs?status=running&status=paused&workflow=home&repo=o/r&since=7d&limit=2",
        "/runs?error=nothing",
    ],
    "/runs/{run_id}": ["/runs/home", "/runs/run-0", "/runs/queued-1"],
    "/runs/{run_id}/timeline": ["/runs/home/timeline"],
    "/runs/{run_id}/executions/{execution_id}": ["/runs/home/executions/ex-0"],
    "/schedules": ["/schedules", "/schedules?enabled=on&origin=database&retired=all&days=3&limit=1"],
    "/schedules/crons/{name}": ["/schedules/crons/cron-0", "/schedules/crons/cron-1?status=running&source=manual"],
    "/schedules/fires": ["/schedules/fires", "/schedules/fires?cron=fired-0&status=running&status=ok&since=7d"],
    "/transcripts": [
        "/transcripts",
        "/transcripts?scope=sandbox&project=-work-here&state=ended&since=900w&user=u&platform=chat&limit=1",
    ],
    "/transcripts/agents/{session_id}": [
        "/transcripts/agents/log-0",
        "/transcripts/agents/log-0?order=oldest&limit=1&project=-work-here",
        "/transcripts/agents/log-0?find=look",
    ],
    "/transcripts/agents/{session_id}/results/{sha256}": [
        f"/transcripts/agents/log-0/results/{sha256(LONG.encode()).hexdigest()}"
    ],
    "/transcripts/runs/{run_id}": [
        f"/transcripts/runs/{EXAMPLE_RUN}",
        f"/transcripts/runs/{EXAMPLE_RUN}?order=oldest&limit=2",
    ],
    "/transcripts/chats/{session_id}": ["/transcripts/chats/ms-0", "/transcripts/chats/ms-0?order=oldest&limit=1"],
    "/runs/{run_id}/frames/{frame_no}": ["/runs/home/frames/0", "/runs/home/frames/1"],
}
#: What is tried in a file of its own: tables as CSV, and records that the scene has none of.
ELSEWHERE = {
    "/cost/daily.csv",
    "/cost/groups.csv",
    "/health/receipts/{id}",
    "/schedules/fires/{id}",
    "/mailboxes/{group}/{session}",
    "/mailboxes/{group}/{session}/messages/{id}",
}
HOSTILE = "<script>alert(1)</script>'\"`&<img src=x onerror=alert(1)>\u202e\x1b[31m\x7f{{7*7}}"


class Parsed(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_address_of_every_page_is_tried_here() -> None:
    looked_at = {route.path for page in PAGES for route in page.routes if not route.acts}
    assert looked_at == set(ADDRESSES) | ELSEWHERE


@with_each("address", [address for addresses in ADDRESSES.values() for address in addresses])
def test_a_page_answers_as_html_and_as_json_of_the_same_data(visitor: TestClient, address: str) -> None:
    """inspector IN-1."""
    page = visitor.get(address)
    assert page.status_code == 200, page.text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    data = visitor.get(address, headers=JSON)
    assert data.status_code == 200
    assert data.headers["content-type"] == "application/json"
    assert isinstance(data.json(), dict)


LIVE = [route for page in PAGES for route in page.routes if route.live and route.path in ADDRESSES]


@with_each("route", LIVE, ids=[route.path for route in LIVE])
def test_a_live_page_names_what_it_reads_of_its_query(
    visitor: TestClient, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inspector IN-22: otherwise a filter would be ignored."""
    read: set[str] = set()
    texts = Ask.texts

    def recorded_texts(ask: Ask, name: str) -> list[str]:
        read.add(name)
        return texts(ask, name)

    monkeypatch.setattr(Ask, "texts", recorded_texts)
    for address in ADDRESSES[route.path]:
        visitor.get(address)
    assert read == route.takes


@with_each("address", [addresses[0] for addresses in ADDRESSES.values()])
def test_a_page_needs_no_script_and_loads_nothing_from_elsewhere(visitor: TestClient, address: str) -> None:
    """inspector IN-2: no inline script or style, and every address that is loaded is of this application."""
    tags = Parsed(visitor.get(address).text).tags
    loaded = [attributes.get("src") or attributes.get("href") for tag, attributes in tags if tag in ("script", "link")]
    assert loaded
    assert all(str(path).startswith("/assets/") for path in loaded)
    assert [
        tag for tag, attributes in tags if tag == "style" or {name for name in attributes if name[:2] == "on"}
    ] == []
    assert [attributes for _, attributes in tags if "style" in attributes] == []
    for path in loaded:
        assert visitor.get(str(path)).status_code == 200


def test_the_first_of_the_contents_wanted_most_is_given(browser: TestClient) -> None:
    """inspector IN-1."""
    for accept, kind in (
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("application/json", "application/json"),
        ("text/html;q=0.5, application/json", "application/json"),
        ("application/json;q=0.1, text/html;q=0.5", "text/html"),
        ("*/*", "text/html"),
        ("application/json;q=x", "text/html"),
    ):
        assert browser.get("/", headers={"accept": accept}).headers["content-type"].startswith(kind), accept


@with_each(
    ("address", "status", "code"),
    [
        ("/runs/nobody", 404, "not_found"),
        ("/elsewhere", 404, "not_found"),
        ("/assets/../app.py", 404, "not_found"),
        ("/runs?since=yesterday", 400, "invalid_value"),
        ("/runs?limit=0", 400, "invalid_value"),
        ("/runs?limit=9999999999", 400, "invalid_value"),
        ("/runs?page_token=x", 400, "invalid_value"),
        ("/runs?status=odd", 400, "invalid_value"),
        ("/runs/home/frames/x", 400, "invalid_value"),
        ("/inbox/gates/nobody", 404, "not_found"),
        ("/inbox/requests/nobody", 404, "not_found"),
        ("/inbox?order=odd", 400, "invalid_value"),
        ("/inbox?gates=x", 400, "invalid_value"),
        ("/transcripts?scope=odd", 400, "invalid_value"),
        ("/transcripts/agents/nobody", 404, "not_found"),
        ("/transcripts/agents/log-0?order=odd", 400, "invalid_value"),
        ("/transcripts/agents/log-0?page_token=x", 400, "invalid_value"),
        (f"/transcripts/agents/log-0/results/{'0' * 64}", 404, "not_found"),
        ("/transcripts/agents/log-0/results/x", 400, "invalid_value"),
        ("/transcripts/runs/nobody", 404, "not_found"),
        ("/transcripts/chats/nobody", 404, "not_found"),
        ("/transcripts/chats/ms-0?page_token=x", 400, "invalid_value"),
    ],
)
def test_what_cannot_be_shown_is_a_page_of_its_own(visitor: TestClient, address: str, status: int, code: str) -> None:
    """inspector IN-3: with the status and the code of the error, as HTML and as JSON."""
    page, data = visitor.get(address), visitor.get(address, headers=JSON)
    assert (page.status_code, data.status_code) == (status, status)
    assert data.json()["error"]["code"] == code
    assert code in page.text


def test_the_next_page_of_a_list_is_a_link_that_keeps_the_filter(browser: TestClient) -> None:
    """inspector IN-4."""
    page = Parsed(browser.get("/runs?limit=2&status=running").text)
    [link] = [str(attributes["href"]) for _, attributes in page.tags if attributes.get("rel") == "next"]
    assert "limit=2" in link
    assert "status=running" in link
    first, second = (browser.get(f"/runs{query}", headers=JSON).json() for query in ("?limit=2&status=running", link))
    seen = [run["id"] for part in (first, second) for run in part["runs"]["items"]]
    assert len(set(seen)) == 4


def test_hostile_texts_are_shown_and_do_nothing(filled: StateStore) -> None:
    """inspector IN-5: markup is escaped, control characters and what turns text are shown as escapes."""
    options = RunOptions(id="hostile")
    made = filled.workflows.runs.create(
        "evil</script>", trigger=Trigger(f"t {HOSTILE[:40]}", type="api", actor="x\"'><b>"), phase="<b>p</b>",
        context={"key</pre><script>": HOSTILE.replace("\x1b", "")}, options=options,
    )  # fmt: skip
    filled.workflows.approvals.create(made.id, Gate("gate<i>", HOSTILE, id="hostile-gate"))
    client = TestClient(inspector(filled))
    text = client.get("/runs/hostile").text
    parsed = Parsed(text)
    assert [tag for tag, _ in parsed.tags if tag in ("b", "i", "img")] == []
    assert len([tag for tag, _ in parsed.tags if tag == "script"]) == 1
    assert "<script>alert(1)</script>" in parsed.text
    assert "{{7*7}}" in parsed.text
    assert "\\u202e" in parsed.text
    assert not re.search("[\x00-\x08\x0e-\x1f\x7f\u202a-\u202e]", text)
    assert client.get("/runs/hostile", headers=JSON).json()["gates"]["items"][0]["summary"] == HOSTILE


def test_an_id_may_hold_what_addresses_are_made_of(filled: StateStore) -> None:
    """inspector IN-5."""
    client = TestClient(inspector(filled))
    for run_id in ("a/b", "..", "a?b#c", "100%25", "ü ö~"):
        made = filled.workflows.runs.create(
            "odd", trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id=run_id)
        )
        links = [attributes.get("href") for _, attributes in Parsed(client.get("/runs?workflow=odd").text).tags]
        assert f"/runs/{segment(run_id)}" in links
        data = client.get(f"/runs/{segment(run_id)}", headers=JSON).json()
        assert data["run"]["id"] == made.id


@pytest.mark.slow
def test_huge_texts_are_shown(filled: StateStore) -> None:
    """inspector IN-5: a megabyte without a space takes no more than a moment."""
    started = filled.workflows.executions.start("home:huge", run_id="home").id
    filled.workflows.executions.save_output(started, "a://b:" * 170_000)
    text = TestClient(inspector(filled)).get(f"/runs/home/executions/{started}").text
    assert len(text) > 1_000_000


def test_it_is_mounted_below_any_path(filled: StateStore) -> None:
    """inspector IN-6: every link, asset and form is below the path."""
    client = TestClient(Starlette(routes=[Mount("/ops/state", inspector(filled))]))
    page = Parsed(client.get("/ops/state/runs").text)
    paths = [
        attributes[name] for tag, attributes in page.tags for name in ("href", "src", "action") if name in attributes
    ]
    within = [path for path in paths if path and not path.startswith(("/ops/state/", "?", "#"))]
    assert (len(paths) > 10, within) == (True, [])
    assert client.get("/ops/state/assets/style.css").status_code == 200
    assert client.get("/ops/state/runs/home").status_code == 200


def test_an_async_store_is_shown_as_well(filled: StateStore) -> None:
    """inspector IN-6."""
    client = TestClient(inspector(AsyncStateStore(filled)))
    assert client.get("/runs/home", headers=JSON).json()["run"]["id"] == "home"


def test_personal_data_is_hidden_by_a_switch_of_the_browser_and_for_all(filled: StateStore) -> None:
    """inspector IN-7: names of people and what they wrote, in pages and in JSON."""
    shown, hidden = TestClient(inspector(filled)), TestClient(inspector(filled, hide_personal=True))

    def names(client: TestClient) -> set[Any]:
        return {change["actor"] for change in client.get("/runs/home", headers=JSON).json()["transitions"]["items"]}

    assert "ana" in names(shown)
    assert names(hidden) == {None, "(hidden)"}
    assert "ana" not in Parsed(hidden.get("/runs/home").text).text.split()
    form = {"form_token": token_of(shown), "hide": "1", "to": "/runs"}
    moved = shown.post("/personal", data=form, headers={"origin": "http://testserver"}, follow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (303, "/runs")
    assert names(shown) == {None, "(hidden)"}


@with_each("address", [address for addresses in ADDRESSES.values() for address in addresses])
def test_every_page_is_whole_with_personal_data_hidden(shown: StateStore, looked_at: Database, address: str) -> None:
    """inspector IN-7."""
    hidden = TestClient(inspector(shown, hide_personal=True, clock=looked_at.clock))
    assert (hidden.get(address).status_code, hidden.get(address, headers=JSON).status_code) == (200, 200)


def test_runs_are_filtered_by_person_and_time(browser: TestClient) -> None:
    """inspector IN-4: they are not counted by person."""
    found = [
        browser.get(f"/runs?{query}", headers=JSON).json() for query in ("person=nobody", "until=900w", "until=1m")
    ]
    assert [len(one["runs"]["items"]) for one in found] == [0, 0, 13]
    assert [one["count"] and one["count"]["value"] for one in found] == [None, 0, 13]


def test_the_state_of_now_is_what_needs_somebody(browser: TestClient) -> None:
    """inspector IN-8."""
    data = browser.get("/", headers=JSON).json()
    assert len(data["questions"]) == sum(data["waiting_for_people"].values())
    assert {one["story"] for one in data["crons"]} == {"due 1 h 59 min ago, and no scheduler has taken it"}
    assert len(data["crons"]) == 3
    assert {one["id"] for one in data["unhealthy"]["items"]} >= {"spent-0", "spent-1", "spent-2"}
    assert all(one["troubles"][0]["todo"] for one in data["unhealthy"]["items"])


def test_no_run_stands_twice_among_what_goes_on_waits_and_is_unwell(browser: TestClient) -> None:
    """inspector IN-8."""
    data = browser.get("/", headers=JSON).json()
    shown = [one["id"] for name in ("going", "resting", "queue", "failures") for one in data[name]]
    shown += [one["id"] for one in data["unhealthy"]["items"]]
    assert len(shown) == len(set(shown))


def test_a_run_is_drawn_on_one_axis_beside_its_tables(browser: TestClient) -> None:
    """inspector IN-9: executions and gates as bars, transitions, signals and events as marks, each with its text."""
    page = Parsed(browser.get("/runs/home").text)
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert [(one["role"], bool(one["aria-label"])) for one in pictures] == [("img", True)] * 2
    kinds = [str(attributes.get("class")).split()[0] for tag, attributes in page.tags if tag in ("rect", "circle")]
    assert kinds.count("bar") == 6
    assert kinds.count("mark") == 7 + 3 + 3


def token_of(client: TestClient) -> str:
    """Return the token that the forms of this browser carry."""
    fields = [attributes for tag, attributes in Parsed(client.get("/").text).tags if tag == "input"]
    return str(next(field["value"] for field in fields if field.get("name") == "form_token"))


def test_json_is_one_object_that_holds_no_html(browser: TestClient) -> None:
    """inspector IN-1."""
    answer = browser.get("/runs/home", headers=JSON)
    assert json.loads(answer.text)["run"]["id"] == "home"
    assert "<" not in answer.text.replace("<step", "").replace("</step", "")
