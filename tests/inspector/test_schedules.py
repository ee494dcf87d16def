"""Schedules: crons with what comes and came of them, and days on which something was missed."""

from __future__ import annotations

import pytest
from inspector.test_pages import HOSTILE, JSON, Parsed
from starlette.testclient import TestClient

from lastlight_state import MisuseError, StateStore, cron
from lastlight_state.inspector import inspector
from lastlight_state.inspector.rendering import segment
from lastlight_state.schedules import CronSpec, FireError, FireOutcome
from lastlight_state.testing import Database

NAME = "every </td><script>alert(1)</script> hour/.."


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    """Return a store with a cron that missed an instant and whose next fire failed."""
    store = fresh_database.open()
    store.schedules.crons.put(NAME, CronSpec("0 * * * *", "wf", catch_up="none", payload={"say": HOSTILE}))
    fresh_database.clock.advance(seconds=2 * 3600 + 600)
    assert store.schedules.crons.take_due(owner="w") == ()
    fresh_database.clock.advance(seconds=3600)
    store.schedules.overrides.put(NAME, schedule="0 6 * * *", timezone="Europe/Paris", by="ana")
    claim = store.schedules.fires.create(NAME, owner="w", actor="ana")
    store.schedules.fires.finish(claim, FireOutcome("failed", error=FireError(HOSTILE[:30], "Boom"), note="by hand"))
    return store


@pytest.fixture
def client(store: StateStore, fresh_database: Database) -> TestClient:
    return TestClient(inspector(store, clock=fresh_database.clock))


def test_a_cron_is_shown_with_its_next_instants_and_its_override(client: TestClient) -> None:
    """inspector IN-60: the instants are those of the pattern and zone that are in effect."""
    address = f"/schedules/crons/{segment(NAME)}"
    data = client.get(address, headers=JSON).json()
    assert data["cron"]["effective_pattern"] == "0 6 * * *"
    assert data["override"]["updated_by"] == "ana"
    assert [instant[11:16] for instant in data["ahead"]] == ["05:00"] * 5
    assert len(set(data["ahead"])) == 5
    assert address in [str(attributes.get("href")) for _, attributes in Parsed(client.get("/schedules").text).tags]


def test_why_instants_cannot_be_computed_is_shown(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """inspector IN-60."""

    def refuses(*_: object) -> None:
        raise MisuseError("needs an extra")

    monkeypatch.setattr(cron, "upcoming", refuses)
    assert "needs an extra" in client.get(f"/schedules/crons/{segment(NAME)}").text


def test_what_was_missed_is_a_list_and_stands_in_the_calendar(client: TestClient) -> None:
    """inspector IN-61."""
    data = client.get("/schedules?days=2", headers=JSON).json()
    [missed] = data["missed"]["items"]
    assert (missed["cron_name"], missed["note"]) == (NAME, "late, and not caught up with")
    today, yesterday = data["calendar"]
    assert today["counts"] == {"missed": 1, "failed": 1}
    assert yesterday["counts"] == {}


def test_fires_are_filtered_by_outcome(client: TestClient) -> None:
    """inspector IN-62: and each has a page with its payload and error."""
    data = client.get("/schedules/fires?status=failed", headers=JSON).json()
    [fire] = data["fires"]["items"]
    found = client.get(f"/schedules/fires/{fire['id']}", headers=JSON).json()["fire"]
    assert found["error"]["type"] == "Boom"
    page = Parsed(client.get(f"/schedules/fires/{fire['id']}").text)
    assert [tag for tag, _ in page.tags if tag == "img"] == []
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
    assert "<script>alert(1)</script>" in page.text
    assert client.get("/schedules/fires?status=odd").status_code == 400
    assert client.get("/schedules/fires/nobody").status_code == 404
    assert client.get("/schedules/crons/nobody").status_code == 404


def test_names_and_notes_of_people_are_hidden_from_schedules(store: StateStore, fresh_database: Database) -> None:
    """inspector IN-7."""
    hidden = TestClient(inspector(store, hide_personal=True, clock=fresh_database.clock))
    for address in ("/schedules/fires", f"/schedules/crons/{segment(NAME)}"):
        for text in (hidden.get(address).text, hidden.get(address, headers=JSON).text):
            assert "ana" not in Parsed(text).text.split()
            assert "by hand" not in text
