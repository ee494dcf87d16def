"""Forms: which schemas can be asked for, and what is told of responses that do not fit."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from typing import Any

import pytest
from support.each import with_each
from support.workflows.asking import FORM, PERSON, asked
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue, MisuseError, PayloadTooLarge
from lastlight_state.workflows.human_requests import checks
from lastlight_state.workflows.human_requests.checks import check_response, check_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def refusal(schema: Any, response: Any) -> InvalidValue:
    with pytest.raises(InvalidValue) as refused:
        check_response("response", schema, response)
    return refused.value


@with_each(
    "schema",
    [
        {},
        True,
        PERSON,
        {"$schema": DIALECT, "type": "object"},
        {"properties": {"child": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}},
        {"$id": "http://example.org/root", "$ref": "part", "$defs": {"p": {"$id": "part", "type": "string"}}},
        {"$dynamicRef": "#node", "$defs": {"n": {"$dynamicAnchor": "node", "type": "object"}}},
        {"properties": {"$schema": {"const": DIALECT}, "$ref": {"type": "string"}}},
    ],
)
def test_a_schema_that_refers_to_itself_alone_is_taken(schema: Any) -> None:
    """workflows W-90."""
    check_schema("schema", schema)


@with_each(
    "schema",
    [
        [],
        "string",
        {"type": "riddle"},
        {"minLength": -1},
        {"properties": {"a": {"pattern": "("}}},
        {"patternProperties": {"[": {}}},
        {"required": "name"},
        {"$ref": "#/x", "x": {"type": "riddle"}},
    ],
)
def test_what_is_no_schema_is_refused_with_its_path(schema: Any) -> None:
    """workflows W-90: also where only a reference leads."""
    with pytest.raises(InvalidValue, match="must be a JSON Schema") as refused:
        check_schema("schema", schema)
    assert refused.value.where.startswith("schema")


@with_each("dialect", ["http://json-schema.org/draft-07/schema#", DIALECT + "#", "https://example.org"])
def test_another_draft_is_refused_wherever_it_is_named(dialect: str) -> None:
    """workflows W-90."""
    for schema in ({"$schema": dialect}, {"$defs": {"a": {"$schema": dialect}}}):
        with pytest.raises(InvalidValue, match="2020-12"):
            check_schema("schema", schema)


@with_each(
    "reference",
    [
        "http://127.0.0.1:9/schema",
        "https://example.org/schema.json#/$defs/a",
        "file:///etc/passwd",
        DIALECT,
        "other.json",
        "#/$defs/missing",
        "#missing",
        "#/title/0",
        "#/minimum/0",
        "http://[broken",
    ],
)
def test_a_reference_out_of_the_schema_is_refused_and_never_fetched(
    reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-90."""
    calls: list[Any] = []
    monkeypatch.setattr(socket.socket, "connect", lambda *given: calls.append(given))
    for schema in (
        {"$ref": reference, "title": "x", "minimum": 1},
        {"properties": {"a": {"items": {"$dynamicRef": reference}}}, "title": "x", "minimum": 1},
        {"$ref": "#/x", "x": {"$ref": reference}, "title": "x", "minimum": 1},
        {"$id": "http://example.org/root", "$ref": reference, "title": "x", "minimum": 1},
    ):
        with pytest.raises(InvalidValue):
            check_schema("schema", schema)
    assert not calls


@with_each(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_schema_that_leads_back_to_itself_is_refused(schema: Any) -> None:
    """workflows W-90."""
    with pytest.raises(InvalidValue, match="without end"):
        check_schema("schema", schema)


def test_a_schema_that_is_too_deep_to_be_checked_is_refused() -> None:
    """workflows W-90."""
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"not": schema}
    with pytest.raises(InvalidValue, match="nested less deeply"):
        check_schema("schema", schema)


@with_each(
    ("schema", "response", "problem"),
    [
        ({"type": ["integer", "null"]}, "x", ("response", "not of type integer or null")),
        ({"const": 1}, True, ("response", "does not satisfy const: 1")),
        ({"enum": ["a"]}, "b", ("response", "does not satisfy enum")),
        (False, 1, ("response", "not permitted")),
        ({"items": {"maximum": 3}}, [1, 4], ("response[1]", "does not satisfy maximum: 3")),
        ({"additionalProperties": False}, {"a": 1}, ("response", "does not satisfy additionalProperties: false")),
        ({"uniqueItems": True}, [1, 1], ("response", "does not satisfy uniqueItems: true")),
        ({"oneOf": [{}, {}]}, 1, ("response", "does not satisfy oneOf")),
        ({"properties": {"a": {"required": ["b"]}}}, {"a": {}}, ("response.a.b", "missing")),
        ({"required": ["k" * 81]}, {}, (f"response.{'k' * 80}", "missing")),
        ({"additionalProperties": {"type": "null"}}, {"k" * 81: 1}, (f"response.{'k' * 80}", "not of type null")),
    ],
)
def test_a_problem_is_told_by_path_and_rule(schema: Any, response: Any, problem: tuple[str, str]) -> None:
    """workflows W-91."""
    error = refusal(schema, response)
    assert error.details["problems"] == (problem,)
    assert (error.where, error.problem) == problem


def test_nothing_of_the_response_is_told_but_its_paths() -> None:
    """workflows W-120: no error carries payload text."""
    schema = {"properties": {"a": {"enum": ["x"]}, "b": {"pattern": "^x$"}, "c": {"not": {}}, "d": {"maxLength": 1}}}
    error = refusal(schema, dict.fromkeys("abcd", "secret"))
    assert len(error.details["problems"]) == 4
    assert "secret" not in str(error)
    assert "secret" not in repr(error.details)


def test_problems_are_bounded_in_number_and_size() -> None:
    """workflows W-91."""
    assert len(refusal({"items": {"type": "string"}}, list(range(1_000))).details["problems"]) == 20
    assert len(refusal({"required": [f"m{index}" for index in range(1_000)]}, {}).details["problems"]) == 20
    long = "k" * 5_000
    deep = {"properties": {long: {"properties": {long: {"properties": {long: {"pattern": "x" * 5_000}}}}}}}
    assert len(str(refusal(deep, {long: {long: {long: ""}}}))) < 600
    assert len(str(refusal({"required": [long]}, {}))) < 600


def test_a_check_ends_after_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """workflows W-90, W-91: schemas that double with each reference, and long lists of unequal things."""
    rows = {"items": {"properties": {key: {"type": "string"} for key in "abc"}, "required": ["a"]}}
    check_response("response", rows, [dict.fromkeys("abc", "x")] * 2_000)
    check_response("response", {"uniqueItems": True}, list(range(800)))
    wide = {f"k{index}": index for index in range(500)}
    check_response("response", {"properties": {key: {"type": "integer"} for key in wide}}, wide)
    monkeypatch.setattr(checks, "MOST_STEPS", 5_000)
    doubling = {f"a{index}": {"allOf": [{"$ref": f"#/$defs/a{index + 1}"}] * 2} for index in range(40)}
    with pytest.raises(InvalidValue, match="steps"):
        check_schema("schema", {"$ref": "#/$defs/a0", "$defs": {**doubling, "a40": {}}})
    assert "steps" in refusal({"uniqueItems": True}, [{"a": index} for index in range(1_000)]).problem
    assert "steps" in refusal(rows, [dict.fromkeys("abc", "x")] * 2_000).problem
    several: Any = {"patternProperties": {f"^a{index}": {} for index in range(20)}}
    check_response("response", several, dict.fromkeys("abc", 1))
    assert "steps" in refusal(several, wide).problem
    monkeypatch.setattr(checks, "MOST_STEPS", 1)
    check_response("response", {"type": "string"}, "x")
    assert "steps" in refusal({"type": "string", "minLength": 1}, "x").problem


@with_each("response", [7, None, True, "text"])
def test_rules_for_lists_and_objects_say_nothing_of_other_values(response: Any) -> None:
    """workflows W-91."""
    check_response("response", {"uniqueItems": True, "patternProperties": {"^a": False}}, response)


def test_a_response_of_any_depth_is_followed() -> None:
    """workflows W-91: as deep as JSON is stored."""
    tree = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}}
    response: Any = 1
    for _ in range(31):
        response = {"n": response}
    assert refusal(tree, response).where == "response" + ".n" * 31


def test_schemas_and_responses_are_bounded_in_depth_and_size(state_store: StateStore) -> None:
    """workflows W-3."""
    run = started(state_store)
    deep: Any = {}
    for _ in range(32):
        deep = {"not": deep}
    wide = {"properties": {f"property-{index}": {"type": "string"} for index in range(2_000)}}
    assert len(json.dumps(wide)) > 65_536
    with pytest.raises(InvalidValue, match="nested deeper"):
        state_store.workflows.human_requests.create(run.id, replace(FORM, schema=deep))
    with pytest.raises(PayloadTooLarge):
        state_store.workflows.human_requests.create(run.id, replace(FORM, schema=wide))
    request = state_store.workflows.human_requests.create(run.id, FORM)
    with pytest.raises(PayloadTooLarge):
        state_store.workflows.human_requests.answer(request.id, {"name": "x" * 65_536})


def test_a_schema_comes_back_as_it_was_given(store: StateStore) -> None:
    """workflows W-90: equal on both databases, its dialect named or not."""
    schema = {"$schema": DIALECT, **PERSON, "default": {"name": "é", "more": [1, 2.5, None, True]}}
    request = asked(store, replace(FORM, schema=schema))
    assert store.workflows.human_requests.get(request.id).schema == schema
    assert store.workflows.human_requests.answer(request.id, {"name": "bo"}).request.response == {"name": "bo"}


def test_an_adopted_schema_that_cannot_be_used_is_no_crash(store: StateStore, raw: Raw) -> None:
    """workflows W-91: rows of another program."""
    for broken in ({"$ref": "http://127.0.0.1:9/x"}, {"type": "riddle"}, {"pattern": "("}, {"$ref": "#"}):
        request = asked(store, FORM)
        raw("UPDATE human_requests SET schema = ? WHERE id = ?", json.dumps(broken), request.id)
        with pytest.raises(InvalidValue, match="cannot be used"):
            store.workflows.human_requests.answer(request.id, "x")
    request = asked(store, FORM)
    raw("UPDATE human_requests SET schema = NULL WHERE id = ?", request.id)
    assert store.workflows.human_requests.answer(request.id, ["anything"]).request.status == "answered"


@pytest.mark.parametrize("absent", ["jsonschema", "referencing.jsonschema"])
def test_a_form_without_the_extra_says_what_to_install(
    state_store: StateStore, monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    """workflows W-90: the other kinds do without."""
    request = asked(state_store, FORM)
    run = started(state_store)
    monkeypatch.setitem(sys.modules, absent, None)
    for attempt in (
        lambda: state_store.workflows.human_requests.create(run.id, FORM),
        lambda: state_store.workflows.human_requests.answer(request.id, {"name": "bo"}),
    ):
        with pytest.raises(MisuseError, match=r"lastlight-state\[forms\]") as missing:
            attempt()
        assert missing.value.details["extra"] == "forms"
    other = asked(state_store)
    assert state_store.workflows.human_requests.answer(other.id, "bo").request.status == "answered"


def test_the_libraries_of_forms_are_loaded_by_the_first_form_alone() -> None:
    """house H-4: an optional library is imported inside the one module that owns it."""
    assert not {"jsonschema", "referencing"} & set(vars(checks))


@with_each("schema", [{"pattern": "a{99999999999}"}, {"patternProperties": {"a{99999999999}": {}}}])
def test_a_pattern_with_too_many_repetitions_is_an_invalid_value(schema: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="repetition"):
        checks.check_schema("question.schema", schema)
    with pytest.raises(InvalidValue, match="cannot be used: OverflowError"):
        checks.check_response("response", schema, {"a": 1} if "patternProperties" in schema else "a")
