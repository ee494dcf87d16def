"""What an examination finds in schedules, chat sessions, mailboxes and logs, to the moment and the number."""

from __future__ import annotations

import heapq
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.conversations.talk import begun
from support.journal.trees import element
from support.mailbox.files import outbound, send, sql
from support.maintenance.mailbox_trees import say, write_session
from support.maintenance.rows import insert
from support.run_log.logs import ending, event, head, id_of, put

from lastlight_state import StateStore
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.conversations import NewChunk, NewSession
from lastlight_state.errors import Conflict, CorruptData
from lastlight_state.files.agent_log import Cwd
from lastlight_state.files.mailbox import HostMailbox
from lastlight_state.maintenance import Finding
from lastlight_state.maintenance.doctor import contents, domains, server
from lastlight_state.maintenance.doctor.check import every
from lastlight_state.messaging import ConversationKey
from lastlight_state.schedules import CronSpec, FireOutcome
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

MILLISECOND = timedelta(milliseconds=1)
HOURLY = CronSpec("0 * * * *", "wf")


def told(store: StateStore, check: str, *, deep: bool = False) -> dict[str, tuple[str, ...]]:
    """The samples of a check's findings by their subject and the first words of their message."""
    found = store.maintenance.doctor.examine(only=[check], deep=deep)
    assert found.checks_skipped == ()
    return {_key(finding): finding.samples for finding in found.findings}


def _key(finding: Finding) -> str:
    words = finding.message.split()[: 4 if finding.subject == "run logs" else 3]
    return f"{finding.subject}: {' '.join(words)}"


def test_overrides_are_told_whose_cron_neither_stands_in_a_schedule_nor_has_fired(database: Database) -> None:
    """schedules A-3: crons that are kept elsewhere have fires alone."""
    store = database.open()
    for name in ("stray", "planned", "elsewhere"):
        store.schedules.overrides.put(name, enabled=True)
    store.schedules.crons.put("planned", HOURLY)
    store.schedules.fires.create("elsewhere", owner="w")
    assert told(store, "DOC-08") == {"cron_overrides: no schedule has": ("stray",)}


def test_crons_are_told_that_have_been_due_for_more_than_an_hour(database: Database) -> None:
    """schedules A-3: not those that are switched off, retired, or off by their override."""
    store, crons = database.open(), database.open().schedules.crons
    for name in ("due", "off", "retired", "overridden", "never"):
        crons.put(name, HOURLY, next_run_at=None if name == "never" else database.clock.now())
    crons.put("off", HOURLY, enabled=False, next_run_at=database.clock.now())
    store.schedules.overrides.put("overridden", enabled=False)
    crons.retire("retired")
    database.clock.advance(timedelta(hours=1))
    assert told(store, "DOC-15") == {}
    database.clock.advance(MILLISECOND)
    assert told(store, "DOC-15") == {"cron_schedules: due for more": ("due",)}


def test_crons_are_told_that_cannot_be_planned_any_more(database: Database) -> None:
    """schedules A-3, C-28."""
    store, raw = database.open(), database.raw()
    for name in ("broken", "off", "sound"):
        store.schedules.crons.put(name, HOURLY, next_run_at=database.clock.now())
    raw.execute("UPDATE cron_schedules SET pattern = 'nonsense' WHERE name <> 'sound'")
    claims = store.schedules.crons.take_due(owner="w", limit=3)
    for claim in claims:
        store.schedules.fires.finish(claim, FireOutcome())
    store.schedules.overrides.put("off", enabled=False)
    assert told(store, "DOC-15") == {"cron_schedules: switched on, and": ("broken",)}


def test_crons_are_told_whose_last_three_fires_failed(database: Database) -> None:
    """schedules A-3: two are not told, nor three before one that went well."""
    store = database.open()
    for name, ends in {"three": "fff", "two": "ff", "mended": "fffk", "off": "fff", "cleared": "fff"}.items():
        store.schedules.crons.put(name, HOURLY)
        for end in ends:
            database.clock.advance(timedelta(seconds=1))
            claim = store.schedules.fires.create(name, owner="w")
            outcome = FireOutcome() if end == "k" else FireOutcome("failed", error="no")
            store.schedules.fires.finish(claim, outcome)
    store.schedules.crons.put("off", HOURLY, enabled=False)
    planned = store.schedules.crons.get("cleared").next_run_at
    store.schedules.crons.update_run("cleared", expected_next_run_at=planned, last_run_at=None, next_run_at=planned)
    assert told(store, "DOC-15") == {"cron_schedules: the last 3": ("three",)}


def test_a_place_with_two_active_chat_sessions_is_told_and_so_are_retired_duplicates(fresh_database: Database) -> None:
    """messaging M-71: the first is possible only without the index that forbids it."""
    store, raw = fresh_database.open(), fresh_database.raw()
    first = store.messaging.sessions.create(ConversationKey("p", "c", "u")).id
    store.messaging.sessions.create(ConversationKey("p", "c", "u", thread_id="t"))
    raw.execute("DROP INDEX uq_messaging_sessions_active_key")
    now = fresh_database.clock.now()
    row = {"platform": "p", "channel_id": "c", "user_id": "u", "created_at": now, "last_activity_at": now}
    insert(raw, "messaging_sessions", {"id": "z", **row})
    duplicate = {"deactivated_at": now, "deactivated_reason": "duplicate", "active": False}
    insert(raw, "messaging_sessions", {"id": "old", **row, **duplicate})
    assert told(store, "DOC-16") == {
        "messaging_sessions: a user has": (min(first, "z"),),
        "messaging_sessions: retired as a": ("old",),
    }


def test_a_chat_session_counts_its_own_messages(database: Database) -> None:
    """maintenance OP-15."""
    store, raw = database.open(), database.raw()
    one, two = (store.messaging.sessions.create(ConversationKey("p", "c", user)).id for user in "ab")
    for session in (one, two, two):
        store.messaging.messages.append(session, role="user", content="x")
    assert told(store, "DOC-16") == {}
    raw.execute("UPDATE messaging_sessions SET message_count = 3")
    raw.execute(f"UPDATE messaging_sessions SET message_count = 2 WHERE id = '{two}'")
    assert told(store, "DOC-16") == {"messaging_sessions: message_count is not": (one,)}


def test_a_place_may_have_any_number_of_chat_sessions_that_ended(database: Database) -> None:
    """messaging M-71: one of them is active at a time."""
    store = database.open()
    for _ in range(2):
        ended = store.messaging.sessions.create(ConversationKey("p", "c", "u"))
        store.messaging.sessions.close(ended.id)
    store.messaging.sessions.create(ConversationKey("p", "c", "u"))
    assert told(store, "DOC-16") == {}


def test_vectors_are_as_long_as_those_of_their_own_namespace(database: Database) -> None:
    """maintenance OP-15."""
    store, raw = database.open(), database.raw()
    for namespace, vector in (("two", [1, 2]), ("three", [1, 2, 3]), ("three", [3, 2, 1])):
        store.conversations.vectors.put(namespace, [NewChunk(f"{namespace}{vector[0]}", "x", vector)])
    assert told(store, "DOC-14", deep=True) == {}
    raw.execute("UPDATE vectors SET namespace = 'two' WHERE id = 'three3'")
    assert list(told(store, "DOC-14", deep=True)) == ["vectors: embedding has another"]


def test_a_session_points_to_messages_of_its_own_pool(database: Database) -> None:
    """maintenance OP-15: one that another session has is not there, either."""
    store, raw = database.open(), database.raw()
    here, there = begun(store, "a"), begun(store, "b", branch_id="there")
    assert told(store, "DOC-09") == {}
    raw.execute(f"UPDATE sessions SET first_msg_id = 'b', last_msg_id = 'b' WHERE id = '{here.session_id}'")
    raw.execute(f"UPDATE branches SET system_msg_id = 'a' WHERE id = '{there.id}'")
    assert told(store, "DOC-09") == {
        "sessions: first_msg_id is not": (here.session_id,),
        "sessions: last_msg_id is not": (here.session_id,),
        "branches: system_msg_id is not": (there.id,),
    }


def test_a_session_counts_its_own_changes_and_may_name_a_run(database: Database) -> None:
    """maintenance OP-15: whatever other sessions have reached."""
    store, raw = database.open(), database.raw()
    run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    store.conversations.sessions.create(NewSession("of a run", workflow_run_id=run))
    begun(store, "a", "b", "c")
    few = begun(store, branch_id="few").session_id
    assert (told(store, "DOC-09"), told(store, "DOC-12")) == ({}, {})
    raw.execute(f"UPDATE sessions SET change_seq = change_seq + 1 WHERE id = '{few}'")
    assert told(store, "DOC-12") == {"sessions: change_seq is beyond": (few,)}


def test_active_chat_sessions_are_told_that_were_silent_for_thirty_days(database: Database) -> None:
    """messaging M-71."""
    store = database.open()
    key = ConversationKey("p", "c", "u")
    idle = store.messaging.sessions.create(key).id
    over = store.messaging.sessions.create(ConversationKey("p", "c", "v")).id
    store.messaging.sessions.close(over)
    database.clock.advance(timedelta(days=30))
    assert told(store, "DOC-15") == {}
    database.clock.advance(MILLISECOND)
    assert told(store, "DOC-15") == {"messaging_sessions: active, and silent": (idle,)}


def test_agent_sessions_are_told_whose_name_cannot_be_that_of_a_log(database: Database) -> None:
    """messaging M-71."""
    store = database.open()
    ids = [store.messaging.sessions.create(ConversationKey("p", "c", user)).id for user in "uv"]
    for session_id, name in zip(ids, ("../up", "good"), strict=True):
        database.raw().execute(f"UPDATE messaging_sessions SET agent_session_id = '{name}' WHERE id = '{session_id}'")
    assert told(store, "DOC-10") == {"messaging_sessions: agent_session_id cannot be": (f"{ids[0]} ../up",)}


def test_a_first_frame_is_told_that_needs_one_which_is_not_there(database: Database) -> None:
    """journal F-1, maintenance OP-15."""
    store = database.open()
    run, other = (store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id for _ in range(2))
    for text in ("one", "two"):
        for frames_of in (run, other):
            store.journal.frames.append(frames_of, element("a", long="x" * 4_000, said=text))
    assert told(store, "DOC-12") == {}
    raw = database.raw()
    insert(raw, "maintenance_permits", {"receipt_id": "r"})
    raw.execute(f"DELETE FROM run_frames WHERE run_id = '{run}' AND frame_no = (SELECT min(frame_no) FROM run_frames)")
    assert told(store, "DOC-12") == {"run_frames: the first frame": (f"{run} 1",)}


def test_mailboxes_are_told_that_break_their_rules_or_cannot_be_read_and_stay_as_they_are(database: Database) -> None:
    """maintenance OP-15, case 23, mailbox MB-11."""
    store = database.open()
    send(store.mailbox.create("g", "good"))
    folders = {name: write_session(store.mailbox.root, "g", name) for name in ("odd", "torn")}
    say(folders["odd"], "m", 5)
    (folders["torn"] / "outbound.db").write_bytes(b"a letter to somebody " * 100)
    before = _bytes(store.mailbox.root)
    found = told(store, "DOC-12")
    assert [sample.split(":")[0] for sample in found["mailboxes: messages break the"]] == ["g/odd inbound.db m"]
    assert [sample.split(":")[0] for sample in found["mailboxes: mailboxes cannot be"]] == ["g/torn"]
    assert _bytes(store.mailbox.root) == before


def test_what_is_told_of_a_mailbox_that_cannot_be_read_is_cut(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-15."""
    store = sqlite_database.open()
    store.mailbox.create("g", "long")

    def verify(self: object) -> None:
        raise Conflict("x" * 1_000, code="unique")

    monkeypatch.setattr(HostMailbox, "verify", verify)
    [sample] = told(store, "DOC-12")["mailboxes: mailboxes cannot be"]
    assert (sample[:10], len(sample)) == ("g/long: xx", 300)


def test_messages_are_told_that_an_agent_took_long_ago_without_a_sign_of_life_since(database: Database) -> None:
    """maintenance OP-15: half an hour, as the sweep of a host has it."""
    store = database.open()
    taken = {}
    for name in ("dead", "beats", "odd"):
        message = send(store.mailbox.create("g", name))
        agent = store.mailbox.agent("g", name)
        assert agent.inbox.take()
        taken[name] = agent, message.id
    database.clock.advance(MILLISECOND)
    for agent, _ in taken.values():
        agent.beat()
    sql(outbound(taken["odd"][0]), "UPDATE processing_ack SET status_changed = 'once'")  # it does not tell when
    database.clock.advance(timedelta(minutes=30))
    assert told(store, "DOC-15") == {}
    database.clock.advance(MILLISECOND)
    taken["beats"][0].beat()
    assert told(store, "DOC-15") == {"mailboxes: taken by an": (f"g/dead {taken['dead'][1]}",)}


def test_only_the_mailboxes_whose_hosts_wrote_last_are_looked_at_unless_it_is_deep(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-15."""
    store = database.open()
    monkeypatch.setattr(domains, "NEWEST", 1)
    for name in ("first", "second"):
        say(write_session(store.mailbox.root, "g", name), "m", 5)
    assert len(told(store, "DOC-12")["mailboxes: messages break the"]) == 1
    assert len(told(store, "DOC-12", deep=True)["mailboxes: messages break the"]) == 2


def test_a_mailbox_that_is_removed_while_the_newest_are_chosen_ends_no_examination(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-15."""
    store = database.open()
    folders = [write_session(store.mailbox.root, "g", name) for name in ("first", "second")]
    say(folders[0], "m", 5)
    happened = before(monkeypatch, heapq, "nlargest", lambda: shutil.rmtree(folders[1]))
    found = told(store, "DOC-12")
    assert (happened, len(found["mailboxes: messages break the"])) == (["nlargest"], 1)


def test_every_page_of_a_list_is_looked_at(database: Database) -> None:
    """maintenance OP-15."""
    store = database.open()
    for name in "abc":
        store.schedules.overrides.put(name, enabled=True)

    def page_of(**given: Any) -> Any:
        return store.schedules.overrides.list(**{**given, "limit": 1})

    assert [one.name for one in every(page_of)] == ["c", "b", "a"]


def test_run_logs_are_told_that_break_their_rules_or_have_no_end(database: Database) -> None:
    """maintenance OP-15, case 23: in a deep examination. A run that is being written is none of them."""
    store = database.open()
    log, day = store.run_log, "2026/02/03"
    logs = {
        "sound": [head(id_of(1)), event(0, run_id=id_of(1)), ending() | {"run_id": id_of(1)}],
        "headless": [ending() | {"run_id": id_of(2)}],
        "gap": [head(id_of(3)), *(event(seq, run_id=id_of(3)) for seq in (0, 2)), ending() | {"run_id": id_of(3)}],
        "crashed": [head(id_of(4))],
    }
    paths = {name: put(log, lines, id_of(n), day) for n, (name, lines) in enumerate(logs.items(), 1)}
    assert told(store, "DOC-11") == {}
    found = told(store, "DOC-11", deep=True)
    assert found == {
        "run logs: logs of runs break": (f"{paths['gap']}: event_seq_gap 1", f"{paths['headless']}: missing_header 1"),
        "run logs: logs of runs have": (str(paths["crashed"]),),
    }


def test_whole_tool_results_are_told_that_are_missing_or_that_no_line_names(database: Database) -> None:
    """agent-log L-110, maintenance OP-15."""
    store = database.open()
    with store.agent_log.writer.open(place=Cwd("/work"), session_id="s", sync="os") as log:
        log.feed({"type": "tool_execution_end", "toolCallId": "c", "toolName": "t", "result": "x" * 70_000})
    [kept] = store.agent_log.raw.list("s")
    path = Path(store.agent_log.sessions.get("s").path)
    raw = path.with_suffix("") / "raw"
    assert told(store, "DOC-11", deep=True) == {}
    (raw / f"{kept.sha256}.txt").rename(raw / f"{'0' * 64}.txt")
    assert told(store, "DOC-11", deep=True) == {
        "raw: whole tool results": (f"{path} {kept.sha256}",),
        "raw: no line refers": (f"{path} {'0' * 64}",),
    }


@pytest.mark.parametrize(("seconds", "found"), [(4, 0), (6, 1), (-6, 1)])
def test_the_clock_of_a_server_is_told_that_is_more_than_five_seconds_apart(
    database: Database, monkeypatch: pytest.MonkeyPatch, seconds: int, found: int
) -> None:
    """maintenance OP-15: a file has no clock of its own."""

    class Apart:
        def now(self) -> Any:
            return SYSTEM_CLOCK.now() + timedelta(seconds=seconds)

    monkeypatch.setattr(contents, "SYSTEM_CLOCK", Apart())
    expected = found if database.name == "postgresql" else 0
    assert len(told(database.open(), "DOC-13")) == expected


def test_large_tables_are_told_of_which_the_planner_knows_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-15: on Postgres, until they are vacuumed."""
    store = database.open()
    monkeypatch.setattr(server, "_WORTH", 1)
    found = told(store, "DOC-06")
    on_postgres = database.name == "postgresql"
    assert ("tables: the planner knows" in found) == on_postgres
    store.maintenance.vacuum.run()
    assert "tables: the planner knows" not in told(store, "DOC-06")


def _bytes(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_json_of_another_shape_than_its_column_says_is_named(database: Database) -> None:
    """maintenance OP-15, house H-95: in every column that says one, and a reader refuses it."""
    store, raw = database.open(), database.raw()
    store.conversations.sessions.create(NewSession("talk", node_metadata={"a": 1}))
    assert told(store, "DOC-14", deep=True) == {}
    raw.execute("UPDATE sessions SET node_metadata = '[1]'")
    assert told(store, "DOC-14", deep=True) == {"sessions: node_metadata holds JSON": ("talk",)}
    with pytest.raises(CorruptData):
        store.conversations.sessions.get("talk")
    raw.execute("UPDATE sessions SET node_metadata = 'null'")
    assert told(store, "DOC-14", deep=True) == {}
