"""How many Python functions a call of the library is: what a small call costs beside its driver, on any machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from decimal import Decimal
from types import FrameType

import pytest

from lastlight_state.messaging import ConversationKey
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger, Usage

#: The most calls of a verb, and the most that one more row of its list takes. One of each that writes looks how long
#: the log of a SQLite file is (`WriteAheadLog.is_due`), where the version needs that. Of an end, two more judge what it
#: stores of the output and the details, and choose the statement.
MOST = {
    "take": 48,
    "start an execution": 63,
    "finish an execution": 81,
    "get a run": 44,
    "list of 20 runs": 158,
    "list of 20 executions": 210,
    "history of 20 messages": 88,
    "append a message": 60,
}
FOR_A_ROW = {"list of 20 runs": 4, "list of 20 executions": 6, "history of 20 messages": 2}
USAGE = Usage(turns=7, input_tokens=812, output_tokens=96, cost_usd=Decimal("0.0125"))
TRIGGER = Trigger("t", type="cli", repo="acme/widgets")


def calls_of(verb: Callable[[], object]) -> int:
    """Return how many Python functions a call enters, the verb itself included, once it is warm.

    Not those of a collection of garbage: it may come at any time, and Hypothesis listens to it.
    """
    entered = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    for _ in range(3):
        verb()
    before, is_collecting = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        verb()
    finally:
        sys.setprofile(before)
        if is_collecting:
            gc.enable()
    return entered - 1  # the lambda


@pytest.fixture
def verbs(sqlite_database: Database) -> dict[str, Callable[[int], object]]:
    """Return calls by their names; lists take their limit."""
    store = sqlite_database.open()
    workflows, messages = store.workflows, store.messaging.messages
    runs = [workflows.runs.create("triage", trigger=TRIGGER, phase="start", context={"a": 1}).id for _ in range(30)]
    first = runs[0]
    started = [workflows.executions.start("triage:build", run_id=first).id for _ in range(40)]
    session = store.messaging.sessions.resume(ConversationKey("slack", "C1", "U1", "T1")).session.id
    for _ in range(30):
        messages.append(session, role="user", content="hello")
    return {
        "take": lambda _: workflows.claims.take(runs.pop(), owner="worker-1"),
        "start an execution": lambda _: workflows.executions.start("triage:build", run_id=first),
        "finish an execution": lambda _: workflows.executions.finish(
            started.pop(), "succeeded", usage=USAGE, session_id="s1"
        ),
        "get a run": lambda _: workflows.runs.get(first),
        "list of 20 runs": lambda limit: workflows.runs.list(limit=limit),
        "list of 20 executions": lambda limit: workflows.executions.list(limit=limit),
        "history of 20 messages": lambda limit: messages.history(session, limit=limit),
        "append a message": lambda _: messages.append(session, role="user", content="hello"),
    }


@pytest.mark.parametrize("name", MOST)
def test_a_small_call_is_no_more_than_so_many_functions(verbs: dict[str, Callable[[int], object]], name: str) -> None:
    """backends B-174."""
    assert calls_of(lambda: verbs[name](20)) <= MOST[name]


@pytest.mark.parametrize("name", FOR_A_ROW)
def test_one_more_row_of_a_list_is_no_more_than_so_many_functions(
    verbs: dict[str, Callable[[int], object]], name: str
) -> None:
    """backends B-174: what is said of all rows at once, such as that none is damaged, takes no call for each."""
    more = calls_of(lambda: verbs[name](20)) - calls_of(lambda: verbs[name](10))
    assert more <= 10 * FOR_A_ROW[name]


def test_a_collection_of_garbage_in_the_middle_is_not_counted() -> None:
    """backends B-174."""
    heard = []

    def listener(_phase: str, _told: dict[str, int]) -> None:
        heard.append(gc.isenabled())

    usual = gc.get_threshold()
    gc.callbacks.append(listener)
    gc.set_threshold(1)
    try:
        assert calls_of(lambda: [[] for _ in range(5000)]) <= 1  # the list, before Python 3.12
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(listener)
    assert heard
