"""Calls that find, when they are repeated, what they have written already: a lost answer is no error. (Postgres)"""

from __future__ import annotations

from typing import Any

import pytest
from support.answers import dropped_answers
from support.workflows.repeats import REPEATS, Repeat

from lastlight_state import StateStore
from lastlight_state.backends.waiting import Retry
from lastlight_state.testing import Database


@pytest.mark.parametrize("lost", REPEATS.values(), ids=list(REPEATS))
def test_a_call_that_finds_its_own_work_is_repeated(shared_postgres: Database, lost: Repeat) -> None:
    """backends B-51."""
    given = lost.given(shared_postgres.open())
    shared_postgres.clock.advance(lost.later)
    with dropped_answers(shared_postgres.url) as (url, drop), StateStore.open(url, clock=shared_postgres.clock) as far:
        scope: Any = far._scope
        scope.retry = Retry(far.metrics, sleep=lambda _: None)
        drop(lost.word)
        lost.call(far.workflows, given)
        assert far.metrics.retries == 1
