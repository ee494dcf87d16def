"""Golden databases: what each revision left behind is upgraded, read and written through the repositories."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.migrations import golden
from support.migrations.golden import PRODUCTS, files, schema_of
from support.migrations.populate import contents, layout
from support.migrations.releases import HISTORY, released
from support.migrations.snapshot import differences
from support.migrations.story import BROUGHT, BUILD, NIGHTLY, RELEASE, STORY, TRIAGE, UNTIL
from support.migrations.support import Place, catalogue, newest, with_connection
from support.migrations.templates import PostgresTemplates, SqliteTemplates

from lastlight_state import StateStore
from lastlight_state.conversations import NewMessage
from lastlight_state.errors import Conflict
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations import current, scripts
from lastlight_state.migrations.apply import data_steps
from lastlight_state.workflows import NodeRef, PhaseEntry

pytestmark = pytest.mark.recorded

FILES = files()
PERMITS = "maintenance_permits"
SEED = scripts.FIRST
FROZEN = released(HISTORY.read_text("utf-8"))


def name_of(file: Path) -> str:
    return f"{file.parent.name}-{file.stem}"


@pytest.fixture(scope="module", params=FILES, ids=name_of)
def file(request: pytest.FixtureRequest) -> Path:
    """Each golden database."""
    found: Path = request.param
    return found


@pytest.fixture(scope="module")
def loaded(
    file: Path,
    sqlite_templates: SqliteTemplates,
    postgres_templates: PostgresTemplates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    """A golden database, as it is; the tests below use it one after the other."""
    if file.parent.name == "sqlite":
        place = Place("sqlite", partial(sqlite_templates.copy, place=tmp_path_factory.mktemp("golden") / "state.db"))
        place.raw().executescript(file.read_text("utf-8"))
    else:
        place = Place("postgresql", postgres_templates.take)
        place.raw().execute(file.read_text("utf-8"))
    yield place
    place.close()
    if place.name != "sqlite":
        postgres_templates.give_back(place.url)


@pytest.fixture(scope="module")
def columns(file: Path, loaded: Place) -> dict[str, list[str]]:
    """The columns that it has now, without those that a later revision has declared to change."""
    found: dict[str, list[str]] = with_connection(loaded.backend(), layout)
    later = [step for revision, steps in data_steps().items() if revision > file.stem for step in steps]
    for step in later:
        found[step.table] = [name for name in found[step.table] if name not in step.columns]
    return found


@pytest.fixture(scope="module")
def rows(loaded: Place, columns: dict[str, list[str]]) -> dict[str, list[Any]]:
    """What stands in these columns before the upgrade."""
    found: dict[str, list[Any]] = with_connection(loaded.backend(), partial(contents, columns=columns))
    return found


@pytest.fixture(scope="module")
def store(loaded: Place, rows: dict[str, list[Any]]) -> Iterator[StateStore]:
    """A golden database, upgraded and opened."""
    with StateStore.open(loaded.url, migrate=True) as opened:
        yield opened


def test_there_is_one_for_every_released_revision_and_product() -> None:
    """migrations MG-16."""
    there = {(file.parent.name, file.stem) for file in FILES}
    assert {(product, revision) for product in PRODUCTS for revision in FROZEN} <= there
    assert there == {(product, revision) for product in PRODUCTS for revision in scripts.revisions()}


def test_it_is_at_its_revision_and_has_rows_in_every_table(file: Path, loaded: Place) -> None:
    """migrations MG-16."""
    backend, raw = loaded.backend(), loaded.raw()
    assert current(backend) == file.stem
    tables = {table for kind, table, _ in catalogue(backend) if kind == "table"} - {PERMITS}
    assert tables <= STORY.keys() | BROUGHT.keys()
    counts = {table: raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    told = {table: len([row for row in STORY.get(table, ()) if row.get(UNTIL, "9999") > file.stem]) for table in tables}
    expected = {table: count + BROUGHT.get(table, 0) for table, count in told.items()}
    assert counts == expected


@pytest.mark.usefixtures("store")
def test_every_row_reads_the_same_after_the_upgrade(
    loaded: Place, columns: dict[str, list[str]], rows: dict[str, list[Any]]
) -> None:
    """migrations MG-16: in every column that it had, but those that a revision declares to change."""
    assert with_connection(loaded.backend(), partial(contents, columns=columns)) == rows


def test_everything_in_it_reads_back_after_the_upgrade(file: Path, store: StateStore) -> None:
    """migrations MG-16."""
    runs, executions, approvals = store.workflows.runs, store.workflows.executions, store.workflows.approvals
    assert [run.id for run in runs.list().items] == [NIGHTLY, BUILD, TRIAGE, RELEASE]
    build = runs.get(BUILD)
    assert (build.status, build.restart_count, build.repo) == ("paused", 1, "weather")
    assert build.context == {"title": "Alerts arrive twice", "labels": ["bug", "naïve ✓"], "weight": 0.5, "body": None}
    assert [entry.phase for entry in build.phase_history] == ["architect", "executor"]
    assert build.scratch == {"plan": {"lastOutputExecutionId": "exec-architect", "iteration": 2}}
    assert executions.find_output("exec-architect") == STORY["executions"][0]["output_text"]
    cost = "0.1325" if file.stem == "0001" else "0.13250025"  # of the float alone
    assert executions.get("exec-architect").cost_usd == Decimal(cost)
    assert [execution.outcome for execution in executions.list().items] == ["running", "succeeded", "failed"]
    assert [gate.status for gate in approvals.list_for_run(BUILD).items] == ["approved", "pending"]
    assert not store.workflows.overrides.is_enabled("release")
    assert store.messaging.sessions.get("chat-now").message_count == 2
    said = store.messaging.messages.history("chat-now")
    assert [message.content for message in said] == ["Why do alerts arrive twice?", "Both workers send.\n✓"]
    if file.stem > SEED:
        assert (build.owner, build.run_key, build.transition_seq) == ("acme", "issue-42", 3)
        assert runs.get(RELEASE).error_detail == {"code": 503, "retry": [1, 2, 3]}
        assert store.messaging.sessions.get("chat-now").metadata == {"locale": "de"}
    assert not store.schedules.overrides.get("nightly").enabled


def test_nodes_and_questions_read_back_after_the_upgrade(file: Path, store: StateStore) -> None:
    """migrations MG-16: of the databases that have them; the others have none."""
    has = file.stem > SEED
    assert store.workflows.nodes.counts(BUILD) == (
        {"finished": 1, "waiting_approval": 1, "waiting_timer": 1} if has else {}
    )
    assert [loop.iteration for loop in store.workflows.loops.list(BUILD).items] == ([1] if has else [])
    asked = store.workflows.human_requests.find("ask-window")
    assert (asked.response if asked else None) == ({"hour": 22} if has else None)


def test_schedules_read_back_after_the_upgrade(file: Path, store: StateStore) -> None:
    """migrations MG-16: of the databases that have them; the others have none."""
    has = file.stem > SEED
    nightly = store.schedules.crons.find("nightly")
    assert (nightly.effective_pattern, nightly.effective_enabled) == ("0 4 * * *", False) if nightly else not has
    fires = [(fire.id, fire.status) for fire in store.schedules.fires.list().items]
    assert fires == ([("fire-hourly", "running"), ("fire-nightly", "ok")] if has else [])


def test_conversations_read_back_after_the_upgrade(file: Path, store: StateStore) -> None:
    """migrations MG-16, conversations CV-23: of the databases that have them; the others have none."""
    branches = store.conversations.branches
    if branches.find("branch-2") is None:
        assert file.stem == SEED
        return
    assert [one.message.id for one in branches.history("branch-2")] == ["msg-1", "msg-2"]
    assert branches.append("branch-2", ["msg-1"]).skipped == 1
    lifecycle, changes = store.conversations.lifecycle, store.conversations.changes
    assert [one.kind for one in changes.after("talk-1", 2)] == ["branch.forked", "messages.appended"]
    assert lifecycle.state("talk-1").lifecycle == "running"
    lifecycle.transition("talk-1", "completed")
    assert changes.after("talk-1", changes.head("talk-1") - 1).items[0].kind == "status.changed"
    exchange = store.conversations.exchange
    exchange.send(NewMessage("user", "later", id="later"), to="ana")
    exchange.publish(NewMessage("user", "rain", id="rain"), channel="weather")
    assert [one.message_id for one in exchange.inbox("ana")] == ["msg-1", "later", "rain"]


def test_sessions_that_share_a_key_are_one_after_the_upgrade(store: StateStore) -> None:
    """messaging M-6: only 0001 holds such."""
    found = store.messaging.sessions.list(channel_id="C08", active=True).items
    assert [session.id for session in found] == ["chat-channel"]


def test_its_schema_is_the_newest_after_the_upgrade(loaded: Place, store: StateStore) -> None:
    """migrations MG-14."""
    assert differences(catalogue(store.backend), newest(loaded.backend())) == []


def test_it_is_worked_on_after_the_upgrade(file: Path, store: StateStore) -> None:
    """migrations MG-16."""
    runs, executions = store.workflows.runs, store.workflows.executions
    assert store.workflows.approvals.answer("gate-merge", "approved", by="ana").run.status == "running"
    executions.finish("exec-reviewer", "succeeded")
    assert runs.append_phase(BUILD, PhaseEntry("reviewer", success=True), scratch={"merged": True}).phase == "reviewer"
    assert runs.finish(BUILD, "succeeded").status == "succeeded"
    store.workflows.overrides.clear("release")
    with pytest.raises(Conflict, match="3 times"):
        runs.restart(RELEASE, by="ana", reason="the registry is open")
    runs.allow_restarts(RELEASE, 4, by="ana", reason="the registry is open")
    assert runs.restart(RELEASE, by="ana", reason="the registry is open").restart_count == 4
    assert store.workflows.nodes.put(RELEASE, NodeRef("publish"), state="running").last_attempt == 0
    assert store.schedules.overrides.clear("nightly")
    assert [claim.fire_id for claim in store.schedules.fires.take_stale(owner="scheduler-2")] == (
        ["fire-hourly"] if file.stem > SEED else []
    )
    key = ConversationKey("slack", "C07", "U1", "1719738000.000100")
    resumed = store.messaging.sessions.resume(key, idle_timeout=None)
    assert (resumed.session.id, resumed.created) == ("chat-now", False)
    assert store.messaging.messages.append("chat-now", role="user", content="thanks").message.id == 4


@pytest.mark.parametrize("product", PRODUCTS)
def test_those_of_revisions_that_may_still_change_are_what_these_make(
    product: str, request: pytest.FixtureRequest
) -> None:
    """migrations MG-16: otherwise run ``make record``."""
    place: Place = request.getfixturevalue("sqlite_place" if product == "sqlite" else "postgres_place")
    backend = place.backend()
    for revision in [revision for revision in scripts.revisions() if revision not in FROZEN]:
        file = golden.FOLDER / product / f"{revision}.sql"
        if file.exists():
            assert schema_of(file.read_text("utf-8")) == schema_of(golden.dump(backend, revision)), file
