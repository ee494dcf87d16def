from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict
from uuid import UUID

import pytest
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    InstanceOf,
    Json,
    NaiveDatetime,
    RootModel,
    SecretStr,
    create_model,
)
from support.each import with_each
from typing_extensions import TypeAliasType

from lastlight_state.errors import InvalidValue
from lastlight_state.outputs.column_types import token_of
from lastlight_state.outputs.shapes import adapter_of, field_descriptions, schema_text, shape_of

Name = NewType("Name", str)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    ONE = 1


class Mixed(Enum):
    A = "a"
    B = 1


class Pair(TypedDict):
    left: int


class Inner(BaseModel):
    x: int


class Opaque:
    """A type that pydantic knows nothing of."""


@with_each(
    ("annotation", "token"),
    [
        (str, "text"),
        (Annotated[str, Field(max_length=3)], "text"),
        (Name, "text"),
        (TypeAliasType("Alias", int), "integer"),
        (Optional[Annotated[str, Field(min_length=1)]], "text"),  # noqa: UP045 - both spellings are used
        (Colour, "text"),
        (Literal["a", "b"], "text"),
        (UUID, "text"),
        (HttpUrl, "text"),
        (Path, "text"),
        (date, "text"),
        (time, "text"),
        (timedelta, "text"),
        (NaiveDatetime, "text"),
        (int, "integer"),
        (Level, "integer"),
        (Literal[1, 2], "integer"),
        (float, "real"),
        (int | float, "real"),
        (bool, "boolean"),
        (bool | None, "boolean"),
        (Literal[True], "boolean"),
        (Decimal, "decimal"),
        (datetime, "timestamp"),
        (AwareDatetime, "timestamp"),
        (list[int], "json"),
        (tuple[int, str], "json"),
        (tuple[int, None], "json"),
        (dict[str, None], "json"),
        (dict[str, int], "json"),
        (Inner, "json"),
        (Pair, "json"),
        (int | str, "json"),
        (Mixed, "json"),
        (Opaque, "json"),
        (Literal["a", 1], "json"),
        (Literal[True, 2], "json"),
        (Enum("Nothing", {"NONE": None}), "json"),
        (Any, "json"),
        (None, "json"),
    ],
)
def test_each_type_has_its_token(annotation: Any, token: str) -> None:
    """outputs T-6."""
    assert token_of(annotation) == token


@with_each(
    "annotation",
    [bytes, SecretStr, list[bytes], dict[str, SecretStr], Callable[[], int], Json[int], list[Json[int]]],
    ids=str,
)
def test_what_cannot_be_stored_is_refused_by_field(annotation: Any) -> None:
    """outputs T-4."""
    with pytest.raises(InvalidValue) as refusal:
        shape_of(create_model("M", fine=(int, ...), wrong=(annotation, ...)))
    assert refusal.value.where == "wrong"


def test_models_without_fixed_columns_are_refused() -> None:
    """outputs T-4."""

    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        x: int

    class Empty(BaseModel):
        pass

    class Hidden(BaseModel):
        x: int = Field(exclude=True)

    wide: Any = create_model("Wide", **{f"f{i}": (int, ...) for i in range(201)})  # type: ignore[call-overload]
    for model in (Open, Empty, Hidden, wide):
        with pytest.raises(InvalidValue):
            shape_of(model)
    widest: Any = create_model("Widest", **{f"f{i}": (int, ...) for i in range(200)})  # type: ignore[call-overload]
    assert len(shape_of(widest).columns) == 200


class Odd:
    """An object that answers no question."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@with_each(
    "model",
    [
        list[Opaque],
        list[InstanceOf[Opaque]],
        create_model("M", it=(Opaque, ...), __config__=ConfigDict(arbitrary_types_allowed=True)),
        create_model("M", it=(list[InstanceOf[Opaque]], ...)),
    ],
    ids=["payload of a stranger", "payload without a schema", "field of a stranger", "field without a schema"],
)
def test_a_type_without_a_json_schema_is_refused_by_name(model: Any) -> None:
    """outputs T-4."""
    with pytest.raises(InvalidValue, match="no JSON Schema") as refusal:
        shape_of(model)
    assert refusal.value.where == ("it" if isinstance(model, type) and issubclass(model, BaseModel) else model.__name__)


@with_each("model", [Odd(), "str", 3, {"type": "int"}], ids=["odd", "name", "number", "core schema"])
def test_what_is_no_type_is_refused(model: Any) -> None:
    """outputs T-4."""
    with pytest.raises(InvalidValue, match="must be a model or another type"):
        adapter_of(model)


def test_two_fields_with_one_column_are_refused() -> None:
    """outputs D-6."""
    with pytest.raises(InvalidValue, match="fooBar") as refusal:
        shape_of(create_model("M", fooBar=(int, ...), foo_bar=(int, ...)))
    assert refusal.value.where == "foo_bar"


@with_each(
    "model",
    [
        create_model("M", payload=(dict[str, int], ...)),
        RootModel[list[int]],
        list[str],
        dict[str, Any],
        int | None,
        Literal["a"],
    ],
    ids=str,
)
def test_one_payload_makes_a_payload_table(model: Any) -> None:
    """outputs P-1."""
    shape = shape_of(model)
    assert (shape.kind, [column.name for column in shape.columns]) == ("payload", ["payload"])


def test_fields_are_described_in_their_order() -> None:
    """outputs D-12."""

    class Described(BaseModel):
        score: int = Field(description="how good")
        level: Literal["low", "high"] = "low"
        either: int | str

    facts = field_descriptions(shape_of(Described))
    assert [(one["name"], one["type"], one["required"]) for one in facts] == [
        ("score", "integer", True),
        ("level", "string", False),
        ("either", "unknown", True),
    ]
    assert facts[0]["description"] == "how good"
    assert (facts[1]["enum"], facts[1]["default"]) == (("low", "high"), "low")
    assert facts[2]["warning"]


def test_what_stands_behind_a_reference_is_described() -> None:
    """outputs D-12: words of an enum, the type beside None, and the fields of a model that holds itself."""

    class Tree(BaseModel):
        colour: Colour | None = None
        word: Literal["only"] = "only"
        inner: Inner
        children: list[Tree] = []

    facts = field_descriptions(shape_of(Tree))
    assert [(one["name"], one["type"], one["enum"]) for one in facts] == [
        ("colour", "string", ("red",)),
        ("word", "string", ("only",)),
        ("inner", "object", None),
        ("children", "array", None),
    ]
    assert not [one for one in facts if one["warning"]]


@with_each(
    "field",
    [
        (str, "\ud800"),
        (str, "a\0b"),
        (str, Field(description="\ud800")),
        (str, Field(description="a\0b")),
        (int, Field(le=2**70)),
    ],
    ids=["surrogate", "NUL", "described with a surrogate", "described with NUL", "a very large bound"],
)
def test_a_schema_that_the_registry_cannot_hold_is_refused(field: Any) -> None:
    """outputs T-4: on both databases, before either sees it."""
    with pytest.raises(InvalidValue) as refusal:
        shape_of(create_model("M", it=field))
    assert refusal.value.where.startswith("M.properties.it")


def test_a_default_set_has_one_order() -> None:
    """outputs D-12, S-4: whatever order it has in this process."""
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)
    schemas = [shape_of(create_model("M", it=(set[int], default))).json_schema for default in (one, other)]
    assert schema_text(schemas[0]) == schema_text(schemas[1])


_SHOWN = """
from support.outputs.shapes import Analysis
from lastlight_state.outputs.shapes import schema_text, shape_of
print(schema_text(shape_of(Analysis).json_schema), end="")
"""


@pytest.mark.slow
def test_the_prompt_schema_is_one_text_in_every_process() -> None:
    """outputs D-12: the caller's fields and no bookkeeping."""
    from support.outputs.shapes import Analysis

    here = schema_text(shape_of(Analysis).json_schema)
    tests = Path(__file__).parents[1]
    there = subprocess.run([sys.executable, "-c", _SHOWN], cwd=tests, capture_output=True, text=True, check=True).stdout
    assert here == there
    assert list(json.loads(here)["properties"]) == ["summary", "severity"]
