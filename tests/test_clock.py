from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support.each import with_each

from lastlight_state import clock as clock_module
from lastlight_state.clock import SYSTEM_CLOCK, KeptClock, aware_utc, iso_text, of_file, to_millis
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.testing.clock import FrozenClock

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
MOMENTS = st.datetimes(timezones=st.just(UTC)).map(to_millis)


class Undecided(tzinfo):
    """A time zone that does not say its offset."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None


def test_the_system_clock_tells_whole_milliseconds_in_utc() -> None:
    """house H-30."""
    before = to_millis(datetime.now(UTC))
    told = SYSTEM_CLOCK.now()
    assert before <= told <= datetime.now(UTC)
    assert told.tzinfo is UTC
    assert told.microsecond % 1000 == 0


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 - bounds of a strategy
def test_a_time_of_any_zone_is_kept_as_the_same_moment_in_utc(moment: datetime) -> None:
    """house H-30."""
    kept = aware_utc("since", moment)
    assert kept.tzinfo is UTC
    assert timedelta() <= moment - kept < timedelta(milliseconds=1)


@with_each("moment", [NOON.replace(tzinfo=None), NOON.replace(tzinfo=Undecided())])
def test_a_time_without_an_offset_is_refused(moment: datetime) -> None:
    """house H-30."""
    with pytest.raises(InvalidValue, match="since: naive datetime"):
        aware_utc("since", moment)


@with_each("value", ["2026-02-03T00:00:00Z", 1770076800, None])
def test_what_is_no_datetime_is_refused_by_its_type(value: object) -> None:
    with pytest.raises(InvalidValue, match="since: expected a datetime"):
        aware_utc("since", value)  # type: ignore[arg-type]


@with_each(
    "moment",
    [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
    ],
)
def test_a_time_outside_the_calendar_in_utc_is_refused(moment: datetime) -> None:
    with pytest.raises(InvalidValue, match="years 1 to 9999"):
        aware_utc("since", moment)


@given(MOMENTS, MOMENTS)
def test_texts_of_times_sort_as_the_times_do(one: datetime, other: datetime) -> None:
    """house H-31."""
    assert (iso_text(one) < iso_text(other)) == (one < other)
    assert len(iso_text(one)) == 24


@given(MOMENTS)
def test_the_text_of_a_time_reads_back_as_the_time(moment: datetime) -> None:
    """house H-31."""
    assert parse_time(iso_text(moment)) == moment


@with_each("year", [1, 999, 9000, 9999])
def test_a_clock_at_the_end_of_the_calendar_is_refused_when_it_is_given(year: int, tmp_path: Path) -> None:
    """house H-31: leases and windows are added to the present, and must stay in the calendar."""
    clock = FrozenClock(datetime(year, 6, 1, tzinfo=UTC))
    with pytest.raises(InvalidValue, match="clock: must be between the years 1000 and 8999"):
        StateStore.open(tmp_path / "state.db", clock=clock)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidValue, match="clock: must be between"):
        KeptClock(clock).now()


@with_each("year", [1000, 8999])
def test_a_clock_in_the_first_and_in_the_last_year_is_taken(year: int) -> None:
    """house H-31."""
    clock = FrozenClock(datetime(year, 6, 1, tzinfo=UTC))
    assert KeptClock(clock).now() == clock.now()


@given(st.integers(-(2**80), 2**80))
def test_the_time_of_any_file_is_in_the_calendar_and_can_be_calculated_with(nanoseconds: int) -> None:
    """house H-30."""
    moment = of_file(nanoseconds)
    assert moment == to_millis(moment)
    assert moment - timedelta(days=36_500) < moment < moment + timedelta(days=36_500)


def test_the_time_of_a_file_is_cut_to_milliseconds() -> None:
    """house H-30."""
    assert of_file(1_999_999) == datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC)
    assert of_file(-1) == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert (of_file(-(2**70)).year, of_file(2**70).year) == (1000, 8999)


def test_texts_of_times_are_right_however_many_days_were_asked_for() -> None:
    """house H-30: only those of the last days are remembered."""
    days = [datetime(2020, 1, 1, 3, 4, 5, 6_000, tzinfo=UTC) + timedelta(days=number) for number in range(2_100)]
    for moment in (*days, *days[:3]):
        assert iso_text(moment) == f"{moment:%Y-%m-%dT%H:%M:%S}.006Z"
    assert len(clock_module._day_texts) <= 1_000
