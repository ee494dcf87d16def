"""Pictures as numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from inspector.test_pages import Parsed
from starlette.testclient import TestClient

from lastlight_state.inspector.pictures import BOX, MOST_BOXES, ROW, Step, order

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)


def step(name: str, start: int | None = None, end: int | None = None) -> Step:
    """Return a step that ran between these minutes behind noon."""
    begun, ended = (None if minute is None else NOON + timedelta(minutes=minute) for minute in (start, end))
    return Step(name, "finished", begun, ended, f"{name}!")


def places(*steps: Step) -> dict[str, tuple[int, int]]:
    """Return the column and the row of each step."""
    picture = order(steps)
    assert picture is not None
    return {box.name: (box.x // BOX, box.y // ROW) for box in picture.boxes}


def test_steps_stand_in_the_order_in_which_they_ran() -> None:
    """inspector IN-80: one that began when all of a column still ran is in it; those that did not run are last."""
    given = [step("d", 6), step("b", 2, 4), step("never"), step("a", 0, 2), step("c", 3, 5), step("e", 7), step("nor")]
    assert places(*given) == {
        "a": (0, 0), "b": (1, 0), "c": (1, 1), "d": (2, 0), "e": (2, 1), "never": (3, 0), "nor": (3, 1),
    }  # fmt: skip
    assert order([]) is None


def test_a_picture_of_many_steps_says_how_many_are_missing() -> None:
    """inspector IN-80."""
    picture = order([step(str(number)) for number in range(MOST_BOXES + 7)])
    assert picture is not None
    assert (len(picture.boxes), picture.left_out) == (MOST_BOXES, 7)


def test_the_nodes_of_a_run_are_drawn_with_their_states_and_no_edges(browser: TestClient) -> None:
    """inspector IN-80."""
    tags = Parsed(browser.get("/runs/home").text).tags
    assert [str(attributes["class"]) for tag, attributes in tags if tag == "g"] == ["box running"] * 3
    at = next(place for place, (tag, _) in enumerate(tags) if tag == "g")
    assert not [tag for tag, _ in tags[at:] if tag in ("line", "path", "polyline")]
