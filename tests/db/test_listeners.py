import pytest

from lastlight_state.db.news.listeners import Listeners
from lastlight_state.metrics import Metrics


def test_all_who_listen_to_a_topic_are_told_in_order() -> None:
    listeners = Listeners(Metrics())
    heard: list[str] = []
    listeners.subscribe("end", lambda fact: heard.append(f"first {fact}"))
    listeners.subscribe("end", lambda fact: heard.append(f"second {fact}"))
    listeners.subscribe("start", lambda fact: heard.append(f"other {fact}"))
    listeners.notify("end", 1)
    listeners.notify("nobody", 2)
    assert heard == ["first 1", "second 1"]


def test_who_stops_listening_is_told_nothing_more_and_may_stop_twice() -> None:
    listeners = Listeners(Metrics())
    heard: list[int] = []
    stop = listeners.subscribe("end", heard.append)
    listeners.notify("end", 1)
    stop()
    stop()
    listeners.notify("end", 2)
    assert heard == [1]


def test_one_that_stops_while_it_is_told_harms_no_other() -> None:
    listeners = Listeners(Metrics())
    heard: list[int] = []
    stop = listeners.subscribe("end", lambda _: stop())
    listeners.subscribe("end", heard.append)
    listeners.notify("end", 1)
    listeners.notify("end", 2)
    assert heard == [1, 2]


def test_one_that_fails_is_logged_and_counted_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    listeners = Listeners(metrics)
    heard: list[int] = []

    def fail(_: object) -> None:
        raise RuntimeError

    listeners.subscribe("end", fail)
    listeners.subscribe("end", heard.append)
    listeners.notify("end", 1)
    assert (heard, metrics.failed_hooks) == ([1], 1)
    assert [record.getMessage() for record in caplog.records] == ["a listener of end failed"]
