from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st
from support.each import with_each

from lastlight_state.backends.waiting import Retry
from lastlight_state.errors import BackendBusy, BackendError, BackendUnavailable, Conflict, StateError
from lastlight_state.metrics import Metrics

BUSY = BackendBusy("locked")
LOST = BackendUnavailable("gone", repeats=1)
UNKNOWN = BackendUnavailable("gone", outcome="unknown", repeats=1)
IO_ERROR = BackendUnavailable("input or output failed", repeats=6)


class Sleeper:
    """Notes how long it should have slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def retry(sleeper: Sleeper, stretch: float = 1.0) -> Retry:
    return Retry(Metrics(), sleep=sleeper, stretch=lambda: stretch)


def failing(*errors: Exception) -> Callable[[], str]:
    """An attempt that fails with each error once, then succeeds."""
    waiting: Iterator[Exception] = iter(errors)

    def attempt() -> str:
        for error in waiting:
            raise error
        return "done"

    return attempt


def test_what_succeeds_at_once_is_not_counted() -> None:
    """backends B-50."""
    sleeper = Sleeper()
    budget = retry(sleeper)
    assert budget.run(failing()) == "done"
    assert (sleeper.slept, budget.metrics.retries) == ([], 0)


def test_a_busy_unit_is_repeated_six_times_with_pauses_that_double() -> None:
    """backends B-50: base 50 ms."""
    sleeper = Sleeper()
    budget = retry(sleeper)
    assert budget.run(failing(*[BUSY] * 6)) == "done"
    assert sleeper.slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]
    assert budget.metrics.retries == 6


def test_after_the_sixth_repetition_the_error_is_the_callers() -> None:
    """backends B-50."""
    budget = retry(Sleeper())
    last = BackendBusy("the last")
    with pytest.raises(BackendBusy) as raised:
        budget.run(failing(*[BUSY] * 6, last))
    assert raised.value is last
    assert budget.metrics.retries == 6


def test_no_pause_is_longer_than_two_seconds_before_its_jitter() -> None:
    """backends B-50: cap 2 s."""
    sleeper = Sleeper()
    Retry(Metrics(), limit=9, sleep=sleeper, stretch=lambda: 1.25).run(failing(*[BUSY] * 9))
    assert sleeper.slept[-3:] == [2.5, 2.5, 2.5]


def test_each_pause_is_stretched_or_shortened_by_a_quarter_at_most() -> None:
    """backends B-50: jitter ±25 %."""
    factors = [Retry(Metrics()).stretch() for _ in range(1000)]
    assert 0.75 <= min(factors) < 0.8
    assert 1.2 < max(factors) <= 1.25


@given(errors=st.lists(st.sampled_from([BUSY, LOST, IO_ERROR]), max_size=10))
def test_the_budget_is_one_whatever_the_errors_are(errors: list[StateError]) -> None:
    """backends B-50: up to six retries."""
    budget = retry(Sleeper())
    attempts = 0
    failures = failing(*errors)

    def attempt() -> str:
        nonlocal attempts
        attempts += 1
        return failures()

    with suppress(BackendError):
        budget.run(attempt)
    assert attempts <= 7
    assert budget.metrics.retries == attempts - 1


def test_a_lost_connection_is_met_by_repeating_once() -> None:
    """backends B-33."""
    assert retry(Sleeper()).run(failing(LOST)) == "done"
    with pytest.raises(BackendUnavailable):
        retry(Sleeper()).run(failing(LOST, LOST))


def test_an_io_error_is_repeated_as_busy_is() -> None:
    """backends B-50: busy, I/O error, serialisation failure, deadlock."""
    assert retry(Sleeper()).run(failing(*[IO_ERROR] * 6)) == "done"


def test_an_unknown_outcome_is_repeated_only_when_the_writes_are_repeatable() -> None:
    """backends B-51."""
    assert retry(Sleeper()).run(failing(UNKNOWN), repeatable=True) == "done"
    with pytest.raises(BackendUnavailable):
        retry(Sleeper()).run(failing(UNKNOWN))


@with_each("last", [LOST, BUSY])
def test_what_an_earlier_attempt_may_have_written_is_not_forgotten(last: BackendError) -> None:
    """backends B-51: the outcome is unknown, even when the last attempt certainly wrote nothing."""
    last = type(last)("the last", **last.details)
    with pytest.raises(type(last)) as raised:
        retry(Sleeper()).run(failing(UNKNOWN, *[last] * 6), repeatable=True)
    assert raised.value.details["outcome"] == "unknown"


@with_each(
    "error", [BackendError("refused"), BackendUnavailable("no such host"), Conflict("refused"), RuntimeError("a bug")]
)
def test_what_repeating_cannot_mend_is_raised_at_once(error: Exception) -> None:
    """backends B-50."""
    sleeper = Sleeper()
    with pytest.raises(type(error)):
        retry(sleeper).run(failing(error))
    assert sleeper.slept == []
