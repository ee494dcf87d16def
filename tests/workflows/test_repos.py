"""What a repository is called: an owner and a bare name."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from support.each import with_each
from support.workflows.steps import Raw, started

from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import RunFilter, Trigger
from lastlight_state.workflows.repos import normalise_repo, split_legacy

NAMES = [
    ((None, "acme/w"), ("acme", "w")),
    (("x", "acme/w"), ("x", "w")),
    (("x", "a/b"), ("x", "b")),
    ((None, "a/b/c"), ("a", "b/c")),
    ((None, "w"), (None, "w")),
    (("acme", "w"), ("acme", "w")),
    ((" acme ", "\tw\n"), ("acme", "w")),
    (("", "w"), (None, "w")),
    (("  ", "acme/w"), ("acme", "w")),
    (("acme", None), ("acme", None)),
    ((None, " "), (None, None)),
    ((None, None), (None, None)),
]

REFUSED = [
    (None, "/b"),
    (None, "a/"),
    (None, "/"),
    (None, "https://h/o/r"),
    (None, "a b"),
    (None, "a/b c"),
    ("a/b", "c"),
    ("a/", "c"),
    ("https://h", "c"),
    (None, "a\0b"),
    (None, "\ud800"),
    (None, 7),
    (None, "x" * 201),
    ("x" * 201, "w"),
]


@with_each(("said", "stored"), NAMES)
def test_owner_and_repository_are_told_apart(
    said: tuple[str | None, str | None], stored: tuple[str | None, str | None]
) -> None:
    """workflows W-6."""
    assert normalise_repo(*said) == stored


@with_each(("owner", "repo"), REFUSED)
def test_what_is_no_name_is_refused(owner: str | None, repo: str | None) -> None:
    """workflows W-2, W-6."""
    with pytest.raises(InvalidValue):
        normalise_repo(owner, repo)


PART = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="-_."), min_size=1, max_size=40)


@given(st.none() | PART, st.lists(PART, min_size=1, max_size=4).map("/".join))
def test_what_is_normal_stays_so(owner: str | None, repo: str) -> None:
    """workflows W-6."""
    stored = normalise_repo(owner, repo)
    if stored[1] is not None and "/" not in stored[1]:
        assert normalise_repo(*stored) == stored
    if owner is None:
        assert split_legacy(None, repo) == stored
    assert split_legacy(*stored) == stored


def test_names_at_their_limit_are_stored(store: StateStore) -> None:
    """workflows W-2, case 64."""
    wide = "\U0001f4a1" * 50
    run = started(store, trigger=Trigger("t", owner=wide, repo=wide))
    assert (run.owner, run.repo) == (wide, wide)


def test_a_qualified_row_of_another_program_is_found_and_split(store: StateStore, raw: Raw) -> None:
    """workflows W-6."""
    run = started(store, trigger=Trigger("t", repo="acme/w"))
    legacy = started(store, trigger=Trigger("t"))
    raw("UPDATE workflow_runs SET owner = NULL, repo = 'acme/w' WHERE id = ?", legacy.id)
    for repo in ("acme/w", "w"):
        assert {summary.id for summary in store.workflows.runs.list(repo=repo)} == {run.id, legacy.id}
    assert {(found.owner, found.repo) for found in store.workflows.runs.list()} == {("acme", "w")}
    found = store.workflows.runs.get(legacy.id)
    assert (found.owner, found.repo) == ("acme", "w")
    assert store.workflows.runs.list(repo="other/w").items == ()


def test_the_owner_is_never_guessed_from_the_trigger(store: StateStore) -> None:
    """workflows W-6."""
    run = started(store, trigger=Trigger("https://example.org/acme/w/issues/7", repo="w"))
    assert (run.owner, run.repo) == (None, "w")


def test_a_bare_name_is_what_stands_behind_the_first_slash_letter_by_letter(store: StateStore, raw: Raw) -> None:
    """workflows W-6, W-24: alike on both databases, in lists and in counts."""
    legacy = started(store, trigger=Trigger("t"))
    raw("UPDATE workflow_runs SET owner = NULL, repo = 'acme/Wi_d/w' WHERE id = ?", legacy.id)
    for repo in ("w", "Wi_d", "wi_d", "acme"):
        assert store.workflows.runs.list(repo=repo).items == ()
    raw("UPDATE workflow_runs SET repo = 'acme/Wi_d' WHERE id = ?", legacy.id)
    for repo, found in (("Wi_d", 1), ("wi_d", 0), ("Wixd", 0), ("i_d", 0)):
        assert len(store.workflows.runs.list(repo=repo)) == found
        assert store.workflows.lookups.count(RunFilter(repo=repo)).value == found


def test_a_name_that_holds_a_slash_is_found_as_a_whole(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-6, W-24: in lists, counts and sums, and never by a part of it, whichever way it is stored."""
    run, legacy = started(store, trigger=Trigger("t", repo="x/acme/w")), started(store, trigger=Trigger("t"))
    raw("UPDATE workflow_runs SET owner = NULL, repo = 'x/acme/w' WHERE id = ?", legacy.id)
    for run_id in (run.id, legacy.id):
        store.workflows.executions.start("deploy:plan", run_id=run_id)
    assert {(each.owner, each.repo) for each in store.workflows.runs.list()} == {("x", "acme/w")}
    workflows, since = store.workflows, frozen_clock.now()
    for repo, found in (("x/acme/w", 2), ("x/w", 0), ("acme/w", 0), ("w", 0), ("acme", 0)):
        assert len(workflows.runs.list(repo=repo)) == found
        assert len(workflows.runs.list(repo=[repo, "other/w"])) == found
        assert len(workflows.runs.list(repo=[repo, "other"])) == found
        assert workflows.lookups.count(RunFilter(repo=repo)).value == found
        assert sum(each.runs for each in workflows.lookups.activity(None, repo, since=since)) == found
        assert workflows.usage.daily(1, repo=repo)[0].executions == found
