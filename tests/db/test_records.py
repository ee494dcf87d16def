import copy
import pickle
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from lastlight_state.db.records import Record


class Thing(Record):
    id: str
    at: datetime
    words: tuple[str, ...] = ()
    inner: "Thing | None" = None


VALUES = {"id": "t", "at": datetime(2026, 2, 3, tzinfo=UTC), "words": ("a",), "inner": None}


def test_a_record_of_stored_values_equals_one_that_was_validated() -> None:
    """house H-10."""
    assert Thing.of(dict(VALUES)) == Thing(**VALUES)  # type: ignore[arg-type]


def test_a_record_cannot_be_changed() -> None:
    """house H-10: frozen."""
    thing = Thing.of(dict(VALUES))
    with pytest.raises(ValidationError, match="frozen"):
        thing.id = "other"  # type: ignore[misc]


def test_a_record_goes_through_json_pickle_and_copies() -> None:
    """house H-10."""
    thing = Thing.of({**VALUES, "inner": Thing.of(dict(VALUES))})
    assert Thing.model_validate_json(thing.model_dump_json()) == thing
    for again in (pickle.loads(pickle.dumps(thing)), copy.copy(thing), copy.deepcopy(thing), thing.model_copy()):
        assert again == thing


def test_a_copy_with_changes_leaves_the_others_alone() -> None:
    thing = Thing.of(dict(VALUES))
    changed = thing.model_copy(update={"id": "other"})
    assert (changed.id, thing.id) == ("other", "t")
    assert Thing.of(dict(VALUES)).model_fields_set == set(VALUES)


def test_words_of_a_newer_version_are_no_obstacle() -> None:
    """house H-21: tolerant on read."""
    assert Thing.model_validate({**VALUES, "colour": "red"}) == Thing.of(dict(VALUES))
