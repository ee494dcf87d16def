from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from support.messaging.chat import KEY, TIMEOUT, started
from support.messaging.plans import Plans, excess
from support.sent import recorded
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.messaging import session_statements as sql
from lastlight_state.testing import Database, FrozenClock

MANY = pytest.mark.parametrize("many", [4_000, pytest.param(100_000, marks=pytest.mark.soak)])
ANALYZED = pytest.mark.parametrize("analyzed", [True, False])
FILTERS: list[dict[str, Any]] = [{}, {"platform": "slack"}, {"only_inactive": {}}]

INACTIVE = """
INSERT INTO messaging_sessions
  (id, platform, channel_id, user_id, agent_session_id, created_at, last_activity_at, active)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many})
SELECT 'old-' || i, 'slack', 'C1', 'U1', 'log-' || (i % 1000), ?, ?, false FROM n
"""
ACTIVE = """
INSERT INTO messaging_sessions (id, platform, channel_id, user_id, created_at, last_activity_at)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
SELECT 'active-' || i, 'slack', 'C' || (i % 20), 'W' || i, ?, ? FROM n
"""


@pytest.fixture
def plans(database: Database, raw: Raw, frozen_clock: FrozenClock, many: int, analyzed: bool) -> Plans:
    """Plans where one key has many sessions behind it, and other people's are active."""
    now = frozen_clock.now()
    raw(INACTIVE.format(many=many), now - timedelta(days=3), now - timedelta(days=2))
    raw(ACTIVE, now, now)
    if analyzed:
        raw("ANALYZE")
    return Plans(database, values(now))


def values(now: datetime) -> dict[str, Any]:
    return {
        "platform": KEY.platform,
        "channel_id": KEY.channel_id,
        "thread": "",
        "user_id": KEY.user_id,
        "cutoff": now - TIMEOUT,
        "at": now,
        "reason": "timeout",
        "session_id": "old-7",
        "agent_session_id": "log-7",
        "limit": 100,
        "after_0": now,
        "after_1": "old-9",
    }


@MANY
@ANALYZED
def test_active_sessions_are_found_whatever_lies_behind_them(plans: Plans) -> None:
    """messaging M-60, M-62: resume, retire and find_active."""
    for statement in (sql.FIND_KEY, sql.RETIRE, sql.RETIRE_IDLE):
        plan = plans.of(statement)
        assert "uq_messaging_sessions_active_key" in plan
        assert not excess(plan), plan
    plan = plans.of(sql.FIND_PLACE_FRESH)
    assert "ix_messaging_sessions_active_place" in plan
    assert not excess(plan), plan
    assert "ix_messaging_sessions_agent" in plans.of(sql.FIND_AGENT)


@MANY
@pytest.mark.parametrize("analyzed", [True])
def test_a_page_is_read_in_the_order_of_activity(plans: Plans) -> None:
    """messaging M-26, M-62: nothing is sorted."""
    for chosen, paged in product(FILTERS, (False, True)):
        plan = plans.of(sql.LIST.statement(chosen, paged=paged))
        assert "ix_messaging_sessions_activity" in plan
        assert not excess(plan), plan


@MANY
@ANALYZED
def test_a_page_of_active_sessions_passes_no_inactive_ones_for_long(plans: Plans) -> None:
    """messaging M-26, M-62: by activity, or by an index of the active ones alone."""
    plan = plans.of(sql.LIST.statement({"only_active": {}}, paged=False))
    indexes = (
        "ix_messaging_sessions_activity",
        "uq_messaging_sessions_active_key",
        "ix_messaging_sessions_active_place",
    )
    assert any(index in plan for index in indexes), plan


def test_closing_idle_sessions_reads_active_ones_alone(database: Database, raw: Raw, frozen_clock: FrozenClock) -> None:
    """messaging M-25: on SQLite, which has nothing to judge by but the statement."""
    plan = Plans(database, values(frozen_clock.now())).of(sql.CLOSE_IDLE)
    assert database.name != "sqlite" or "ix_messaging_sessions_active_place" in plan


def test_a_list_reads_no_metadata(every_backend: StateStore) -> None:
    """messaging M-63."""
    for chosen in [*FILTERS, {"only_active": {}}]:
        assert "metadata" not in sql.LIST.statement(chosen, paged=True).on(every_backend.backend).sql


def test_what_a_chat_asks_first_is_one_statement(database: Database) -> None:
    """messaging M-60."""
    with recorded(database) as (store, sent):
        session = started(store)
        calls: list[Callable[[], object]] = [
            lambda: store.messaging.sessions.resume(KEY),
            lambda: store.messaging.sessions.get(session.id),
            lambda: store.messaging.sessions.find_active(KEY.place),
            lambda: store.messaging.sessions.find_active(KEY.place, user_id="U1"),
            lambda: store.messaging.sessions.ensure_agent_session(session.id, "log-1"),
            lambda: store.messaging.messages.history(session.id),
            lambda: store.messaging.messages.since(session.id, after=0),
        ]
        for call in calls:
            sent.clear()
            call()
            assert len(sent) == 1, sent
