"""What a column says of its limit, and that the checks of arguments read it there."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column
from support.each import with_each

import lastlight_state
from lastlight_state.conversations.arguments import NewSession
from lastlight_state.conversations.tables import SESSIONS as TALKS
from lastlight_state.db.schema.base import Base
from lastlight_state.db.schema.columns import Text
from lastlight_state.db.schema.declarations import (
    ColumnLimits,
    Setting,
    UndeclaredColumn,
    describe_table,
    json_column,
    limits_of,
    text_column,
)
from lastlight_state.errors import StateError
from lastlight_state.journal.models import EVENTS
from lastlight_state.messaging.models import SESSIONS as CHATS
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.outputs.models import INPUTS
from lastlight_state.receipts.models import RECEIPTS
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.models import SCHEDULES
from lastlight_state.settings import Limits
from lastlight_state.workflows.arguments import Trigger
from lastlight_state.workflows.tables import OVERRIDES, RUNS


class Trial(Base):
    """Models that are tried, apart from those of the schema."""

    __abstract__ = True
    metadata = sa.MetaData()


def test_a_column_of_text_or_json_that_does_not_say_its_limit_does_not_load() -> None:
    """house H-93: neither by our functions, nor by a plain column."""
    makers: tuple[Any, ...] = (text_column, json_column)
    for make in makers:
        with pytest.raises(TypeError, match="most"):
            make(personal=False)
    with pytest.raises(UndeclaredColumn, match=r"endless\.said must say how many bytes"):

        class Endless(Trial):
            __tablename__ = "endless"
            __table_args__ = describe_table("what is tried", kept="for a test")
            id: Mapped[int] = mapped_column(primary_key=True)
            said: Mapped[str] = mapped_column(Text, info={"personal": False})


def test_a_limit_that_is_a_setting_names_one() -> None:
    """house H-93."""
    named = {column.info.get("most") for table in METADATA.sorted_tables for column in table.columns}
    settings = {most.name for most in named if isinstance(most, Setting)}
    assert settings == {"context", "scratch", "phase_history", "output_text", "message_content"}
    assert settings <= set(Limits.model_fields)


def test_what_the_checks_read_is_the_limit_of_a_column() -> None:
    """house H-94: a name that is misspelt would be an error in the first call."""
    read = 0
    for module in _modules():
        known = {name: found for name, found in vars(module).items() if isinstance(found, ColumnLimits)}
        for node in ast.walk(ast.parse(inspect.getsource(module))) if known else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
                assert isinstance(getattr(known[node.value.id], node.attr), int), f"{module.__name__}: {node.attr}"
                read += 1
    assert read > 150


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(lastlight_state.__path__, "lastlight_state."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


_CRON = CronSpec("* * * * *", "deploy")
_TALK = NewSession(name="plans")


@with_each(
    ("table", "column", "call"),
    [
        (RUNS, "workflow_name", lambda store: store.workflows.runs.create("build", trigger=Trigger("t"), phase="p")),
        (OVERRIDES, "reason", lambda store: store.workflows.overrides.put("w", enabled=False, by="ana", reason="late")),
        (EVENTS, "type", lambda store: store.journal.events.append("run", "step.done")),
        (INPUTS, "payload", lambda store: store.outputs.inputs.ensure("run", {"branch": "main"})),
        (SCHEDULES, "target", lambda store: store.schedules.crons.put("nightly", _CRON)),
        (CHATS, "title", lambda store: store.messaging.sessions.update("chat", version=0, title="Plans")),
        (CHATS, "metadata", lambda store: store.messaging.sessions.update("chat", version=0, metadata={"topic": 1})),
        (TALKS, "name", lambda store: store.conversations.sessions.create(_TALK)),
        (TALKS, "node_metadata", lambda store: store.conversations.sessions.merge_metadata("talk", {"topic": 1})),
        (RECEIPTS, "policy", lambda store: store.receipts.begin("prune", owner="ana", policy={"age": 30})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_call_refuses_what_is_longer_than_its_column_says(
    every_backend: Any, table: sa.Table, column: str, call: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """house H-94: the limit stands in the declaration, and nowhere else."""
    assert limits_of(table) is limits_of(table)
    monkeypatch.setattr(limits_of(table), column, 3)
    with pytest.raises(StateError) as refused:
        call(every_backend)
    assert refused.value.limit == 3  # type: ignore[attr-defined]
