"""A primary that its host set to read only, as hosts do when the disk is almost full."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import psycopg
import psycopg.sql
import pytest
from sqlalchemy.engine import make_url
from support.cli.calls import lastlight_state

from lastlight_state import BackendUnavailable, StateStore
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

TRIGGER = Trigger("t", type="webhook")
_SET = "ALTER DATABASE {} SET default_transaction_read_only = {}"


def set_to(database: Database, value: str) -> None:
    """Set the database to read only or back, and end the sessions that do not know it yet, as a restart does."""
    url = make_url(database.url)
    with psycopg.connect(
        url.set(drivername="postgresql").render_as_string(hide_password=False),
        options="-c default_transaction_read_only=off",
        autocommit=True,
    ) as raw:
        name = psycopg.sql.Identifier(str(url.database)).as_string(raw)
        raw.execute(_SET.format(name, value).encode())
        raw.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_reads_go_on_and_writes_say_that_the_server_was_set_to_read_only(postgres_database: Database) -> None:
    """backends B-185: of an open store, and of one that is opened then."""
    with StateStore.open(postgres_database.url) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        set_to(postgres_database, "on")
        with StateStore.open(postgres_database.url) as later:
            for one in (store, later):
                assert one.workflows.runs.get(run.id) == run
                assert len(one.workflows.runs.list()) == 1
                with one.view() as view:
                    assert view.workflows.runs.get(run.id) == run
                for write in (
                    partial(one.workflows.overrides.put, "w", enabled=False),
                    partial(one.workflows.runs.create, "w", trigger=TRIGGER, phase="p"),
                    partial(one.maintenance.prune.run, PrunePolicy("runs", keep_days=30)),
                ):
                    with pytest.raises(BackendUnavailable, match=r"set to read only .* disk is full") as raised:
                        write()
                    assert (raised.value.outcome, raised.value.details["reason"]) == ("none", "set_to_read_only")
        set_to(postgres_database, "off")
        store.workflows.overrides.put("w", enabled=True)


def test_a_url_that_switches_the_setting_off_makes_room(postgres_database: Database) -> None:
    """backends B-185."""
    postgres_database.open().close()
    set_to(postgres_database, "on")
    with StateStore.open(postgres_database.url) as store:
        named = {found.subject: found.severity for found in store.maintenance.doctor.examine().findings}
        assert named["default_transaction_read_only"] == "error"
    url = make_url(postgres_database.url).update_query_dict({"options": "-c default_transaction_read_only=off"})
    with StateStore.open(url.render_as_string(hide_password=False)) as store:
        store.maintenance.prune.run(PrunePolicy("runs", keep_days=30))
    set_to(postgres_database, "off")


def test_the_command_of_the_troubleshooting_page_prunes_as_it_stands(postgres_database: Database) -> None:
    """backends B-185: its URL but for the server, and a command without the parameter is refused by name."""
    postgres_database.open().close()
    page = Path(__file__).parents[3].joinpath("docs", "troubleshooting.md").read_text()
    [line] = [one for one in page.splitlines() if one.startswith("lastlight-state prune") and "read_only" in one]
    _, *words, url = shlex.split(line)
    parameter = url.partition("?")[2]
    set_to(postgres_database, "on")
    try:
        refused = lastlight_state(*words, postgres_database.url)
        assert (refused.code, "set to read only" in refused.err) == (6, True)
        with_it = postgres_database.url + ("&" if "?" in postgres_database.url else "?") + parameter
        pruned = lastlight_state(*words, with_it)
        assert pruned.code == 0, pruned
        with StateStore.open(postgres_database.url) as reading:
            assert [one.kind for one in reading.receipts.list()] == ["prune"]
    finally:
        set_to(postgres_database, "off")
