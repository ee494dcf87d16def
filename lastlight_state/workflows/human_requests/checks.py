"""Check the arguments of `human_requests`: questions before any statement, and answers by kind of question."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue, MisuseError
from lastlight_state.keys import escape_part
from lastlight_state.lazy import load
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import NodeRef, Question
from lastlight_state.workflows.human_requests.records import HumanRequest
from lastlight_state.workflows.human_requests.statements import NewRequest
from lastlight_state.workflows.tables import REQUESTS

# Forms: JSON Schemas (draft 2020-12), checked when a form is created, and the responses that must fit them.
#
# Nothing is ever fetched: a reference must stay inside the schema. The cost of a check is bounded by the sizes and
# depths of schema and response, and by a budget of steps. The cost of one regular expression on one text is not
# bounded: whoever writes a schema is responsible for its patterns.

#: The most problems of a response that one error names.
MOST_PROBLEMS = 20
#: The most comparisons that the check of one response may take.
MOST_STEPS = 100_000
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES = ("$ref", "$dynamicRef")
_TOO_MUCH = "must take fewer steps to check: the limit is reached"
_LONGEST_PATH, _LONGEST_VALUE = 200, 100


class _TooMuch(Exception):
    """Raised when the check of a value needs more steps than permitted."""


def check_schema(where: str, schema: Any) -> None:
    """Raise `InvalidValue` for a schema that a form cannot use, `MisuseError` without the extra ``forms``."""
    _check_draft(where, schema)
    _check_references(where, schema)
    try:
        for _ in _validator(schema).iter_errors(None):  # finds references that never end
            pass
    except RecursionError:
        raise InvalidValue(where, "must not refer to itself without end") from None
    except _TooMuch:
        raise InvalidValue(where, _TOO_MUCH) from None


def check_response(where: str, schema: Any, response: Any) -> None:
    """Raise `InvalidValue` if a response does not fit the schema, with at most 20 ``problems`` (path and text)."""
    try:
        errors = islice(_validator(schema).iter_errors(response), MOST_PROBLEMS)
        problems = list(dict.fromkeys(problem for error in errors for problem in _problems(where, error)))
    except _TooMuch:
        raise InvalidValue(where, _TOO_MUCH) from None
    except _unusable() as error:  # a row that another program wrote
        raise InvalidValue(where, f"its schema cannot be used: {type(error).__name__}") from None
    if problems:
        (path, text), *more = problems[:MOST_PROBLEMS]
        told = "; ".join([text, *(f"{path}: {text}" for path, text in more)])
        raise InvalidValue(path, told, problems=tuple(problems[:MOST_PROBLEMS]))


def _libraries() -> tuple[Any, Any]:
    try:
        load("referencing.jsonschema")
        return load("jsonschema"), load("referencing")
    except ImportError:
        raise MisuseError.missing_extra("forms", what="a form") from None


def _check_draft(where: str, schema: Any) -> None:
    jsonschema, _ = _libraries()
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        path, text = next(_problems(where, error))
        raise InvalidValue(path, f"must be a JSON Schema: {text}") from None
    except RecursionError:
        raise InvalidValue(where, "must be nested less deeply") from None
    except OverflowError:  # from compiling a pattern
        raise InvalidValue(where, "must have patterns with smaller repetition counts") from None


def _check_references(where: str, schema: Any) -> None:
    """Check every reference in a schema, and the references in the subschemas to which it points.

    Check each reference once.
    """
    _, referencing = _libraries()
    make = referencing.jsonschema.DRAFT202012.create_resource
    root = make(schema)
    waiting, sound, seen = [(root, referencing.Registry().resolver_with_root(root))], {id(schema)}, set()
    while waiting:
        resource, resolver = waiting.pop()
        contents = resource.contents
        if not isinstance(contents, dict) or id(contents) in seen:
            continue
        seen.add(id(contents))
        if contents.get("$schema", _DIALECT) != _DIALECT:
            raise InvalidValue(where, f"$schema must be {_DIALECT} or missing")
        waiting += [(each, resolver.in_subresource(each)) for each in resource.subresources()]
        for reference in (contents[keyword] for keyword in _REFERENCES if keyword in contents):
            found = _resolve_reference(where, resolver, reference)
            if id(found.contents) not in sound:
                _check_draft(where, found.contents)
            sound.add(id(found.contents))
            waiting.append((make(found.contents), found.resolver))


def _resolve_reference(where: str, resolver: Any, reference: str) -> Any:
    _, referencing = _libraries()
    try:
        return resolver.lookup(reference)
    except (referencing.exceptions.Unresolvable, TypeError, ValueError):
        told = f"reference to {reference[:_LONGEST_VALUE]!r}: must refer to a place inside the schema"
        raise InvalidValue(where, told) from None


def _validator(schema: Any) -> Any:
    """Return a validator of a schema. It loads no other document and raises `_TooMuch` after `MOST_STEPS`."""
    jsonschema, referencing = _libraries()
    draft, left = jsonschema.Draft202012Validator, [MOST_STEPS]
    limited = {name: _limit_check(name, check, left) for name, check in draft.VALIDATORS.items()}
    return jsonschema.validators.extend(draft, limited)(_strip_dialect(schema), registry=referencing.Registry())


def _limit_check(keyword: str, check: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def check_within_limit(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        left[0] -= _cost(keyword, value, instance)
        if left[0] < 0:
            raise _TooMuch
        return check(validator, value, instance, schema)

    return check_within_limit


def _cost(keyword: str, value: Any, instance: Any) -> int:
    """Estimate the number of comparisons needed to check one keyword of a schema against one value."""
    many = len(value) if isinstance(value, dict | list) else 1
    if keyword == "uniqueItems" and isinstance(instance, list):
        return 1 + len(instance) ** 2 // 8
    if keyword == "patternProperties" and isinstance(instance, dict):
        return 1 + many * len(instance)
    return many


def _strip_dialect(schema: Any) -> Any:
    """Return the schema without its ``$schema`` members.

    With them, jsonschema would use validators that have no step limit.
    """
    if isinstance(schema, dict):
        return {name: _strip_dialect(part) for name, part in schema.items() if (name, part) != ("$schema", _DIALECT)}
    return [_strip_dialect(part) for part in schema] if isinstance(schema, list) else schema


def _unusable() -> tuple[type[Exception], ...]:
    """Return the exception types that validation raises when a stored schema is one that `check_schema` refuses."""
    jsonschema, referencing = _libraries()
    unresolved, unknown = referencing.exceptions.Unresolvable, jsonschema.exceptions.UnknownType
    return RecursionError, OverflowError, unresolved, unknown, re.error, TypeError, ValueError


def _problems(where: str, error: Any) -> Iterator[tuple[str, str]]:
    """Yield path and text of each problem in a validation error. The texts hold no value of the response."""
    path = where
    for key in error.absolute_path:
        path += f"[{key}]" if isinstance(key, int) else f".{str(key)[:80]}"
    path = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
    if error.validator == "required":
        for name in error.validator_value:
            if name not in error.instance:
                yield f"{path}.{name[:80]}", "missing"
        return
    yield path, _keyword_text(error.validator, error.validator_value)


def _keyword_text(keyword: str | None, value: Any) -> str:
    if keyword is None:
        return "not permitted"
    if keyword == "type":
        return f"not of type {value if isinstance(value, str) else ' or '.join(value)}"
    if isinstance(value, dict | list):
        return f"does not satisfy {keyword}"
    return f"does not satisfy {keyword}: {codec.encode_sound(value).decode()[:_LONGEST_VALUE]}"


_LIMITS = limits_of(REQUESTS)


def new_request(run_id: str, question: Question, now: datetime, *, blocks_run: bool) -> NewRequest:
    """Return the row of a new request, after checking the question and, for a form, its schema."""
    valid.argument_group("question", question, Question)
    valid.argument_group("question.node", question.node, NodeRef)
    kind = valid.word("question.kind", question.kind, words.HUMAN_KINDS)
    node_id = valid.identifier("question.node.node_id", question.node.node_id, _LIMITS.node_id)
    iteration = valid.number("question.node.iteration", question.node.iteration)
    own_id = None if question.id is None else valid.identifier("question.id", question.id, _LIMITS.id)
    return {
        "id": own_id or default_id(run_id, NodeRef(node_id, iteration)),
        "run_id": run_id,
        "node_id": node_id,
        "iteration": iteration,
        "kind": kind,
        "blocks_run": blocks_run,
        "on_expiry": valid.word("question.on_expiry", question.on_expiry, words.ON_EXPIRY),
        "requested_at": now,
        "expires_at": None if question.expires_at is None else aware_utc("question.expires_at", question.expires_at),
        "prompt": _prompt(question.prompt),
        "options": _options(kind, question.options),
        "schema": _schema(kind, question.schema),
    }


def default_id(run_id: str, node: NodeRef) -> str:
    """Return the default id of a node's request: run, node and iteration, or the SHA-256 of that if it is too long."""
    run = escape_part(valid.content("run_id", run_id, _LIMITS.response), ":")
    plain = f"human:{run}:{node.node_id}:{node.iteration}"  # a node may have colons: the run before it has none
    data = plain.encode()
    return plain if len(data) <= _LIMITS.id else hashlib.sha256(data).hexdigest()


def response(request: HumanRequest, given: Any) -> str:
    """Return the response as JSON text. Raises `InvalidValue` if it does not fit the kind of the request."""
    text = codec.encode("response", given, max_bytes=_LIMITS.response)
    check = _ANSWERS.get(request.kind)
    if check is None:
        raise InvalidValue("response", f"a request of kind {request.kind!r:.80} cannot be answered by this version")
    check(request, codec.decode(text))
    return text


def _prompt(prompt: str) -> str:
    text = valid.content("question.prompt", prompt, _LIMITS.prompt)
    if not text.strip():
        raise InvalidValue("question.prompt", "must not be blank")
    return text


def _options(kind: str, options: Any) -> str | None:
    if kind != "select":
        _refuse("options", options, kind)
        return None
    if not options:
        raise InvalidValue("question.options", "must not be empty: a select needs options")
    return codec.encode("question.options", valid.several("question.options", options), max_bytes=_LIMITS.options)


def _schema(kind: str, schema: Any) -> str | None:
    if kind != "form":
        _refuse("schema", schema, kind)
        return None
    if schema is None:
        raise InvalidValue("question.schema", "missing: a form needs a schema")
    text = codec.encode("question.schema", schema, max_bytes=_LIMITS.schema)
    check_schema("question.schema", codec.decode(text))
    return text


def _refuse(name: str, value: Any, kind: str) -> None:
    if value is not None:
        raise InvalidValue(f"question.{name}", f"must be None for a question of kind {kind}")


def _text(_: HumanRequest, given: Any) -> None:
    if not isinstance(given, str) or not given.strip():
        raise InvalidValue("response", "must be text that is not blank")


def _confirm(_: HumanRequest, given: Any) -> None:
    valid.flag("response", given)


def _select(request: HumanRequest, given: Any) -> None:
    if codec.canonical(given) not in map(codec.canonical, request.options or ()):
        raise InvalidValue("response", "must be one of the options")


def _form(request: HumanRequest, given: Any) -> None:
    if request.schema is not None:
        check_response("response", request.schema, given)


_ANSWERS: dict[str, Callable[[HumanRequest, Any], None]] = {
    "text": _text,
    "confirm": _confirm,
    "select": _select,
    "form": _form,
}
