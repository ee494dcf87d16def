import copy
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

import lastlight_state
from lastlight_state import StateStore
from lastlight_state.db.rows.records import DamagedRow, Page, Record, make_record
from lastlight_state.workflows import Trigger


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


@dataclass(frozen=True)
class Due:
    at: datetime
    grace: timedelta


class Bill(Record):
    id: str
    text: str
    at: datetime | None
    each: tuple[datetime, ...]
    due: Due
    again: Due | None
    wait: timedelta
    cost: Decimal
    payload: Any
    thing: Thing | None = None


MOMENT = datetime(2026, 2, 3, 12, 34, 56, 898_000, tzinfo=UTC)
WRITTEN = "2026-02-03T12:34:56.898Z"


def bill(**changes: Any) -> Bill:
    due = Due(MOMENT, timedelta(minutes=1))
    values = {"id": "b", "text": "secret " * 900, "at": MOMENT, "each": (MOMENT,), "due": due, "again": due}
    values |= {"wait": timedelta(seconds=2.5), "cost": Decimal("0.100000"), "payload": {"key": "secret"}}
    return Bill.model_validate(values | changes)


def test_json_has_times_and_amounts_as_the_database_has_them() -> None:
    """house H-10: milliseconds and Z, seconds, exact text; wherever they stand."""
    told = bill().model_dump(mode="json")
    due = {"at": WRITTEN, "grace": 60.0}
    assert [told[name] for name in ("at", "each", "due", "again", "wait", "cost")] == [
        WRITTEN, [WRITTEN], due, due, 2.5, "0.1",
    ]  # fmt: skip
    assert Bill.model_validate_json(bill().model_dump_json()) == bill()
    assert f'"items":[{bill().model_dump_json()}]' in Page(items=(bill(),)).model_dump_json()


def test_a_time_in_another_zone_is_written_in_utc() -> None:
    """house H-10: a record may be made by its caller."""
    local = MOMENT.astimezone(timezone(timedelta(hours=2)))
    assert f'"at":"{WRITTEN}"' in bill(at=local).model_dump_json()
    assert bill(at=None).model_dump()["at"] is None


def test_times_are_still_times_in_the_json_schema() -> None:
    schema = Bill.model_json_schema(mode="serialization")["properties"]
    assert schema["each"]["items"] == {"format": "date-time", "type": "string"}


def test_the_repr_of_a_record_tells_which_one_it_is_and_no_contents() -> None:
    """house H-10."""
    thing = Thing.of({**VALUES, "id": "t" * 200})
    told = repr(bill(thing=thing))
    assert told == f"Bill(id='b', at='{WRITTEN}', thing=Thing(id='{'t' * 80}…', at='2026-02-03T00:00:00.000Z'))"
    assert "secret" not in told + str(bill())


class Step(Record):
    id: str
    phase: str | None = None
    state: Any = None
    type: str = "step"


def test_the_repr_of_a_record_says_nothing_of_what_it_has_not_or_holds() -> None:
    """house H-10: a text is cut where it is longer than 80 characters."""
    assert repr(Step(id="i" * 80, state={"key": "secret"})) == f"Step(id='{'i' * 80}')"
    assert repr(Step(id="i" * 81, phase="p")) == f"Step(id='{'i' * 80}…', phase='p')"


def test_a_record_may_have_a_field_that_is_called_type() -> None:
    """house H-10: which says nothing of how the others are written."""
    assert Step(id="s").model_dump_json() == '{"id":"s","phase":null,"state":null,"type":"step"}'


def test_the_repr_of_a_page_tells_how_much_it_holds() -> None:
    assert repr(Page(items=(bill(), bill()), next_page_token="secret")) == "Page(items=2, more=True)"
    row = DamagedRow(table="bills", key="b", column="at", problem="secret")
    assert repr(Page(items=(bill(),), damaged=(row, row))) == "Page(items=1, more=False, damaged=2)"


def _kinds(kind: type[Record]) -> Iterator[type[Record]]:
    for found in kind.__subclasses__():
        yield found
        yield from _kinds(found)


def test_every_record_has_a_hash_whatever_it_holds() -> None:
    """house H-10: equal records have equal hashes, in whatever order their values came."""
    for module in pkgutil.walk_packages(lastlight_state.__path__, "lastlight_state."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = [kind for kind in _kinds(Record) if kind.__module__.startswith("lastlight_state")]
    assert len(kinds) > 50
    for kind in kinds:
        values: dict[str, Any] = {name: {"holds": [name]} for name in kind.model_fields}
        other = dict(reversed(values.items()))
        assert {make_record(kind, values), make_record(kind, other)} == {make_record(kind, values)}
        first = next(iter(values), None)
        if first is not None:
            assert hash(make_record(kind, {**values, first: "a"})) != hash(make_record(kind, {**values, first: "b"}))


def test_a_record_with_contents_stands_in_sets(every_backend: StateStore) -> None:
    """house H-10."""
    runs = every_backend.workflows.runs
    made_run = runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p", context={"a": {"b": [1]}})
    other = runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p")
    assert {made_run, runs.get(made_run.id), other} == {made_run, other}
    assert hash(runs.list())


def test_a_record_is_written_inside_another_one_whose_class_was_never_used() -> None:
    """house H-10: pydantic before 2.14 wrote no record of a class that was not built yet."""
    inner: Any = type("Inner", (Record,), {"__annotations__": {"id": str}})
    outer: Any = type("Outer", (Record,), {"__annotations__": {"items": tuple[Any, ...]}})
    made = outer.of({"items": (inner.of({"id": "a"}),)})
    assert made.model_dump(mode="json") == {"items": [{"id": "a"}]}
