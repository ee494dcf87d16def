"""Transcripts that are longer than a page: their phases as landmarks, and a search through all of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from inspector.test_pages import JSON, Parsed
from inspector.test_transcripts import OTHERS, put_log
from starlette.testclient import TestClient
from support.run_log.logs import RUN, event, head, put

from lastlight_state import StateStore
from lastlight_state.clock import iso_text
from lastlight_state.codec import dump_line
from lastlight_state.inspector import inspector, parts
from lastlight_state.inspector.parts import Part
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.testing import Database
from lastlight_state.workflows import PhaseEntry, RunOptions, Trigger

#: How many lines a long log has, and how many of them each phase said.
LINES, EACH = 300, 100
KINDS = ("agents", "runs", "chats")


def line(number: int, at: datetime, text: str = "said") -> bytes:
    said = {"type": "user", "timestamp": iso_text(at), "message": {"content": f"{text} {number}"}}
    return dump_line(said)


def page(client: TestClient, address: str) -> dict[str, Any]:
    answer = client.get(address, headers=JSON)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def tags(client: TestClient, address: str, name: str) -> list[dict[str, str | None]]:
    return [attributes for tag, attributes in Parsed(client.get(address).text).tags if tag == name]


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    """Return a store with a log of one agent that was driven in three phases of a run, 100 lines each."""
    store, clock = fresh_database.open(), fresh_database.clock
    w = store.workflows
    run = w.runs.create("review", trigger=Trigger("t"), phase="plan", options=RunOptions(id="phased"))
    log = b""
    for phase in ("plan", "build", "check"):
        done = w.executions.start(f"review:{phase}", run_id=run.id, session_id="others")
        for number in range(EACH):
            clock.advance(timedelta(seconds=1))
            log += line(number, clock.now(), phase)
        w.executions.finish(done.id, "failed" if phase == "build" else "succeeded")
        clock.advance(timedelta(seconds=1))
        w.runs.append_phase(run.id, PhaseEntry(phase, phase != "build", f"{phase} told"))
    put_log(store.agent_log, log)
    return store


def test_phases_of_the_run_are_headings_of_a_transcript_that_one_can_jump_to(store: StateStore) -> None:
    """inspector IN-123: also to one that is on another page; a failed one says so."""
    client = TestClient(inspector(store))
    jumps = [str(one["href"]) for one in tags(client, OTHERS, "a") if "#phase-" in str(one.get("href"))]
    assert [jump.partition("#")[2] for jump in jumps] == ["phase-0", "phase-1", "phase-2"]
    for jump, phase in zip(jumps, ("plan", "build", "check"), strict=True):
        address, _, name = jump.partition("#")
        shown = page(client, OTHERS + address)
        assert f"{phase} 0" in [one["content"] for one in shown["said"]["items"][:10]]
        assert name in [str(one.get("id")) for one in tags(client, OTHERS + address, "h2")]
    text = client.get(OTHERS + jumps[1].partition("#")[0]).text
    assert "Phase build <span" in text
    assert "build told" in text
    assert "check 0" not in text


def test_the_next_page_behind_a_jump_goes_on_from_it(store: StateStore) -> None:
    """inspector IN-123."""
    client = TestClient(inspector(store))
    phase = page(client, OTHERS)["phases"][1]["start"]
    [link] = [
        str(one["href"]) for one in tags(client, f"{OTHERS}?at={phase}&limit=20", "a") if one.get("rel") == "next"
    ]
    first = page(client, f"{OTHERS}?at={phase}&limit=20")["said"]["items"]
    second = page(client, OTHERS + link)["said"]["items"]
    assert len(first) == len(second) == 20
    assert int(second[0]["content"].split()[1]) == int(first[-1]["content"].split()[1]) + 1


def test_a_transcript_of_no_run_has_no_phases(store: StateStore) -> None:
    """inspector IN-123."""
    put_log(store.agent_log, line(1, datetime(2026, 2, 3).astimezone()), "alone")
    shown = page(TestClient(inspector(store)), "/transcripts/agents/alone")
    assert (shown["phases"], [one["phase"] for one in shown["said"]["items"]]) == ([], [None])


def test_phases_of_a_run_log_are_those_of_the_run_of_its_id(store: StateStore, fresh_database: Database) -> None:
    """inspector IN-123."""
    run = store.workflows.runs.create("w", trigger=Trigger("t"), phase="first", options=RunOptions(id=RUN))
    store.workflows.runs.append_phase(run.id, PhaseEntry("first", True))
    at = iso_text(fresh_database.clock.now())
    put(store.run_log, [head() | {"started_at": at}, event(0) | {"ts": at}])
    shown = page(TestClient(inspector(store)), f"/transcripts/runs/{RUN}")
    assert [one["phase"] for one in shown["phases"]] == ["first"]
    assert shown["said"]["items"][0]["phase"] == 0


def fill(store: StateStore, kind: str, needles: list[int]) -> str:
    """Make a long transcript in which these entries have the needle, and return its address."""
    texts = [f"a needle {n}" if n in needles else f"hay {n}" for n in range(LINES)]
    if kind == "agents":
        put_log(store.agent_log, b"".join(dump_line({"role": "user", "content": text}) for text in texts), "long")
        return "/transcripts/agents/long"
    if kind == "runs":
        put(store.run_log, [head(), *(event(n) | {"event": {"type": "text", "text": texts[n]}} for n in range(LINES))])
        return f"/transcripts/runs/{RUN}"
    chat = store.messaging.sessions.resume(ConversationKey("slack", "c", "u")).session.id
    store.messaging.messages.append_many(chat, [MessageDraft("user", text) for text in texts])
    return f"/transcripts/chats/{chat}"


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_finds_what_is_anywhere_in_a_transcript_and_leads_to_its_place(
    store: StateStore, kind: str, order: str
) -> None:
    """inspector IN-124: in its order, whatever is on the page from which it is asked."""
    address, client = fill(store, kind, [3, 151, 152, 298]), TestClient(inspector(store))
    found = page(client, f"{address}?find=NEEDLE&order={order}")
    shown = [str(one["content"] or one["record"]) for one in found["said"]["items"]]
    assert [next(n for n in (3, 151, 152, 298) if f"needle {n}" in text) for text in shown] == [3, 151, 152, 298]
    assert found["said"]["next_page_token"] is None
    places = [str(one["href"]) for one in tags(client, f"{address}?find=needle&order={order}", "a")]
    for place in [one for one in places if "#e-" in one]:
        to, _, key = place.partition("#")
        assert key in [one.get("id") for one in tags(client, address + to, "article")]
    assert "data-live" not in client.get(f"{address}?find=needle").text.partition("<main")[2][:60]


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_that_finds_much_goes_on_where_it_stopped(store: StateStore, kind: str, order: str) -> None:
    """inspector IN-124: no entry is missed, and none is met twice."""
    address, client = fill(store, kind, list(range(0, LINES, 2))), TestClient(inspector(store))
    met: list[str] = []
    query = f"?find=needle&limit=20&order={order}"
    for _ in range(20):
        met += [one["key"] for one in page(client, address + query)["said"]["items"]]
        links = [str(one["href"]) for one in tags(client, address + query, "a") if one.get("rel") == "next"]
        if not links:
            break
        [query] = links
    assert (len(met), len(set(met))) == (LINES // 2, LINES // 2)


def test_a_search_stops_after_what_one_page_may_read_and_says_so(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inspector IN-124."""
    monkeypatch.setattr(parts, "MOST_SEARCHED", 5_000)
    address, client = fill(store, "agents", [0]), TestClient(inspector(store))
    assert "0 entries have the text so far" in client.get(f"{address}?find=needle").text
    found = page(client, f"{address}?find=needle")["said"]
    while not found["items"]:
        found = page(client, f"{address}?find=needle&page_token={found['next_page_token']}")["said"]
    assert [one["content"] for one in found["items"]] == ["a needle 0"]


def test_a_jump_into_a_very_long_transcript_looks_on_where_it_stopped(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inspector IN-123."""
    monkeypatch.setattr(parts, "MOST_SEARCHED", 5_000)
    client = TestClient(inspector(store))
    query = f"?at={page(client, OTHERS)['phases'][2]['start']}&limit=10"
    while not (found := page(client, OTHERS + query))["is_there"]:
        [query] = [str(one["href"]) for one in tags(client, OTHERS + query, "a") if one.get("rel") == "next"]
    assert "check 0" in [one["content"] for one in found["said"]["items"]]


@pytest.mark.parametrize("text", ["role", "content", "is_error", "None"])
def test_names_of_fields_of_an_entry_are_not_searched(store: StateStore, text: str) -> None:
    """inspector IN-124: what was said is, as it was written, with its quotes and ends of lines."""
    said = dump_line({"role": "user", "content": 'it\'s\n"here"'})
    put_log(store.agent_log, said, "quoted")
    client = TestClient(inspector(store))
    assert page(client, f"/transcripts/agents/quoted?find={text}")["said"]["items"] == []
    assert len(page(client, "/transcripts/agents/quoted?find=it's%0A%22HERE")["said"]["items"]) == 1


def test_a_search_in_large_lines_reads_few_at_a_time() -> None:
    """inspector IN-124: so that what is held at once stays small."""
    asked: list[int] = []

    def read(n: int, then: str | None) -> Part:
        asked.append(n)
        return Part([], 4 * parts.MOST_BYTES, str(len(asked)))

    parts.search(read, "x", 50, None, backwards=True)
    assert asked[0] == parts.SEARCH_STEP
    assert set(asked[1:]) == {parts.STEP}
    assert len(asked) * 4 * parts.MOST_BYTES == parts.MOST_SEARCHED
