"""One thread that looks for all who wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from contextlib import ExitStack

import pytest
from support.each import with_each

from lastlight_state.db.news import watch as watches
from lastlight_state.db.news.watch import Watch
from lastlight_state.errors import BackendBusy, CorruptData, MisuseError, StoreClosed


@pytest.mark.parametrize(
    "failure", [BackendBusy("busy"), CorruptData("a row", "k", "c"), ValueError("the caller's clock")]
)
def test_a_look_that_fails_is_made_again(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """workflows W-129: whatever the reason, those who wait are not left alone."""
    failures = [failure]

    def read(keys: Collection[str]) -> dict[str, int]:
        if failures:
            raise failures.pop()
        return dict.fromkeys(keys, 1)

    watch = Watch(read)
    with watch.waiting_for(["run"], 0.001):
        assert watch.wait_for_growth({"run": 0}, 30) == {"run": 1}
    assert "a look for what was committed failed" in caplog.text


def test_looks_that_fail_are_made_with_a_rest_between_them() -> None:
    """workflows W-129: two a second, however often somebody wants to look."""
    looks = []
    looked = threading.Event()

    def read(keys: Collection[str]) -> dict[str, int]:
        looks.append(keys)
        looked.set()
        raise BackendBusy("busy")

    watch = Watch(read)
    begun = time.monotonic()
    with watch.waiting_for(["run"], 0):
        assert looked.wait(30)
        assert watch.wait_for_growth({"run": 0}, 0.3) == {}
    assert len(looks) <= 2 * (time.monotonic() - begun) + 1


def test_nobody_is_woken_by_a_look_that_finds_nothing_new() -> None:
    """workflows W-129: however often it is made."""
    looks, woken = [0], list[int]()
    enough = threading.Event()

    def read(keys: Collection[str]) -> dict[str, int]:
        looks[0] += 1
        if looks[0] == 6:
            enough.set()
        return dict.fromkeys(keys, looks[0] // 3)  # 0, 0, 1, 1, 1, 2

    watch = Watch(read)
    with watch.waiting_for(["run"], 0.001, lambda: woken.append(looks[0])):
        assert enough.wait(30)
    assert woken[:2] == [1, 3]


def test_only_those_are_woken_for_whom_there_is_something() -> None:
    """workflows W-129."""
    woken: list[str] = []
    enough = threading.Event()

    def told() -> None:
        woken.append("run")
        enough.set()

    watch: Watch[str] = Watch(lambda _: {"run": 1})
    with watch.waiting_for(["other"], 60, lambda: woken.append("other")), watch.waiting_for(["run"], 0.001, told):
        assert enough.wait(30)
    assert woken == ["run"]


def test_who_leaves_when_it_is_woken_keeps_nobody_else_waiting() -> None:
    """workflows W-129: also a block that the garbage collector ends at that moment."""
    watch: Watch[str] = Watch(lambda _: {"run": 1})
    first, woken = ExitStack(), threading.Event()
    first.enter_context(watch.waiting_for(["run"], 60, first.close))
    with watch.waiting_for(["run"], 60, woken.set), watch.waiting_for(["run"], 0.001):
        assert woken.wait(5)


def test_who_waits_no_more_is_not_looked_for() -> None:
    """workflows W-129: while others go on."""
    looks: list[set[str]] = []
    looked = threading.Event()

    def read(keys: Collection[str]) -> dict[str, int]:
        looks.append(set(keys))
        looked.set()
        return {}

    watch = Watch(read)
    with watch.waiting_for(["stays"], 60):
        with watch.waiting_for(["leaves"], 60):
            pass
        with watch.waiting_for(["stays"], 0.001):
            assert looked.wait(30)
    assert looks[0] == {"stays"}


def test_those_who_want_looks_as_often_share_a_thread() -> None:
    """workflows W-129: who comes does not put off the look that others wait for."""

    of_others = {*threading.enumerate()}  # some may still be ending

    def looking() -> set[threading.Thread]:
        return {*threading.enumerate()} - of_others

    watch: Watch[str] = Watch(lambda keys: dict.fromkeys(keys, 0))
    with watch.waiting_for(["a"], 60):
        first = looking()
        with watch.waiting_for(["b"], 60), watch.waiting_for(["c"], 90):
            assert looking() == first
        with watch.waiting_for(["d"], 59):
            assert looking() - first


def test_a_watch_that_was_ended_looks_no_more() -> None:
    """backends B-10: nor does anybody wait for it."""
    looks: list[Collection[str]] = []

    def read(keys: Collection[str]) -> dict[str, int]:
        looks.append(keys)
        return {}

    watch = Watch(read)
    watch.end()
    before = threading.active_count()
    with watch.waiting_for(["run"], 60):
        assert threading.active_count() == before
        with pytest.raises(StoreClosed):
            watch.wait_for_growth({"run": 0}, 30)
    assert looks == []


def test_a_watch_may_be_ended_by_whom_it_wakes() -> None:
    """backends B-10: a thread does not wait for itself."""
    watch: Watch[str] = Watch(lambda keys: dict.fromkeys(keys, 1))
    ended = threading.Event()

    def woken() -> None:
        watch.end()
        ended.set()

    with watch.waiting_for(["run"], 0, woken):
        assert ended.wait(30)
    with pytest.raises(StoreClosed):
        watch.wait_for_growth({"run": 0}, 30)


def test_those_who_wait_learn_that_no_look_is_possible_any_more() -> None:
    """workflows W-129: as in a forked child."""

    def read(keys: Collection[str]) -> dict[str, int]:
        raise MisuseError("this store was opened before fork()")

    watch = Watch(read)
    with watch.waiting_for(["run"], 0), pytest.raises(StoreClosed) as raised:
        watch.wait_for_growth({"run": 0}, 30)
    assert isinstance(raised.value.__cause__, MisuseError)


def test_a_look_that_hangs_does_not_hold_up_the_end_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-10."""
    monkeypatch.setattr(watches, "LAST_LOOK_SECONDS", 0.0)
    looked, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def read(keys: Collection[str]) -> dict[str, int]:
        looked.set()
        go_on.wait(30)
        over.set()
        return {}

    watch = Watch(read)
    with watch.waiting_for(["run"], 0):
        assert looked.wait(30)
        watch.end()
        assert not over.is_set()
        go_on.set()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that slow down at once, to two looks a minute."""
    monkeypatch.setattr(watches, "QUIET", 0.001)
    monkeypatch.setattr(watches, "SLOWEST", 30.0)


@pytest.mark.usefixtures("quiet")
@with_each(("slows_down", "looks_again"), [(True, False), (False, True)])
def test_looks_become_fewer_while_nothing_happens(slows_down: bool, looks_again: bool) -> None:
    """workflows W-129: where no interval is given. The first look comes after a rest, as all others."""
    looks = [0]

    def read(keys: Collection[str]) -> dict[str, int]:
        looks[0] += 1
        return {}

    watch = Watch(read)
    with watch.waiting_for(["run"], 0.002, slows_down=slows_down):
        assert watch.wait_for_growth({"run": 0}, 0.5) == {}
    assert (looks[0] > 1) is looks_again


@pytest.mark.usefixtures("quiet")
def test_a_commit_of_the_store_brings_the_next_look_forward() -> None:
    """workflows W-129."""
    values = {"run": 0}
    watch = Watch(lambda _: dict(values))
    with watch.waiting_for(["run"], 0.002, slows_down=True):
        assert watch.wait_for_growth({"run": 0}, 0.05) == {}
        values["run"] = 1
        watch.notify()
        assert watch.wait_for_growth({"run": 0}, 10) == {"run": 1}


@pytest.mark.usefixtures("quiet")
def test_a_wait_that_has_slowed_down_ends_at_once() -> None:
    """workflows W-129: when its store is closed, and when somebody else wants quicker looks."""
    begun = time.monotonic()
    watch = Watch[str](lambda keys: dict.fromkeys(keys, 1) if "now" in keys else {})
    with watch.waiting_for(["run"], 0.01, slows_down=True):
        with watch.waiting_for(["now"], 0.002):
            assert watch.wait_for_growth({"now": 0}, 10) == {"now": 1}
        watch.end()
        with pytest.raises(StoreClosed):
            watch.wait_for_growth({"run": 1}, 10)
    assert time.monotonic() - begun < 10
