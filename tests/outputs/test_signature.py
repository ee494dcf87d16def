from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, create_model
from support.each import with_each

from lastlight_state.outputs.column_types import signature, signed_text
from lastlight_state.outputs.shapes import BOOKKEEPING, shape_of


class Analysis(BaseModel):
    summary: str
    severity: Literal["low", "medium", "high"]


def signed(model: Any, table: str = "analysis") -> str:
    return signature(table, (*BOOKKEEPING, *shape_of(model).columns))


def digest(model: Any) -> str:
    return shape_of(model).model_digest


def test_the_signature_is_the_hash_of_every_column_in_order() -> None:
    """outputs S-1, S-2."""
    assert signed_text("analysis", (*BOOKKEEPING, *shape_of(Analysis).columns)) == (
        "analysis|iteration:integer:1:1|node_id:text:1:1|row_created_at:timestamp:1:0|row_updated_at:timestamp:1:0"
        "|run_id:text:1:1|severity:text:0:0|summary:text:0:0"
    )
    assert signed(Analysis) == "353cc70cfe97ee5f11ef1de2489a2c53416d616583114a1bbc078e5adb0055f1"


def test_a_payload_table_has_one_column_of_json() -> None:
    """outputs S-2, P-1."""
    assert signed(list[str], "free_form") == "d5f61e7699ff1e29573662817e5d57ca16b37e47ac9694222bdcf715c9e30c60"


def test_what_no_column_shows_leaves_the_signature() -> None:
    """outputs S-3: order, enum members, constraints, defaults, optionality, descriptions."""

    class Same(BaseModel):
        severity: Literal["low"] | None = "low"
        summary: str = Field("", max_length=10, description="in short")

    assert signed(Same) == signed(Analysis)


@with_each(
    "fields",
    [
        {"summary": (str, ...)},
        {"summary": (str, ...), "severity": (str, ...), "more": (str, ...)},
        {"headline": (str, ...), "severity": (str, ...)},
        {"summary": (int, ...), "severity": (str, ...)},
    ],
    ids=["removed", "added", "renamed", "retyped"],
)
def test_what_a_column_shows_changes_the_signature(fields: Any) -> None:
    """outputs S-3."""
    assert signed(create_model("Other", **fields)) != signed(Analysis)
    assert signed(Analysis, "other") != signed(Analysis)


def test_the_digest_sees_validation_that_the_signature_does_not() -> None:
    """outputs S-4."""

    class Tighter(BaseModel):
        summary: str = Field(max_length=10)
        severity: Literal["low", "medium", "high"]

    class Fewer(BaseModel):
        summary: str
        severity: Literal["low", "medium"]

    assert len({digest(Analysis), digest(Tighter), digest(Fewer)}) == 3


def test_the_digest_does_not_see_documentation_or_order() -> None:
    """outputs S-4."""

    class Documented(BaseModel):
        """Now with a docstring."""

        severity: Literal["low", "medium", "high"] = Field(title="How bad", examples=["low"])
        summary: str = Field(description="in short")

    assert digest(Documented) == digest(Analysis)


def test_fields_named_like_words_of_documentation_are_seen() -> None:
    """outputs S-4."""
    assert digest(create_model("A", title=(str, ...))) != digest(create_model("A", description=(str, ...)))
