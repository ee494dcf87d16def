from __future__ import annotations

import re

from support.cli.calls import Target, lastlight_state
from support.each import with_each

from lastlight_state.cli.views.kinds import PLURALS, SINGULARS
from lastlight_state.clock import iso_text
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger


def test_a_run_is_shown_with_its_executions_and_gates(targets: dict[str, Target]) -> None:
    """maintenance OP-11."""
    target = targets["populated"]
    data = lastlight_state("show", "run", target.ids.run, "--url", target.url, "--json").data
    assert data["record"]["id"] == target.ids.run
    assert data["record"]["context"] == {"long": "x" * 500}
    assert [item["id"] for item in data["children"]["executions"]["items"]] == [target.ids.execution]
    assert [item["id"] for item in data["children"]["approvals"]["items"]] == [target.ids.approval]


@with_each("word", PLURALS)
def test_ls_takes_the_singular_of_each_kind(word: str, targets: dict[str, Target]) -> None:
    """maintenance OP-11: as it takes the plural, with the same refusals."""
    target = targets["populated"]
    singular, plural = (lastlight_state("ls", kind, "--url", target.url, "--json") for kind in (word, PLURALS[word]))
    assert (singular.code, singular.out, singular.err) == (plural.code, plural.out, plural.err)


def untimed(text: str) -> str:
    """Return what was shown without the time at which it was."""
    return re.sub(r'"computed_at":"[^"]*"', "", text)


@with_each("word", SINGULARS)
def test_show_takes_the_plural_of_each_kind(word: str, targets: dict[str, Target]) -> None:
    """maintenance OP-11: as it takes the singular, with the same refusals."""
    target = targets["populated"]
    for key in ([], ["nothing"], [target.ids.run]):
        plural, singular = (
            lastlight_state("show", kind, *key, "--url", target.url, "--json") for kind in (word, SINGULARS[word])
        )
        assert (plural.code, untimed(plural.out), plural.err) == (singular.code, untimed(singular.out), singular.err)


def test_the_history_of_a_run_is_its_timeline(targets: dict[str, Target]) -> None:
    """maintenance OP-13."""
    target = targets["populated"]
    words = ("show", "run", target.ids.run, "--history", "--url", target.url)
    sources = [entry["source"] for entry in lastlight_state(*words, "--json").data["history"]]
    assert sorted(sources) == ["approval", "execution", "execution", "transition", "transition"]
    assert "waits for an answer" in lastlight_state(*words).out


def test_a_clock_that_was_set_back_is_told_in_the_history(sqlite_database: Database) -> None:
    """maintenance OP-13: beside the facts, in a column of its own."""
    runs, clock = sqlite_database.open().workflows.runs, sqlite_database.clock
    run_id = runs.create("wf", trigger=Trigger("t"), phase="p").id
    words = ("show", "run", run_id, "--history", "--url", sqlite_database.url)
    assert "CLOCK" not in lastlight_state(*words).out
    clock.advance(seconds=-60)
    runs.cancel(run_id, by="ana", reason="no")
    assert "CLOCK" in lastlight_state(*words).out
    assert lastlight_state(*words, "--json").data["history"][1]["clock"] == iso_text(clock.now())


def test_long_texts_are_cut_with_a_note_of_their_size_unless_full(targets: dict[str, Target]) -> None:
    """maintenance OP-11."""
    target = targets["populated"]
    words = ("show", "execution", target.ids.execution, "--url", target.url)
    short, full = lastlight_state(*words).out, lastlight_state(*words, "--full").out
    assert "[511 characters; --full shows all]" in short
    assert "y" * 500 not in short
    assert "first line\n" + "y" * 500 in full
    assert lastlight_state(*words, "--json").data["output_text"] == "first line\n" + "y" * 500


def test_empty_fields_are_shown_only_in_full(targets: dict[str, Target]) -> None:
    """maintenance OP-11."""
    target = targets["populated"]
    words = ("show", "approval", target.ids.approval, "--url", target.url)
    assert "answered_by" not in lastlight_state(*words).out
    assert "answered_by" in lastlight_state(*words, "--full").out


def test_a_session_is_shown_with_its_messages(targets: dict[str, Target]) -> None:
    """maintenance OP-11."""
    target = targets["populated"]
    words = ("show", "messaging", target.ids.messaging, "--url", target.url)
    previews = [item["preview"] for item in lastlight_state(*words, "--json").data["children"]["messages"]["items"]]
    assert previews == ["hi", "hello\nthere"]
    assert "messages (2)" in lastlight_state(*words).out
    assert r"hello\nthere" in lastlight_state(*words).out
