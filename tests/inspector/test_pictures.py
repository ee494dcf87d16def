"""Pictures as numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from inspector.test_pages import Parsed
from starlette.testclient import TestClient
from support.each import with_each

from lastlight_state.inspector import inspector
from lastlight_state.inspector.pictures import BOX, LEFT, LETTER, MOST_BOXES, ROW, WIDTH, Bar, Step, axis, order
from lastlight_state.testing import Database
from lastlight_state.workflows import Failure, RunOptions, Trigger

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


def bar(lane: str, start: int, end: int, key: str | None = None) -> Bar:
    """Return a bar between these minutes behind noon."""
    return Bar(lane, NOON + timedelta(minutes=start), NOON + timedelta(minutes=end), "failed", "told", key)


@with_each(
    ("bars", "sides"),
    [
        ([bar("a", 0, 1, "e"), bar("b", 0, 100)], ["right", None]),
        ([bar("a", 99, 100, "e"), bar("b", 0, 100)], ["left", None]),
        ([bar("a", 0, 100, "e")], ["inside"]),
        ([bar("a", 0, 1, "e"), bar("a", 2, 3, "f"), bar("b", 0, 100)], [None, "right", None]),
        ([bar("a", 40, 41, "e"), bar("a", 42, 100), bar("b", 0, 1)], ["left", None, None]),
        ([bar("a", 0, 60, "e"), bar("a", 30, 100, "f")], [None, "inside"]),
    ],
)
def test_an_error_stands_beside_its_bar_where_it_covers_no_other(bars: list[Bar], sides: list[str | None]) -> None:
    """inspector IN-127: or in the bar, or it is left to the table."""
    picture = axis(bars, [], NOON + timedelta(minutes=100))
    assert picture is not None
    assert [None if one.note is None else one.note.side for one in picture.bars] == sides
    for one in picture.bars:
        if one.note is not None:
            length = one.note.room * LETTER
            begin = one.note.x - (length if one.note.side == "left" else 0)
            assert begin >= LEFT
            assert begin + length <= WIDTH


def test_the_waterfall_of_a_run_says_why_its_executions_failed(fresh_database: Database) -> None:
    """inspector IN-127: in its first line; hidden with personal data, in the picture as in the table."""
    store, clock = fresh_database.open(), fresh_database.clock
    w = store.workflows
    w.runs.create("w", trigger=Trigger("t"), phase="p", options=RunOptions(id="r"))
    done = w.executions.start("w:build", run_id="r")
    clock.advance(timedelta(minutes=5))
    w.executions.finish(done.id, "failed", failure=Failure("KeyError: 'price' of zoe\nTraceback"))
    clock.advance(timedelta(minutes=5))
    shown, hidden = (
        TestClient(inspector(store, hide_personal=hide, clock=clock)).get("/runs/r").text for hide in (False, True)
    )
    [note] = re.findall(r'<text class="note[^>]*>([^<]*)</text>', shown)
    assert "KeyError: &#39;price&#39; of zoe".startswith(note.removesuffix("…"))
    assert "KeyError" not in hidden
