"""Preparing a resume: a history that a provider accepts, and the new environment in the new header."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from support.each import with_each
from support.run_log.logs import NOW, OTHER_RUN, SESSION, files_below, lines_of, start

from lastlight_state.errors import InvalidValue, NewerSchema
from lastlight_state.files.run_log import RunLog, Runtime, SessionState, normalise, prepare_resume, without_marks

SYSTEM = {"role": "system", "content": "old"}
USER = {"role": "user", "content": "hi", "later": [1]}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}, {"id": "b"}]}
HERE, THERE = Runtime(cwd="/here", os="linux"), Runtime(cwd="/there", os="linux", arch="arm")


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def state(*messages: dict[str, Any], **fields: Any) -> SessionState:
    return SessionState.model_validate({"session_id": SESSION, "messages": messages, **fields})


def test_a_complete_exchange_is_left_as_it_is() -> None:
    """run-log RL-92: unknown roles and fields, too."""
    blocks: list[dict[str, Any]] = [
        {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "u"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u"}]},
        {"role": "odd"},
        {"role": "assistant", "content": ""},
    ]
    messages: list[dict[str, Any]] = [SYSTEM, USER, CALL, result("b"), result("a"), *blocks]
    assert normalise(messages) == (tuple(messages), ())


@with_each(
    ("messages", "expected", "dropped"),
    [
        ([USER, CALL], [USER], [("call", "a"), ("call", "b"), ("message", None)]),
        ([USER, CALL, result("a")], [USER, CALL | {"tool_calls": [{"id": "a"}]}, result("a")], [("call", "b")]),
        ([USER, result("a")], [USER], [("result", "a")]),
        ([result("a"), CALL | {"content": "x"}], [{"role": "assistant", "content": "x"}], None),
        ([CALL, result("a"), result("b"), result("b")], [CALL, result("a"), result("b")], [("result", "b")]),
        (
            [
                {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "u"}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "v"}, {"type": "text", "text": "y"}],
                },
            ],
            [
                {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
                {"role": "user", "content": [{"type": "text", "text": "y"}]},
            ],
            [("call", "u"), ("result", "v")],
        ),
        (
            [
                {"role": "assistant", "content": [{"type": "image", "id": "u"}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u"}, "y"]},
            ],
            [{"role": "assistant", "content": [{"type": "image", "id": "u"}]}, {"role": "user", "content": ["y"]}],
            [("result", "u")],
        ),
        (
            [CALL, {"role": "user", "content": [{"type": "note", "tool_use_id": "a"}]}, result("a"), result("b")],
            [CALL, {"role": "user", "content": [{"type": "note", "tool_use_id": "a"}]}, result("a"), result("b")],
            [],
        ),
        (
            [CALL | {"content": "x"}, USER | {"tool_call_id": "a"}],
            [{"role": "assistant", "content": "x"}, USER | {"tool_call_id": "a"}],
            [("call", "a"), ("call", "b")],
        ),
        (
            [
                {"role": "assistant", "content": [{"type": "tool_use", "id": id_} for id_ in ("u", {"no": "text"})]},
                {"role": "user", "content": ["y", {"type": "tool_result", "tool_use_id": ["no text"]}]},
                {"role": "assistant", "content": "x", "tool_calls": [{"id": [1]}]},
                {"role": "tool", "tool_call_id": {}, "content": "z"},
            ],
            None,
            None,
        ),
    ],
)
def test_half_exchanges_are_dropped(
    messages: list[dict[str, Any]], expected: list[dict[str, Any]] | None, dropped: list[tuple[str, str | None]] | None
) -> None:
    """run-log RL-92."""
    given = deepcopy(messages)
    found = normalise(given)
    assert expected is None or list(found.messages) == expected
    assert dropped is None or [(one.kind, one.call_id) for one in found.dropped] == dropped
    assert given == messages


@with_each("meta", [{"mine": 1}, {}, {"x.lastlight.resume_notice": False}, "text", None])
def test_a_message_with_a_meta_of_its_own_is_no_notice(meta: Any) -> None:
    """run-log RL-94: it stays in the history, and keeps its marks."""
    own = USER | {"meta": meta}
    assert prepare_resume(state(own), environment=HERE).messages == (own,)
    assert without_marks([own]) == (own,)


def test_a_plan_depends_on_its_input_alone_and_leaves_it_as_it_is() -> None:
    """run-log RL-90."""
    given = state(SYSTEM, USER, CALL, meta={"x.lastlight.environment": {"cwd": "/here"}, "k": [1]}, invoke_seq=4)
    before = deepcopy(given.to_json())
    plan = prepare_resume(given, environment=THERE)
    assert plan == prepare_resume(given, environment=THERE)
    plan.messages[-1]["content"] = "changed"
    plan.meta["k"].append(2)
    assert given.to_json() == before
    assert prepare_resume(state(USER), environment=THERE).invoke_seq == 0
    with pytest.raises(NewerSchema):
        prepare_resume(state(USER, schema_version=2), environment=THERE)


def test_an_environment_that_cannot_be_read_is_refused_unless_another_is_given() -> None:
    """run-log RL-90."""
    given = state(USER, meta={"x.lastlight.environment": {"cwd": 5}})
    with pytest.raises(InvalidValue, match="cwd"):
        prepare_resume(given, environment=THERE)
    assert prepare_resume(given, environment=THERE, previous=HERE).changes[0].name == "cwd"


@with_each(
    ("environment", "previous"),
    [(Runtime(cwd="/there", os=None), HERE), (THERE, Runtime(cwd="/here", os=None)), (THERE, Runtime(cwd="/here"))],
)
def test_what_only_one_of_two_environments_tells_is_no_change(environment: Runtime, previous: Runtime) -> None:
    """run-log RL-94."""
    plan = prepare_resume(state(USER), environment=environment, previous=previous)
    assert [change.name for change in plan.changes] == ["cwd"]


def test_the_current_prompt_takes_the_place_of_leading_system_messages() -> None:
    """run-log RL-93."""
    later = {"role": "system", "content": "later"}
    given = state(SYSTEM, SYSTEM, USER, later)
    plan = prepare_resume(given, environment=HERE, system_prompt="new")
    assert plan.messages == ({"role": "system", "content": "new"}, USER, later)
    assert prepare_resume(given, environment=HERE).messages == given.messages


def test_after_any_number_of_moves_there_is_one_notice() -> None:
    """run-log RL-94, RL-93: an unchanged place has none."""
    given, places = state(SYSTEM, USER), [HERE, THERE, HERE, Runtime.model_validate({"cwd": "/last", "later": "x"})]
    counts = []
    plan = prepare_resume(given, environment=HERE)
    for place in places:
        plan = prepare_resume(given, environment=place)
        notices = [message for message in plan.messages if "meta" in message]
        counts.append(len(notices))
        given = state(*plan.messages, meta=plan.meta)
    assert counts == [0, 1, 1, 1]
    assert [change.name for change in plan.changes] == ["cwd"]
    assert plan.messages[1] == {
        "role": "system",
        "content": "The session was resumed in another environment:\n- cwd: /last (before: /here)",
        "meta": {"x.lastlight.resume_notice": True},
    }
    assert without_marks(plan.messages)[1] == {name: plan.messages[1][name] for name in ("role", "content")}
    assert prepare_resume(given, environment=places[-1]).messages == given.messages[:1] + given.messages[2:]
    assert prepare_resume(given, environment=HERE, notice=None).messages == (SYSTEM, USER)
    assert prepare_resume(given, environment=HERE, previous=HERE).changes == ()


def test_a_resume_is_a_new_run_in_its_new_place(log: RunLog) -> None:
    """run-log RL-91: the old log is as it was."""
    with start(log, session_id=SESSION, runtime={"cwd": "/here"}) as writer:
        writer.run_start("go")
        writer.llm_request({"messages": [USER]})
    before = writer.path.read_bytes()
    log.states.put(state(USER, invoke_seq=1, meta={"x.lastlight.environment": {"cwd": "/here"}}))
    plan = prepare_resume(log.states.get(SESSION), environment=THERE)
    header = plan.header(OTHER_RUN, started_at=NOW, model={"name": "m"})
    with log.runs.start(header, invoke_seq=plan.invoke_seq) as writer:
        assert writer.llm_request({"messages": list(plan.messages)}) == 2
        with pytest.raises(InvalidValue):
            plan.header(OTHER_RUN, started_at=NOW, model=5)
    first, asked = lines_of(writer.path)
    assert (first["runtime"]["cwd"], first["session_id"], first["model"]) == ("/there", SESSION, {"name": "m"})
    assert asked["input"]["messages"] == list(plan.messages)
    assert log.runs.path("11111111-1111-4111-8111-111111111111").read_bytes() == before
    assert len(files_below(log.root)) == 3


def test_a_message_with_a_mark_of_others_is_no_notice() -> None:
    """run-log RL-94: it stays, and so does its mark."""
    marked = {**USER, "meta": {"mine": 1}}
    assert prepare_resume(state(marked), environment=HERE).messages == (marked,)
    assert without_marks([marked]) == (marked,)


@with_each(
    ("call", "answer"),
    [
        ({"type": "tool_use"}, {"type": "tool_result"}),
        ({"type": "tool_use", "id": 5}, {"type": "tool_result", "tool_use_id": 5}),
        ({"type": "tool_use", "id": ["u"]}, {"type": "tool_result", "tool_use_id": ["u"]}),
        ({"type": "image", "id": "u"}, {"type": "tool_result", "tool_use_id": "u"}),
        ({"type": "tool_use", "id": "u"}, {"type": "text", "tool_use_id": "u"}),
    ],
)
def test_blocks_that_are_no_call_and_its_result_belong_to_nothing(call: dict[str, Any], answer: dict[str, Any]) -> None:
    """run-log RL-92: without an id that is a text, or of another type; blocks of other types stay."""
    given: list[dict[str, Any]] = [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [answer]},
        USER,
    ]
    kept = [
        block
        for message in normalise(given).messages
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    assert kept == [block for block in (call, answer) if not block["type"].startswith("tool")]


def test_a_message_of_another_role_is_no_result() -> None:
    """run-log RL-92: whatever id it has."""
    call = {"role": "assistant", "content": "see", "tool_calls": [{"id": "a"}]}
    other = {"role": "user", "tool_call_id": "a", "content": "hi"}
    assert normalise([call, other]).messages == ({"role": "assistant", "content": "see"}, other)
