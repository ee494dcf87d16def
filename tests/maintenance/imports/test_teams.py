"""Team files become inboxes of the exchange, each team whole or not at all."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.cli.calls import lastlight_state
from support.maintenance.rows import counts, difference
from support.maintenance.run_folders import BEGIN, bytes_of, write
from support.maintenance.team_files import letter, told, write_team

from lastlight_state.conversations import NewMessage
from lastlight_state.conversations.shared import storing
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database


def _at(second: float) -> datetime:
    return datetime.fromtimestamp(BEGIN + second, UTC)


def _inbox(store: Any, owner: str) -> list[tuple[int, str, datetime | None]]:
    found = store.conversations.exchange.inbox(owner, state="all").items
    return [(one.ord, one.message_id, one.acked_at) for one in found]


def test_a_team_becomes_members_of_a_channel_and_deliveries_in_their_inboxes(store: Any, tmp_path: Path) -> None:
    """maintenance OP-84, OP-37, case 33: read marks are acknowledgements, all members are ``*`` or nobody."""
    write_team(
        tmp_path,
        "t1",
        letter("m1", 1, read_by={"bo": told(5)}, from_op="o3"),
        letter("m2", 2, ("bo", "zoe"), sender="_cli", read_by=["bo", "cy"]),
        letter("m3", 3, []),
        letter("m4", 4, "cy", content=None),
        letter("m5", 5, "all", timestamp="soon", read_by=None),
    )
    write_team(tmp_path, "t2", members=["ana"], created_at=None)
    before, imports, exchange = bytes_of(tmp_path / "teams"), store.maintenance.imports, store.conversations.exchange
    assert imports.detect(tmp_path) == imports.detect(tmp_path / "teams") == "lionagi-teams"
    plan = imports.plan(tmp_path)
    assert plan.units == {"imported": 2}
    assert plan.rows == {"exchange_deliveries": 12, "exchange_members": 4, "messages": 5}
    assert plan.noticed == {
        "created_at_approximate": 1,
        "name_left": 2,
        "read_by_others": 1,
        "recipient_no_member": 1,
        "sent_at_approximate": 1,
    }
    done = imports.run(tmp_path)
    assert (done.units, done.rows, done.noticed, done.failures) == (plan.units, plan.rows, plan.noticed, ())
    assert bytes_of(tmp_path / "teams") == before
    assert [(one.member, one.joined_at) for one in exchange.members("t1").items] == [
        (f"t1/{name}", _at(0)) for name in ("ana", "bo", "cy")
    ]
    assert [one.member for one in exchange.members("t2").items] == ["t2/ana"]
    assert _inbox(store, "t1/bo") == [(0, "m1", _at(5)), (1, "m2", _at(2)), (2, "m3", None), (3, "m5", None)]
    assert [one[1] for one in _inbox(store, "t1/zoe")] == ["m2"]
    assert [one[1] for one in _inbox(store, "t1/cy")] == ["m1", "m3", "m4", "m5"]
    first, fourth = (store.conversations.messages.get(name) for name in ("m1", "m4"))
    assert (first.sender, first.recipient, first.channel, first.created_at) == ("t1/ana", None, "t1", _at(1))
    assert (first.content, first.extra) == ("about m1", {"from_op": "o3"})
    assert (fourth.recipient, fourth.content) == ("t1/cy", "")
    taken = exchange.take("t1/bo", reader="t1/bo", limit=5)
    assert [(one.message_id, one.delivered_at) for one in taken] == [("m3", _at(3)), ("m5", _at(0))]


def test_a_second_import_of_teams_adds_what_is_new_and_acknowledges_what_was_read(
    database: Database, tmp_path: Path
) -> None:
    """maintenance OP-36, OP-84: what was sent, taken or left here stays."""
    write_team(tmp_path, "t1", letter("m1", 1), letter("m2", 2))
    store = database.open()
    imports, exchange = store.maintenance.imports, store.conversations.exchange
    imports.run(tmp_path)
    before = counts(database)
    assert imports.run(tmp_path).units == {"unchanged": 1}
    assert difference(before, counts(database)) == {}
    exchange.send(NewMessage("user", "from here", id="own"), to="t1/bo")
    exchange.leave("t1", "t1/cy")
    (taken,) = exchange.take("t1/ana", reader="worker")
    read = {"ana": told(8), "bo": told(9)}
    write_team(
        tmp_path,
        "t1",
        letter("m1", 1, read_by=read),
        letter("m2", 2),
        letter("m3", 3),
        members=["ana", "bo", "cy", "di"],
    )
    plan = imports.plan(tmp_path)
    assert plan.units == {"grown": 1}
    assert plan.rows == {"exchange_deliveries": 6, "exchange_members": 1, "messages": 1}
    assert imports.run(tmp_path).rows == plan.rows
    assert [one.member for one in exchange.members("t1").items] == ["t1/ana", "t1/bo", "t1/di"]
    assert _inbox(store, "t1/bo") == [(0, "m1", _at(9)), (1, "m2", None), (2, "own", None), (3, "m3", None)]
    assert _inbox(store, "t1/cy")[0] == (0, "m1", None)
    assert [one[1] for one in _inbox(store, "t1/di")] == ["m1", "m2", "m3"]
    assert exchange.ack("t1/ana", taken.ord, reader="worker") == 1


def test_a_message_that_was_revised_here_stays_and_one_that_a_file_revised_is_refused(
    store: Any, tmp_path: Path
) -> None:
    """maintenance OP-36, OP-84, M-120: nobody can say that the file is still the same one."""
    imports, messages = store.maintenance.imports, store.conversations.messages
    write_team(tmp_path, "t1", letter("m1", 1), letter("m2", 2))
    imports.run(tmp_path)
    mine = messages.get("m2")
    messages.put(NewMessage(mine.role, "mine", id="m2", sender=mine.sender, channel=mine.channel, extra=mine.extra))
    write_team(tmp_path, "t1", letter("m1", 1), letter("m2", 2), letter("m3", 3))
    done = imports.run(tmp_path)
    assert (done.units, [one.kept for one in done.conflicts]) == ({"grown": 1}, ["message m2"])
    write_team(tmp_path, "t1", letter("m1", 1, content="theirs"), letter("m2", 2), letter("m3", 3), letter("m4", 4))
    assert imports.run(tmp_path).units == {"failed": 1}
    found = [messages.find(f"m{i}") for i in range(1, 5)]
    assert [one and one.content for one in found] == ["about m1", "mine", "about m3", None]


def test_messages_of_a_team_that_were_pruned_stay_away_when_its_file_grows(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36, OP-84: who joins gets what is still here, and `revive` brings all of it back."""
    every = {name: told(8) for name in ("ana", "bo", "cy")}
    first = letter("m1", 1, ("ana",), read_by={"ana": told(8)})
    second, third = letter("m2", 2, read_by=every), letter("m3", 3)
    write_team(tmp_path, "t1", first, second, third)
    imports = store.maintenance.imports
    imports.run(tmp_path)
    pruned = store.maintenance.prune.run(PrunePolicy("exchange", keep_days=0, ids=["t1/ana"]))
    assert pruned.counts == {"exchange_deliveries": 2, "messages": 1}
    write_team(tmp_path, "t1", first, second, third, letter("m4", 4), members=["ana", "bo", "cy", "di"])
    plan, done = imports.plan(tmp_path), imports.run(tmp_path)
    assert (plan.rows, plan.noticed) == (done.rows, done.noticed)
    assert done.rows == {"exchange_deliveries": 6, "exchange_members": 1, "messages": 1}
    assert done.noticed == {"name_left": 1, "removed_here": 2}
    assert [one[1] for one in _inbox(store, "t1/ana")] == ["m3", "m4"]
    assert [one[1] for one in _inbox(store, "t1/di")] == ["m2", "m3", "m4"]
    assert store.conversations.messages.find("m1") is None
    revived = imports.run(tmp_path, revive=True)
    assert (revived.units, revived.rows) == ({"grown": 1}, {"exchange_deliveries": 2, "messages": 1})
    assert [one[1] for one in _inbox(store, "t1/ana")] == ["m3", "m4", "m1", "m2"]
    assert imports.run(tmp_path, revive=True).units == {"unchanged": 1}


def test_a_file_that_lost_messages_is_refused(store: Any, tmp_path: Path) -> None:
    """maintenance OP-84, M-120: which of them were imported before is not known then; what was removed stays away."""
    first, second = (letter(f"m{i}", i, ("ana",), read_by={"ana": told(8)}) for i in (1, 2))
    write_team(tmp_path, "t1", first, second, letter("m3", 3))
    imports = store.maintenance.imports
    imports.run(tmp_path)
    store.maintenance.prune.run(PrunePolicy("exchange", keep_days=0, ids=["t1/ana"]))
    write_team(tmp_path, "t1", second, letter("m3", 3))
    assert [(one.unit, one.code) for one in imports.run(tmp_path).failures] == [("t1.json", "already_exists")]
    assert [(one[1], one[2]) for one in _inbox(store, "t1/ana")] == [("m3", None)]


def test_a_team_in_which_nothing_but_reading_happened_is_told_of_as_before(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36, OP-84: what was read is acknowledged, and what is odd is counted."""
    imports = store.maintenance.imports
    for read, units in (({}, "imported"), ({"bo": told(8)}, "grown")):
        write_team(tmp_path, "t1", letter("m1", 1, ("bo", "zoe"), read_by=read))
        done = imports.run(tmp_path)
        assert (done.units, done.noticed) == ({units: 1}, {"name_left": 1, "recipient_no_member": 1})
    assert _inbox(store, "t1/bo") == [(0, "m1", _at(8))]


DAMAGES: list[tuple[str, dict[str, Any]]] = [
    ("members", {"members": "ana"}),
    ("members", {"members": [1]}),
    ("messages", {"messages": {}}),
    ("messages[0].id", {"messages": [7]}),
    ("messages[1].id", {"messages": [letter("m", 1), letter("m", 2)]}),
    ("messages[0].to", {"messages": [letter("m", 1, [None])]}),
    ("messages[0].from", {"messages": [letter("m", 1, sender="a\nb")]}),
    ("messages[0].from", {"messages": [letter("m", 1, sender=7)]}),
    ("id", {"id": "x\ny"}),
]


def test_a_damaged_team_fails_alone_and_names_the_place(store: Any, tmp_path: Path) -> None:
    """maintenance OP-35, OP-84, case 29: nothing of it is stored, and once mended it is imported."""
    for i, (_, damage) in enumerate(DAMAGES):
        write_team(tmp_path, f"t{i}", **damage)
    write_team(tmp_path, "t9", letter("m9", 1))
    done = store.maintenance.imports.run(tmp_path)
    assert (done.units, done.rows["messages"]) == ({"failed": 9, "imported": 1}, 1)
    for i, (where, _) in enumerate(DAMAGES):
        failed = done.failures[i]
        assert (failed.unit, failed.code) == (f"t{i}.json", "invalid_value")
        assert f"{where}:" in failed.reason
    write_team(tmp_path, "t2", letter("m2", 2))
    assert store.maintenance.imports.run(tmp_path).units == {"failed": 8, "imported": 1, "unchanged": 1}


def test_a_team_that_is_stored_is_not_imported_from_another_file(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36, OP-84: neither a copy of a file, nor a channel that began here, nor another message."""
    write_team(tmp_path, "t1", letter("m1", 1))
    write_team(tmp_path, "t1-copy", letter("m1", 1), id="t1")
    write_team(tmp_path, "t2")
    write_team(tmp_path, "t3", letter("m1", 1, content="another"))
    store.conversations.exchange.join("t2", "somebody")
    plan = store.maintenance.imports.plan(tmp_path)
    done = store.maintenance.imports.run(tmp_path)
    assert plan.units == done.units == {"failed": 3, "imported": 1}
    assert {one.unit for one in plan.failures} == {one.unit for one in done.failures}
    assert {one.code for one in done.failures} == {"already_exists"}


def test_a_renamed_team_file_goes_on(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120, OP-84: what was removed here stays away; a copy beside it and another team are refused."""
    imports, letters = every_backend.maintenance.imports, [letter(f"m{number}", number, "bo") for number in range(5)]
    first = write_team(tmp_path, "t1", *letters[:2])
    imports.run(tmp_path)
    every_backend.maintenance.erase.run("t1/cy")
    second = first.rename(first.with_name("second.json"))
    assert imports.run(tmp_path).units == imports.plan(tmp_path).units == {"unchanged": 1}
    write_team(tmp_path, "second", *letters[:3], id="t1")
    assert imports.plan(tmp_path).units == imports.run(tmp_path).units == {"grown": 1}
    second.rename(first)
    write_team(tmp_path, "t1", *letters[:4])
    assert (imports.run(tmp_path).failures, len(_inbox(every_backend, "t1/bo"))) == ((), 4)
    assert "t1/cy" not in [one.member for one in every_backend.conversations.exchange.members("t1").items]
    write_team(tmp_path, "copy", *letters, id="t1")
    assert imports.run(tmp_path).units == {"failed": 1, "unchanged": 1}
    first.unlink()
    write_team(tmp_path, "copy", letter("m1", 1, content="another"), id="t1")
    assert imports.run(tmp_path).units == {"failed": 1}


def test_a_lenient_import_keeps_values_of_teams_as_text(store: Any, tmp_path: Path) -> None:
    """maintenance OP-38, OP-84."""
    path = write_team(tmp_path, "t1", letter("m1", 1, content="a\0b"))
    write(path, path.read_text().replace('"team t1"', "NaN"))
    imports = store.maintenance.imports
    assert imports.plan(tmp_path).failures[0].code == "invalid_value"
    assert imports.run(tmp_path, lenient=True).noticed == {"adapted": 2, "name_left": 1}
    stored = store.conversations.messages.get("m1")
    assert (stored.content, stored.extra) == ({}, {"adapted": {"content": "a\\u0000b"}})


def test_links_among_team_files_are_not_followed(store: Any, tmp_path: Path) -> None:
    """maintenance OP-84: what a link names may be anybody's."""
    write_team(tmp_path, "t1").rename(tmp_path / "elsewhere.json")
    (tmp_path / "teams" / "t1.json").symlink_to(tmp_path / "elsewhere.json")
    assert store.maintenance.imports.plan(tmp_path).units == {"failed": 1}


def test_the_command_imports_teams(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-84."""
    sqlite_database.open()
    write_team(tmp_path, "t1", letter("m1", 1))
    said = lastlight_state("import", tmp_path, "--url", sqlite_database.url, "--json")
    assert (said.code, said.data["kind"], said.data["units"]) == (0, "lionagi-teams", {"imported": 1})


def test_a_file_whose_team_is_another_one_now_gets_into_no_channel_that_is_here(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36, OP-84."""
    write_team(tmp_path, "t1")
    imports, exchange = store.maintenance.imports, store.conversations.exchange
    imports.run(tmp_path)
    exchange.join("ours", "me")
    file = tmp_path / "teams" / "t1.json"
    file.write_text(file.read_text("utf-8").replace('"t1"', '"ours"'), "utf-8")
    done = imports.run(tmp_path)
    assert [(one.unit, one.code) for one in done.failures] == [("t1.json", "already_exists")]
    assert [one.member for one in exchange.members("ours").items] == ["me"]


def test_a_file_whose_team_is_a_new_one_brings_it_what_was_pruned_of_the_old_one(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36, OP-84: nothing of the new team was removed here."""
    write_team(tmp_path, "t1", letter("m1", 1, ("bo",), read_by={"bo": told(8)}))
    imports, exchange = store.maintenance.imports, store.conversations.exchange
    imports.run(tmp_path)
    exchange.send(NewMessage("user", "from here", id="own"), to="t1/bo")
    store.maintenance.prune.run(PrunePolicy("exchange", keep_days=0, ids=["t1/bo"]))
    assert [one[1] for one in _inbox(store, "t1/bo")] == ["own"]
    file = tmp_path / "teams" / "t1.json"
    file.write_text(file.read_text("utf-8").replace('"t1"', '"t2"'), "utf-8")
    imports.run(tmp_path)
    assert _inbox(store, "t2/bo") == [(0, "m1", _at(8))]


def test_a_message_that_somebody_stores_after_the_look_is_not_taken_for_the_teams_own(
    postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-36: on SQLite nobody else writes between them."""
    write_team(tmp_path, "t1", letter("m1", 1))
    store, other = postgres_database.open(), postgres_database.open()
    theirs = NewMessage("user", "mine", id="m1")
    happened = before(monkeypatch, storing, "put_all", lambda: other.conversations.messages.put(theirs))
    done = store.maintenance.imports.run(tmp_path)
    assert (happened, done.units, done.failures[0].code) == (["put_all"], {"failed": 1}, "already_exists")
    assert store.conversations.messages.get("m1").content == "mine"
    assert store.conversations.exchange.members("t1").items == ()
