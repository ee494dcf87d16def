"""Cost and health: pictures beside tables, CSV, findings with their commands."""

from __future__ import annotations

import csv
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from inspector.test_pages import JSON, Parsed
from starlette.testclient import TestClient
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.inspector import inspector
from lastlight_state.inspector.pages import health
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database
from lastlight_state.workflows import ExecutionOptions, Gate, RunOptions, Trigger, Usage

MODELS = {"big": "1.25", "small": "0.0004", "=1+1": "0.5"}


@pytest.fixture
def client(fresh_database: Database) -> TestClient:
    """Return a browser before a store with an execution of each model, on two days."""
    store = fresh_database.open()
    trigger = Trigger("t", owner="o", repo="r", type="cli")
    store.workflows.runs.create("w", trigger=trigger, phase="p", options=RunOptions(id="r"))
    for number, (model, cost) in enumerate(MODELS.items()):
        store.workflows.executions.start(f"w:{number}", run_id="r", options=ExecutionOptions(id=f"e-{number}"))
        usage = Usage(model=model, cost_usd=Decimal(cost), input_tokens=10, output_tokens=1)
        store.workflows.executions.finish(f"e-{number}", "succeeded", usage=usage)
        fresh_database.clock.advance(seconds=43_200)
    return TestClient(inspector(store, clock=fresh_database.clock))


def rows_of(client: TestClient, address: str) -> list[dict[str, str]]:
    answer = client.get(address)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"].startswith('attachment; filename="usage-by-')
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_usage_is_drawn_by_day_beside_its_table(client: TestClient) -> None:
    """inspector IN-40: the picture says the same as the table and as JSON."""
    data = client.get("/cost?days=3", headers=JSON).json()
    assert [day["cost_usd"] for day in data["days"]] == ["1.25", "0.5004", "0"]
    page = Parsed(client.get("/cost?days=3").text)
    heights = [float(str(rect["height"])) for tag, rect in page.tags if rect.get("class") == "column" and tag == "rect"]
    assert heights[:3] == [160, 64.1, 0]
    assert "2026-02-04: $0.50" in page.text


@with_each("measure", ["cost_usd", "total_tokens", "executions"])
@with_each("dimension", ["workflow", "repo", "model", "trigger_type", "skill", "triggered_by"])
def test_usage_is_grouped_by_each_dimension(client: TestClient, dimension: str, measure: str) -> None:
    """inspector IN-40."""
    data = client.get(f"/cost?by={dimension}&measure={measure}", headers=JSON).json()
    assert sum(group["executions"] for group in data["groups"]) == 3
    assert client.get(f"/cost?by={dimension}&measure={measure}").status_code == 200


def test_filters_narrow_the_days(client: TestClient) -> None:
    """inspector IN-40."""
    data = client.get("/cost?days=3&model=small", headers=JSON).json()
    assert [day["cost_usd"] for day in data["days"]] == ["0", "0.0004", "0"]
    for address in ("/cost?days=0", "/cost?days=367", "/cost?by=odd", "/cost?measure=odd"):
        assert client.get(address).status_code == 400


def test_tables_are_kept_as_csv(client: TestClient) -> None:
    """inspector IN-41: with the exact amounts; what a spreadsheet would compute is text."""
    assert [row["cost_usd"] for row in rows_of(client, "/cost/daily.csv?days=2")] == ["0.5004", "0"]
    groups = rows_of(client, "/cost/groups.csv?by=model")
    assert [(row["key"], row["cost_usd"]) for row in groups] == [("big", "1.25"), ("'=1+1", "0.5"), ("small", "0.0004")]


def test_findings_are_shown_with_their_commands(filled: StateStore, fresh_database: Database) -> None:
    """inspector IN-42."""
    client = TestClient(inspector(filled, clock=fresh_database.clock))
    data = client.get("/health", headers=JSON).json()
    found = {one["check"]: one for one in data["report"]["findings"]}
    assert found
    text = Parsed(client.get("/health").text).text
    for one in found.values():
        assert one["message"] in text
        assert one["remedy"] is None or one["remedy"] in text
    assert data["stats"]["backend"] == fresh_database.name
    assert "swordfish" not in text


def test_an_examination_is_shared_for_a_minute(
    filled: StateStore, fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inspector IN-42."""
    examined: list[Any] = []
    doctor = type(filled.maintenance.doctor)
    examine = doctor.examine

    def counted(self: Any, **given: Any) -> Any:
        examined.append(given)
        return examine(self, **given)

    monkeypatch.setattr(doctor, "examine", counted)
    client = TestClient(inspector(filled, clock=fresh_database.clock))
    for seconds, count in ((0, 1), (59, 1), (1, 2), (-5, 3)):
        fresh_database.clock.advance(seconds=seconds)
        assert client.get("/health").status_code == 200
        assert len(examined) == count
    assert health.LIMIT < 10


def test_a_slow_examination_holds_one_page_and_no_other(
    filled: StateStore, fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inspector IN-43: meanwhile others show the last one, or that there is none yet."""
    began, go_on = threading.Event(), threading.Event()
    doctor = type(filled.maintenance.doctor)
    examine = doctor.examine

    def slow(self: Any, **given: Any) -> Any:
        began.set()
        assert go_on.wait(20)
        return examine(self, **given)

    monkeypatch.setattr(doctor, "examine", slow)
    monkeypatch.setattr(health, "PATIENCE", 0.01)
    app = inspector(filled, clock=fresh_database.clock)

    def looked() -> Any:
        return TestClient(app).get("/health", headers=JSON).json()

    with ThreadPoolExecutor(1) as pool:
        for is_first in (True, False):
            first = pool.submit(looked)
            try:
                assert began.wait(20)
                other = looked()
                assert (other["busy"], other["report"] is None) == (True, is_first)
                assert "under way" in TestClient(app).get("/health").text
            finally:
                go_on.set()
            assert first.result()["busy"] is False
            assert looked()["report"] is not None
            fresh_database.clock.advance(seconds=61)
            began.clear()
            go_on.clear()


def test_receipts_are_listed_and_shown(filled: StateStore) -> None:
    """inspector IN-42."""
    receipt = filled.maintenance.prune.run(PrunePolicy("fires"), actor="ana")
    client = TestClient(inspector(filled))
    listed = client.get("/health?kind=prune&state=done", headers=JSON).json()["receipts"]["items"]
    assert [one["id"] for one in listed] == [receipt.id]
    assert client.get(f"/health/receipts/{receipt.id}", headers=JSON).json()["receipt"]["kind"] == "prune"
    assert receipt.id in client.get(f"/health/receipts/{receipt.id}").text
    assert client.get("/health?kind=odd").status_code == 400


def test_health_says_how_much_waits_for_whom_and_since_when(fresh_database: Database) -> None:
    """inspector IN-128."""
    store, clock = fresh_database.open(), fresh_database.clock
    w = store.workflows
    client = TestClient(inspector(store, clock=clock))
    page = Parsed(client.get("/health").text).text
    assert "none was seen" in page
    assert "the newest (0002" in page
    for run_id, options in (
        ("asks", RunOptions(id="asks")),
        ("lost", RunOptions(id="lost", offered=True)),
        ("queued", RunOptions(id="queued", status="queued")),
    ):
        w.runs.create(run_id, trigger=Trigger("t"), phase="p", options=options)
    w.approvals.pause("asks", Gate("ship", "Ship?"))
    store.schedules.crons.put("nightly", CronSpec("* * * * *", "sweep"))
    w.workers.announce("away", workflow_names=["other"])
    clock.advance(timedelta(hours=2))
    w.workers.announce("here", workflow_names=["other"])
    data = client.get("/health", headers=JSON).json()
    numbers = {name: data["backlog"][name] for name in ("questions", "without_worker", "late_crons")}
    assert numbers == {"questions": 1, "without_worker": 2, "late_crons": 1}
    assert (data["backlog"]["queued"]["value"], data["workers"]) == (1, {"seen": 2, "gone": 1})
    page = " ".join(Parsed(client.get("/health").text).text.split())
    for text in ("1 question, the oldest 2 h", "2 runs, the oldest", "1 schedule", "1 at work, 1 gone"):
        assert text in page, text
