"""What people look for: why runs wait or failed, runs by trigger and id, several at once, calls with their results."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from inspector.test_acting import HERE, sent
from inspector.test_pages import JSON, Parsed, token_of
from starlette.testclient import TestClient
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.files.agent_log import Cwd
from lastlight_state.inspector import entries, inspector
from lastlight_state.testing import Database
from lastlight_state.workflows import Failure, Gate, RunOptions, Trigger, Usage


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    """Return a store with two failed runs, a paused and a held one."""
    store = fresh_database.open()
    for run_id, issue in (("broke-1", 1), ("broke-2", 2), ("asks", 3), ("held", 4)):
        trigger = Trigger(f"acme/web#{issue}", type="cli", actor="ana")
        store.workflows.runs.create("review", trigger=trigger, phase="p", options=RunOptions(id=run_id))
    for run_id in ("broke-1", "broke-2"):
        done = store.workflows.executions.start("review:check", run_id=run_id)
        store.workflows.executions.finish(
            done.id, "failed", usage=Usage(cost_usd=1.5), failure=Failure("KeyError: 'x'")
        )
        store.workflows.runs.finish(run_id, "failed", failure=Failure("KeyError: 'x'\nTraceback"))
    store.workflows.approvals.pause("asks", Gate("ship", "Ship?"))
    store.workflows.claims.take("held", owner="worker-1", lease=timedelta(hours=1))
    fresh_database.clock.advance(timedelta(hours=3))
    return store


@pytest.fixture
def ana(store: StateStore, fresh_database: Database) -> TestClient:
    """Return the browser of a person who may act."""
    return TestClient(inspector(store, acting=True, person="ana", hosts={"testserver"}, clock=fresh_database.clock))


def rows(client: TestClient, address: str, name: str = "runs") -> dict[str, Any]:
    found = client.get(address, headers=JSON).json()[name]
    return {one["id"]: one for one in (found if isinstance(found, list) else found["items"])}


def test_lists_of_runs_say_why_each_waits_or_failed(ana: TestClient) -> None:
    """inspector IN-17: in one line, with what it cost and how long it took."""
    found = rows(ana, "/runs")
    assert (found["broke-1"]["story"], found["broke-1"]["totals"]["cost_usd"]) == ("KeyError: 'x'", "1.5")
    assert found["asks"]["story"] == "waits for an answer to *ship*, asked 3 h ago"
    assert found["asks"]["took_ms"] == 3 * 3_600_000
    page = ana.get("/").text
    for text in ("KeyError: &#39;x&#39;", "acme/web#1", "its worker is gone", "$3.00"):
        assert text in page, text
    assert "run.paused" not in page


def test_runs_are_found_by_their_trigger_and_the_beginning_of_their_id(ana: TestClient) -> None:
    """inspector IN-17."""
    assert list(rows(ana, "/runs?find=acme/web%233", "found")) == ["asks"]
    assert set(rows(ana, "/runs?find=broke", "found")) == {"broke-1", "broke-2"}
    assert rows(ana, "/runs?find=nothing", "found") == {}
    assert "No run has this trigger" in ana.get("/runs?find=%27%22%3Cb%3E%25_").text
    assert rows(ana, "/runs?find=broke-1", "found")["broke-1"]["totals"]["executions"] == 1


def test_several_runs_begin_again_and_those_that_are_refused_are_named(ana: TestClient, store: StateStore) -> None:
    """inspector IN-17: each by itself, in the name of who acts, with the reason."""
    form = {"form_token": token_of(ana), "verb": "retry", "reason": "it is back", "back": "status=failed"}
    chosen = {**form, "run": ["broke-1", "asks", "broke-2"]}
    answer = ana.post("/runs", data=chosen, headers=HERE | JSON, follow_redirects=False)
    assert [(one["run_id"], "must be failed or cancelled" in one["text"]) for one in answer.json()["problems"]] == [
        ("asks", True)
    ]
    for run_id in ("broke-1", "broke-2"):
        assert store.workflows.runs.get(run_id).status == "running"
        [newest, *_] = store.workflows.lookups.list_transitions(run_id).items
        assert (newest.actor, str(newest.detail).split(";")[0]) == ("ana", "it is back")
    again = ana.post("/runs", data={**form, "verb": "cancel", "run": "held"}, headers=HERE, follow_redirects=False)
    assert (again.status_code, again.headers["location"]) == (303, "/runs?status=failed")
    assert sent(ana, "/runs", verb="explode", run="held").status_code == 404
    nobody = TestClient(inspector(store))
    assert 'name="run"' not in nobody.get("/runs").text


def test_a_failed_run_begins_again_and_a_held_one_is_taken_from_its_worker(ana: TestClient, store: StateStore) -> None:
    """inspector IN-13, IN-17."""
    assert "Begin this run again" in ana.get("/runs/broke-1").text
    assert sent(ana, "/runs/broke-1/retry", reason="again").status_code == 303
    assert store.workflows.runs.get("broke-1").status == "running"
    assert sent(ana, "/runs/held/release").status_code == 303
    assert store.workflows.claims.find("held") is None
    refused: Any = sent(ana, "/runs/held/release")
    assert (refused.status_code, refused.json()["problem"]["code"]) == (409, "not_held")


def test_the_head_of_a_run_says_what_became_of_it(ana: TestClient) -> None:
    """inspector IN-17: and sections with nothing in them are not there."""
    page = ana.get("/runs/broke-1").text
    for text in ("KeyError: &#39;x&#39;", "begun by ana", "$1.50 for 1 execution", "ended <time"):
        assert text in page, text
    for text in ("There is none", "was given no input", "Tool calls", "Frames"):
        assert text not in page, text
    asks = ana.get("/runs/asks").text
    assert "waits for an answer to *ship*, asked 3 h ago" in asks
    assert "/inbox/gates/" in asks


def test_what_a_run_waits_for_is_hidden_with_personal_data(store: StateStore) -> None:
    """inspector IN-7: a sentence may hold an error or a name."""
    hidden = TestClient(inspector(store, hide_personal=True))
    for address in ("/", "/runs", "/runs/broke-1", "/runs/asks"):
        text = hidden.get(address).text + hidden.get(address, headers=JSON).text
        assert "KeyError" not in text, address


def test_each_cell_has_the_head_of_its_column_for_narrow_screens(ana: TestClient) -> None:
    """inspector IN-18."""
    cells = [attributes for tag, attributes in Parsed(ana.get("/runs").text).tags if tag == "td"]
    assert {one["data-head"] for one in cells} == {
        "Choose", "Run", "State", "Phase", "Begun by", "Started", "Took", "Cost",
    }  # fmt: skip


def test_a_call_and_its_result_are_one_line_while_they_are_folded(ana: TestClient, store: StateStore) -> None:
    """inspector IN-19: with the first line of each; a text is found in a part."""
    with store.agent_log.writer.open(place=Cwd("/work/here"), session_id="log-9", prompt="# Look") as writer:
        for n in range(3):
            call = {"type": "toolCall", "id": f"c{n}", "name": "bash", "arguments": {"command": f"git diff {n}\nls"}}
            writer.feed({"type": "message_end", "message": {"role": "assistant", "content": [call]}})
            writer.feed({"type": "tool_execution_end", "toolCallId": f"c{n}", "result": f"\n3 passed {n}\nmore"})
    page = ana.get("/transcripts/agents/log-9").text
    assert "<h3>Look</h3>" in page
    assert '<b>bash</b> <code>git diff 1</code> → <span class="faint">3 passed 1</span>' in page
    found = ana.get("/transcripts/agents/log-9?find=PASSED%202", headers=JSON).json()["said"]["items"]
    assert [one["calls"][0]["id"] for one in found] == ["c2"]


@with_each(
    ("value", "told"),
    [({"command": "ls\npwd"}, "ls"), ('{"path": "a.py"}', "a.py"), ("{no json", "{no json"), (None, ""), ([], "[]"),
     ([{"type": "text", "text": "so\nmore"}], "so"), ({"n": 1}, '{"n": 1}'), ("x" * 200, "x" * 100 + "…"), (7, "7")],
)  # fmt: skip
def test_a_folded_value_is_its_first_line(value: Any, told: str) -> None:
    """inspector IN-19."""
    assert entries.brief(value) == told


def test_results_stay_where_their_call_is_not_in_the_part() -> None:
    """inspector IN-19: and a second answer to one call is shown by itself."""
    asked = entries.entry("assistant", calls=[{"id": "a", "tool": "x", "arguments": None}])
    answers = [entries.entry("tool", call_id=key, content=key) for key in ("a", "a", "b")]
    shown = entries.pair_results([asked, *answers])
    assert [one["role"] for one in shown] == ["assistant", "tool", "tool"]
    assert shown[0]["calls"][0]["result"]["content"] == "a"


def test_the_page_of_cost_begins_with_the_total(ana: TestClient) -> None:
    """inspector IN-40."""
    assert ana.get("/cost", headers=JSON).json()["total"]["cost_usd"] == "3"
    assert "<b>$3.00</b> for 2 executions" in ana.get("/cost").text


def test_errors_of_the_last_30_days_are_searched_unless_it_is_said(store: StateStore, fresh_database: Database) -> None:
    """inspector IN-17: older ones are found where a filter says since when."""
    fresh_database.clock.advance(timedelta(days=40))
    client = TestClient(inspector(store, clock=fresh_database.clock))
    assert rows(client, "/runs?error=KeyError", "errors") == {}
    assert "of the last 30 days" in client.get("/runs?error=KeyError").text
    assert len(rows(client, "/runs?error=KeyError&since=50d", "errors")) == 2
