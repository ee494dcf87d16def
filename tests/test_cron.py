"""Cron expressions to instants."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st
from support.each import with_each
from support.schedules.days import daily

from lastlight_state import InvalidValue, MisuseError, cron

MINUTE = timedelta(minutes=1)

ACCEPTED = """
* * * * *|*/5 * * * *|0 0 1 1 *|30 2 * * MON-FRI|0 12 * jan,Jul *|0 0 * * 0|0 0 * * 7|0 0 1,15 * *|1-5,10-59/7 * * * *
0 0 L * *|0 0 LW * *|0 0 * * 5L|0 0 * * 1#1|0 0 29 2 *|0 0 * 2 1#5|*/10 0 0 * * *|0 0 30-31 * *
@hourly|@daily|@midnight|@weekly|@monthly|@yearly|@annually|@Daily
""".replace("\n", "|").strip("|")

REFUSED = [
    ("", "blank"),
    ("  ", "blank"),
    ("* * * *", "fields"),
    ("* * * * * * *", "fields"),
    ("@reboot", "fields"),
    ("60 * * * *", "minute"),
    ("* 24 * * *", "hour"),
    ("60 * * * * *", "second"),
    ("* * 0 * *", "day-of-month"),
    ("* * * 13 *", "month"),
    ("* * * * 8", "day-of-week"),
    ("*/0 * * * *", "minute"),
    ("5-1 * * * *", "minute"),
    ("-1 * * * *", "minute"),
    ("\u0663 * * * *", "ASCII"),
    ("0 0 31 2 *", "day-of-month"),
    ("0 0 31 4,6 *", "day-of-month"),
    ("0 0 * 2 1#6", "day-of-week"),
    ("0 0 30 2 */2", "day-of-month"),
    ("0," * 130 + "0 * * * *", "255"),
    (5, "text"),
    (None, "text"),
]
NO_ZONES = [
    "+02:00",
    "",
    "../x",
    "/etc/passwd",
    "Nope/Nope",
    "europe/berlin",
    "Europe",
    "localtime",
    "leapseconds",  # a file beside those of the zones
    "posix/UTC",
    " UTC",
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def instants(pattern: str, zone: str, after: str, count: int) -> list[str]:
    return [f"{instant:%m-%dT%H:%M}" for instant in cron.upcoming(pattern, zone, at(after), count)]


@with_each("pattern", ACCEPTED.split("|"))
def test_a_pattern_of_the_dialect_is_accepted(pattern: str) -> None:
    """schedules X-2, case 30."""
    assert cron.validate(pattern) == pattern
    first = cron.next_after(pattern, "UTC", at("2026-02-03T12:34:56.789Z"))
    assert first is not None
    assert first > at("2026-02-03T12:34:56.789Z")
    assert first.tzinfo is UTC


@with_each(("pattern", "named"), REFUSED)
def test_any_other_pattern_is_refused_by_field(pattern: Any, named: str) -> None:
    """schedules X-3, case 30."""
    with pytest.raises(InvalidValue, match=f"^pattern: .*{named}") as caught:
        cron.validate(pattern)
    if named not in ("text", "blank", "255", "ASCII"):
        assert repr(pattern) in str(caught.value)


def test_a_pattern_may_be_as_long_as_the_limit() -> None:
    """schedules X-3."""
    longest = "0," * 123 + "0 * * * *"
    assert (len(longest), cron.validate(longest)) == (255, longest)


def test_needless_blanks_are_tolerated_and_not_stored() -> None:
    """schedules X-2."""
    assert cron.validate("  0  3 *\t* * ") == "0 3 * * *"
    assert cron.next_after(" 0  3 * * *", "UTC", at("2026-02-03T12:00Z")) == at("2026-02-04T03:00Z")


@with_each("zone", NO_ZONES)
def test_a_zone_is_a_name_that_the_machine_knows(zone: str) -> None:
    """schedules X-4."""
    with pytest.raises(InvalidValue, match=r"^timezone: "):
        cron.validate("* * * * *", zone)


def test_a_zone_is_text() -> None:
    """schedules X-4."""
    for zone in (None, 3, ["UTC"]):
        with pytest.raises(InvalidValue, match=r"^timezone: expected text"):
            cron.next_after("* * * * *", zone, at("2026-02-03T12:00Z"))  # type: ignore[arg-type]


def test_the_zone_of_the_process_plays_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """schedules X-4."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert cron.next_after("0 3 * * *", "UTC", at("2026-02-03T12:00Z")) == at("2026-02-04T03:00Z")


def test_shorthands_are_what_they_stand_for() -> None:
    """schedules X-2."""
    pairs = {"@hourly": "0 * * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@annually": "0 0 1 1 *"}
    after = at("2026-02-03T12:34Z")
    for shorthand, pattern in pairs.items():
        assert cron.upcoming(shorthand, "UTC", after, 3) == cron.upcoming(pattern, "UTC", after, 3)


@with_each(("pattern", "first"), [("0 12 * * *", "2026-02-04T12:00Z"), ("* * * * * *", "2026-02-03T12:00:01Z")])
def test_the_next_instant_is_strictly_after(pattern: str, first: str) -> None:
    """schedules X-5: an instant itself is over, a millisecond before it is not."""
    noon = at("2026-02-03T12:00Z")
    assert cron.next_after(pattern, "UTC", noon) == at(first)
    assert cron.next_after(pattern, "UTC", noon - timedelta(milliseconds=1)) == noon


def test_a_day_matches_by_either_of_two_restrictions() -> None:
    """schedules X-2."""
    assert instants("0 0 13 * FRI", "UTC", "2026-02-01T00:00Z", 3) == ["02-06T00:00", "02-13T00:00", "02-20T00:00"]


@with_each(
    ("pattern", "zone", "after", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["03-29T01:00", "03-30T00:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", ["10-25T00:30", "10-26T01:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10Z", ["10-26T01:30"]),
        ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", ["03-29T00:30", "03-29T01:00", "03-29T01:30"]),
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:00Z",
            ["10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"],
        ),
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["03-30T00:00", "03-30T00:20"]),
        (
            "*/20 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00Z",
            ["10-25T00:00", "10-25T00:20", "10-25T00:40", "10-25T01:00", "10-25T01:20", "10-25T01:40", "10-26T01:00"],
        ),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", ["10-03T15:30", "10-04T15:15"]),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00Z", ["11-04T03:00", "11-05T02:00"]),
        ("0 0 0 * * *", "Australia/Lord_Howe", "2026-04-03T13:00Z", ["04-04T13:00", "04-05T13:30", "04-06T13:30"]),
        ("0 0 0 * * *", "Australia/Lord_Howe", "2026-10-02T14:00Z", ["10-03T13:30", "10-04T13:00", "10-05T13:00"]),
        ("*/20 */3 * * *", "Australia/Lord_Howe", "2026-04-04T14:30Z", ["04-04T16:30", "04-04T16:50", "04-04T17:10"]),
        ("*/30 2 25 10 *", "Europe/Berlin", "2026-01-01T00:00Z", ["10-25T00:00", "10-25T00:30", "10-25T01:00"]),
    ],
)
def test_a_change_of_the_clocks_is_met_as_pinned(pattern: str, zone: str, after: str, expected: list[str]) -> None:
    """schedules X-6, case 30."""
    assert instants(pattern, zone, after, len(expected)) == expected


def test_several_instants_are_asked_for_in_bounds() -> None:
    """schedules X-7."""
    after = at("2026-02-03T12:00Z")
    assert len(cron.upcoming("* * * * *", "UTC", after, 100)) == 100
    for count in (0, 101, True, 1.0):
        with pytest.raises(InvalidValue, match="count"):
            cron.upcoming("* * * * *", "UTC", after, count)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="after"):
        cron.next_after("* * * * *", "UTC", datetime(2026, 2, 3))  # noqa: DTZ001 - that is the point


def test_at_the_end_of_the_calendar_there_is_no_next() -> None:
    """schedules X-7."""
    end = datetime.max.replace(tzinfo=UTC)
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        assert cron.next_after("0 0 29 2 *", zone, end) is None
    assert cron.upcoming("0 0 29 2 *", "UTC", datetime(9990, 1, 1, tzinfo=UTC), 5) == [
        datetime(9992, 2, 29, tzinfo=UTC),
        datetime(9996, 2, 29, tzinfo=UTC),
    ]


def test_without_the_extra_patterns_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """schedules X-1."""
    assert cron.available()
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    assert not cron.available()
    for call in (
        lambda: cron.validate("* * * * *"),
        lambda: cron.next_after("* * * * *", "UTC", at("2026-02-03T12:00Z")),
        lambda: cron.upcoming("* * * * *", "UTC", at("2026-02-03T12:00Z"), 2),
    ):
        with pytest.raises(MisuseError, match=r"lastlight-state\[cron\]"):
            call()


class Fields:
    """A pattern, and the numbers that its fields admit, worked out here."""

    def __init__(self, *fields: tuple[str, frozenset[int]]) -> None:
        self.pattern = " ".join(text for text, _ in fields)
        self.minutes, self.hours, self.days, self.months, self.weekdays = (numbers for _, numbers in fields)
        texts = [text for text, _ in fields]
        self._both = texts[2].startswith("*") or texts[4].startswith("*")
        self.follows_the_wall = texts[0].startswith("*") or texts[1].startswith("*")

    def match(self, local: datetime) -> bool:
        return local.minute in self.minutes and local.hour in self.hours and self._on(local.date())

    def _on(self, day: date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (of_month and of_week if self._both else of_month or of_week)


def field(first: int, last: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    every = range(first, last + 1)
    number = st.integers(first, last)
    return st.one_of(
        st.just(("*", frozenset(every))),
        st.integers(1, last).map(lambda step: (f"*/{step}", frozenset(every[::step]))),
        number.map(lambda one: (str(one), frozenset({one}))),
        st.tuples(number, number).map(lambda two: (f"{two[0]},{two[1]}", frozenset(two))),
        st.tuples(number, number).map(lambda two: (f"{min(two)}-{max(two)}", frozenset(range(min(two), max(two) + 1)))),
    )


PATTERNS = st.builds(
    Fields, field(0, 59), field(0, 23), field(1, 31), st.just(("*", frozenset(range(1, 13)))), field(0, 6)
)
NIGHTS = [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)]
DAYS = 2


def by_the_minute(fields: Fields, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The instants of two days after ``after``, found by looking at every minute."""
    if fields.follows_the_wall:
        first = after.replace(second=0, microsecond=0) + MINUTE
        yield from (
            first + MINUTE * n for n in range(DAYS * 1440) if fields.match((first + MINUTE * n).astimezone(zone))
        )
        return
    found, local = set(), (after.astimezone(zone) - timedelta(hours=3)).replace(second=0, microsecond=0, tzinfo=None)
    for n in range(DAYS * 1440 + 360):
        wanted = (local + MINUTE * n).replace(tzinfo=zone)
        if fields.match(wanted):
            while wanted.astimezone(UTC).astimezone(zone) != wanted:
                wanted += MINUTE
            found.add(wanted.astimezone(UTC))
    yield from sorted(instant for instant in found if instant > after)


@settings(max_examples=60)
@given(fields=PATTERNS, night=st.sampled_from(NIGHTS), minutes=st.integers(-1440, 600), millis=st.integers(0, 59_999))
def test_instants_are_those_found_by_looking_at_every_minute(
    fields: Fields, night: datetime, minutes: int, millis: int
) -> None:
    """schedules X-2, X-5, X-6: around both changes of the clocks, and in between."""
    after = night + MINUTE * minutes + timedelta(milliseconds=millis)
    end = after + timedelta(days=DAYS) - timedelta(hours=3)
    expected = list(takewhile(lambda one: one < end, by_the_minute(fields, ZoneInfo("Europe/Berlin"), after)))[:100]
    try:
        found = cron.upcoming(fields.pattern, "Europe/Berlin", after, 100)
    except InvalidValue:
        assert expected == []
        return
    assert [instant for instant in found if instant < end] == expected


#: Zones and times at which their clocks changed by other than an hour: a day, two hours, half an hour, a few minutes.
ODD_CHANGES = [
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Pacific/Kwajalein", "1993-08-21T12:00Z"),
    ("Pacific/Kiritimati", "1994-12-31T10:00Z"),
    ("Pacific/Enderbury", "1994-12-31T11:00Z"),
    ("Asia/Manila", "1844-12-31T15:56Z"),
    ("America/Juneau", "1867-10-19T00:31Z"),
    ("Antarctica/Troll", "2026-03-29T01:00Z"),
    ("Antarctica/Casey", "2010-03-04T15:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("America/Caracas", "2007-12-09T07:00Z"),
    ("Asia/Pyongyang", "2018-05-04T15:00Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30Z"),
    ("America/Nuuk", "2026-03-29T01:00Z"),
    ("Africa/Monrovia", "1972-01-07T00:44Z"),
]


@with_each(("zone", "change"), ODD_CHANGES)
@with_each(("hour", "minute"), [(0, 0), (0, 20), (2, 30), (12, 0), (23, 30)])
def test_a_daily_pattern_fires_once_on_each_day_that_a_zone_has(zone: str, change: str, hour: int, minute: int) -> None:
    """schedules X-6: where a day is skipped or comes twice, or the clocks change by other than an hour."""
    start, end = at(change) - timedelta(days=3), at(change) + timedelta(days=3)
    found = cron.upcoming(f"{minute} {hour} * * *", zone, start, 10)
    expected = daily(ZoneInfo(zone), hour, minute, start - timedelta(days=1), end + timedelta(days=1))
    assert {one for one in found if one <= end} == {one for one in expected if start < one <= end}


def test_a_pattern_of_one_day_runs_after_the_gap_that_took_it() -> None:
    """schedules X-6: it does not match on the day behind it."""
    assert instants("30 2 30 12 *", "Pacific/Apia", "2011-12-01T00:00Z", 1) == ["12-30T10:00"]
