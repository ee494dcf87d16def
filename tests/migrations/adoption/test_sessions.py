"""Chat sessions of older versions of the original program: a key unique for ever, and one not at all."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each
from support.migrations.originals import ACTIVE, SEED, STRICT, WITHOUT_INDEX, dump, original, session
from support.migrations.support import Place

from lastlight_state import StateStore
from lastlight_state.backends.base import Mode
from lastlight_state.backends.sqlite.originals import SqliteOriginal
from lastlight_state.errors import BackendError, MisuseError, SchemaMismatch
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations import check, migrate

UNIQUE = "UNIQUE(platform, channel_id, thread_id, user_id)"
SPELLINGS = {
    "as its program writes it": UNIQUE,
    "with a blank": UNIQUE.replace("(", " ("),
    "on lines of its own": UNIQUE.replace("(", "\n  (").replace(", ", ",\n   ").lower(),
    "with a name": f"CONSTRAINT one_for_ever {UNIQUE}",
    "in another order": "UNIQUE (user_id, thread_id, channel_id, platform)",
}


def uniques(raw: Any) -> list[tuple[str, ...]]:
    """The origins and names of the unique indexes of the table."""
    found = raw.execute("SELECT origin, name FROM pragma_index_list('messaging_sessions') WHERE \"unique\" = 1")
    return sorted(tuple(row) for row in found.fetchall())


@with_each("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_a_table_with_one_session_for_ever_is_rebuilt_without_a_loss(sqlite_place: Place, spelling: str) -> None:
    """messaging M-7, case 44: known by the index list, however it is written."""
    raw = original(sqlite_place, STRICT.replace(UNIQUE, spelling), session("old", active="0"), session("b", thread="B"))
    rows = "SELECT * FROM messaging_sessions ORDER BY id"
    said = "SELECT * FROM messaging_messages ORDER BY id"
    before = raw.execute(rows).fetchall(), raw.execute(said).fetchall()
    migrate(sqlite_place.backend(), "0001")
    assert (raw.execute(rows).fetchall(), raw.execute(said).fetchall()) == before
    assert [origin for origin, _ in uniques(raw)] == ["c", "pk"]
    assert raw.execute("SELECT * FROM pragma_foreign_key_check").fetchall() == []
    (table,) = raw.execute("SELECT \"table\" FROM pragma_foreign_key_list('messaging_messages')").fetchone()
    assert table == "messaging_sessions"


def test_a_key_gets_a_new_session_after_a_timeout(sqlite_place: Place) -> None:
    """messaging case 44: what the old constraint made impossible."""
    original(sqlite_place, STRICT, session("old"))
    key = ConversationKey("slack", "C", "U", "T")
    with StateStore.open(sqlite_place.url) as store:
        resumed = store.messaging.sessions.resume(key, idle_timeout=timedelta(minutes=30))
        assert (resumed.created, resumed.replaced) == (True, "old")
        assert [message.content for message in store.messaging.messages.history("old")] == ["said in old"]


def test_what_others_hung_on_the_table_survives_its_rebuild(sqlite_place: Place) -> None:
    """migrations MG-41: extra columns, indexes, triggers and views are left alone, rows without an id too."""
    more = (
        "ALTER TABLE messaging_sessions ADD COLUMN mood TEXT DEFAULT 'calm';"
        "CREATE INDEX theirs ON messaging_sessions (mood);"
        "CREATE TABLE touched (id TEXT);"
        "CREATE TRIGGER touch AFTER UPDATE ON messaging_sessions BEGIN INSERT INTO touched VALUES (NEW.id); END;"
        "CREATE VIEW moods AS SELECT id, mood FROM messaging_sessions;"
        "INSERT INTO messaging_sessions (platform, channel_id, user_id, created_at, last_activity_at, active)"
        " VALUES ('p', 'c', 'u', '2026-06-29T20:15:00.000Z', '2026-06-29T20:15:00.000Z', 0);"
    )
    raw = original(sqlite_place, STRICT, session("s"), more)
    migrate(sqlite_place.backend())
    assert raw.execute("SELECT id, mood FROM moods ORDER BY id").fetchall() == [(None, "calm"), ("s", "calm")]
    raw.execute("UPDATE messaging_sessions SET mood = 'happy' WHERE id = 's'")
    assert raw.execute("SELECT id FROM touched").fetchall() == [("s",)]
    assert raw.execute("SELECT count(*) FROM sqlite_master WHERE name = 'theirs'").fetchone() == (1,)


def test_the_plan_and_the_log_tell_of_the_rebuild(sqlite_place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """migrations MG-46, messaging M-7."""
    original(sqlite_place, STRICT, session("a"), session("b", thread="B"))
    plan = check(sqlite_place.backend())
    assert plan.adoption
    ((rewrite,), indexes) = plan.adoption.rewrites, plan.adoption.indexes
    assert (rewrite.table, rewrite.rows, indexes) == ("messaging_sessions", 2, ("idx_msg_sessions_unique_active",))
    with caplog.at_level(logging.WARNING, "lastlight_state.migrations"):
        migrate(sqlite_place.backend())
    assert "rebuilt without its UNIQUE over the whole key, with all its 2 rows" in caplog.text


def test_a_rebuild_that_others_rely_on_is_taken_back(sqlite_place: Place) -> None:
    """messaging M-7: here somebody's table refers to the whole key."""
    columns = "platform, channel_id, thread_id, user_id"
    reference = f"FOREIGN KEY ({columns}) REFERENCES messaging_sessions ({columns})"
    theirs = f"CREATE TABLE theirs ({columns}, {reference});"
    raw = original(sqlite_place, STRICT, session("s"), theirs)
    before = dump(raw)
    with pytest.raises(BackendError, match="foreign key mismatch"):
        migrate(sqlite_place.backend())
    assert dump(raw) == before


def test_nothing_is_rebuilt_while_foreign_keys_are_on(sqlite_place: Place) -> None:
    """messaging M-7: dropping the old table would take the messages along."""
    original(sqlite_place, STRICT, session("s"))
    backend = sqlite_place.backend()
    checkout = backend.acquire(Mode.WRITE)
    with pytest.raises(MisuseError, match="while foreign keys are on"):
        SqliteOriginal(checkout.driver).loosen("messaging_sessions")
    backend.rollback(checkout)
    backend.release(checkout)


def test_a_rebuild_leaves_the_connection_as_it_was(sqlite_place: Place) -> None:
    """messaging M-7: what is renamed later is renamed in everything that names it."""
    original(sqlite_place, STRICT, session("s"))
    with sqlite_place.backend().migration(5, rebuilds=True) as connection:
        driver: Any = connection.connection.dbapi_connection
        assert SqliteOriginal(driver).loosen("messaging_sessions") == 1
        assert driver.execute("PRAGMA legacy_alter_table").fetchone() == (0,)


DUPLICATES = (
    session("older", at="2026-06-29T20:15:00.000Z")
    + session("newest", at="2026-06-29T20:17:00.000Z")
    + session("oldest", at="2026-06-29T20:11:00.000Z")
    + session("elsewhere", thread="B")
    + session("ended", active="0", at="2026-06-29T20:18:00.000Z")
)


@pytest.mark.parametrize("to", ["0002", "head"])
def test_active_sessions_that_share_a_key_are_reduced_before_the_unique_index_is_made(
    sqlite_place: Place, to: str
) -> None:
    """messaging M-7."""
    raw = original(sqlite_place, WITHOUT_INDEX, DUPLICATES)
    assert migrate(sqlite_place.backend(), to).adopted
    active = "SELECT id FROM messaging_sessions WHERE active = 1 ORDER BY id"
    assert raw.execute(active).fetchall() == [("elsewhere",), ("newest",)]
    retired = "SELECT id FROM messaging_sessions WHERE deactivated_reason = 'duplicate' ORDER BY id"
    assert raw.execute(retired).fetchall() == [("older",), ("oldest",)]
    assert ("c", "idx_msg_sessions_unique_active") in uniques(raw)
    assert raw.execute("SELECT count(*) FROM messaging_messages").fetchone() == (5,)


def test_they_cannot_be_reduced_by_a_revision_that_does_not_do_it(sqlite_place: Place) -> None:
    """messaging M-7: then the keys are named, and nothing changes."""
    raw = original(sqlite_place, WITHOUT_INDEX, DUPLICATES)
    before = dump(raw)
    with pytest.raises(SchemaMismatch, match="only the revision after 0001 retires") as caught:
        migrate(sqlite_place.backend(), "0001")
    assert caught.value.differences == ("'slack', 'C', 'T', 'U'",)
    assert dump(raw) == before


def test_null_means_inactive_and_no_message(sqlite_place: Place) -> None:
    """messaging M-7."""
    unknown = session("unknown", active="NULL") + "UPDATE messaging_sessions SET message_count = NULL;"
    original(sqlite_place, SEED, unknown)
    with StateStore.open(sqlite_place.url) as store:
        stored = store.messaging.sessions.get("unknown")
        assert (stored.active, stored.message_count) == (False, 0)


def test_another_unique_constraint_is_none_that_is_known(sqlite_place: Place) -> None:
    """messaging M-7: only the one over the whole key is rebuilt away."""
    strange = SEED.replace(ACTIVE, f"{ACTIVE[:-2]},\n  UNIQUE (user_id))")
    raw = original(sqlite_place, strange)
    before = dump(raw)
    with pytest.raises(SchemaMismatch) as caught:
        migrate(sqlite_place.backend())
    assert caught.value.differences == (
        "unique (user_id) of messaging_sessions is 'UNIQUE (user_id)', which may refuse what this library writes",
    )
    assert dump(raw) == before
