import copy
import pickle
import re
from collections.abc import Iterator

from hypothesis import given, strategies as st
from support.each import with_each

from lastlight_state import errors
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue, MisuseError, NotFound, PayloadTooLarge, SchemaMismatch, StateError

EXAMPLES: dict[type[StateError], StateError] = {
    type(error): error
    for error in (
        StateError("a text", fact=1),
        errors.NotFound("workflow_run", "r1", reason="named as parent"),
        errors.Conflict("refused", code="run_status", status="failed"),
        errors.AlreadyExists("message", ("s1", 3), problem="has another content", run_key="k"),
        errors.LostRace("another was first"),
        errors.AlreadyAnswered("workflow_approval", "a1", winner=Page(items=(1, 2))),
        errors.ClaimLost("r1", presented=2, current_epoch=3, held_by="w2", status="running"),
        errors.StaleVersion("cron_override", "nightly", expected=1, found=2),
        errors.InvalidValue("status", "not in the vocabulary", permitted=("running", "failed")),
        errors.PayloadTooLarge("scratch", limit=10, actual=11, hint="keep large text in the output"),
        errors.ReservedName("table", "kept for the library"),
        errors.UnsafePath("name", "leaves its directory"),
        errors.SchemaError("no schema"),
        errors.NotMigrated(found=None, head="0002_lastlight_state", command="lastlight-state migrate"),
        errors.NewerSchema(found="0009", head="0002_lastlight_state", min_reader="0008"),
        errors.SchemaMismatch("differs", differences=("one", "two")),
        errors.CorruptData("workflow_runs", "r1", "context"),
        errors.FrameChainBroken("r1", 61, "bad_delta"),
        errors.UnsavedEvents("not stored", failures=(), waiting=(Page(items=(1, 2)),), listener_errors=()),
        errors.SealedValue("sealed with the key 'k'", key_id="k"),
        errors.BackendError("refused"),
        errors.BackendBusy("locked"),
        errors.BackendUnavailable("gone", outcome="unknown", repeats=1),
        errors.NotSupported("too old"),
        errors.MisuseError.missing_extra("postgres", what="Postgres"),
        errors.NestedTransaction("inside another"),
        errors.ReadOnlyTransaction("may only read"),
        errors.StoreClosed("closed"),
    )
}


FACT_NAMES = st.from_regex("[a-z]{3,8}", fullmatch=True).filter(lambda name: name not in ("code", "args", "details"))


def tree(root: type[StateError]) -> Iterator[type[StateError]]:
    yield root
    for kind in root.__subclasses__():
        yield from tree(kind)


OURS = [kind for kind in tree(StateError) if kind.__module__ == errors.__name__]


@with_each("kind", OURS)
def test_every_error_survives_pickling_with_its_facts(kind: type[StateError]) -> None:
    """house H-54."""
    error = EXAMPLES[kind]
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert (str(again), again.code, again.details) == (str(error), error.code, error.details)


@given(message=st.text(), facts=st.dictionaries(FACT_NAMES, st.integers() | st.text()))
def test_any_facts_survive_pickling_as_attributes(message: str, facts: dict[str, int | str]) -> None:
    """house H-54."""
    again = pickle.loads(pickle.dumps(StateError(message, code=None, **facts)))
    assert str(again) == message
    assert again.details == facts
    assert all(getattr(again, name) == value for name, value in facts.items())


def test_the_tree_at_the_top_of_the_module_is_the_tree_of_classes() -> None:
    """house H-55."""
    drawn = re.findall(r"^ {4}(?:[│├└─ ]*)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(kind.__name__ for kind in OURS)


def test_every_class_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in OURS]
    assert len(set(codes)) == len(codes)


def test_an_error_can_say_which_rule_by_a_code_of_its_own() -> None:
    assert errors.Conflict("refused", code="run_status").code == "run_status"
    assert errors.Conflict("refused").code == "conflict"


def test_details_are_the_facts_without_code_and_notes() -> None:
    error = NotFound("message", 7)
    error.add_note("in the transaction 'import'")
    assert error.details == {"kind": "message", "key": 7, "reason": None}
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["in the transaction 'import'"]


def test_a_refused_word_comes_with_those_that_are_permitted() -> None:
    error = InvalidValue("status", "is unknown", permitted=("running", "failed"))
    assert str(error) == "status: is unknown (permitted: running, failed)"
    assert error.details["permitted"] == ("running", "failed")


def test_a_payload_too_large_says_its_size_its_limit_and_the_way_out() -> None:
    error = PayloadTooLarge("scratch", limit=10, actual=11, hint="use the output")
    assert (error.limit, error.actual) == (10, 11)
    assert str(error) == "scratch: 11 bytes, more than the limit of 10; use the output"


def test_differences_are_listed_a_line_each() -> None:
    assert str(SchemaMismatch("differs", differences=["one", "two"])) == "differs\n  one\n  two"


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    error = MisuseError.missing_extra("cron", what="a schedule")
    assert "pip install 'lastlight-state[cron]'" in str(error)
    assert error.details == {"extra": "cron"}
