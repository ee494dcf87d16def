"""The public models in a caller's own sessions: what they read, and what they refuse."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session, raiseload, selectinload
from support.callers import engine_on
from support.each import with_each
from support.filled_store import scene

from lastlight_state import StateStore, models
from lastlight_state.conversations.models import ExchangeInboxModel
from lastlight_state.db.rows.statements import Statement
from lastlight_state.db.schema.base import Base, table_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import MisuseError
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.models.mapped import Deed, calls_of
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger, Usage

MODELS: list[type[Base]] = [getattr(models, name) for name in models.__all__]
RELATIONS = [(model, name) for model in MODELS for name in sa.inspect(model).relationships.keys()]  # noqa: SIM118
STUB = Path(str(models.__file__)).with_suffix(".pyi")
#: Relationships of which the scene has no pair of rows.
WITHOUT_ROWS = {
    ("BranchModel", "forks"),
    ("BranchModel", "parent"),
    ("CronFireModel", "cron"),
    ("CronScheduleModel", "fires"),
    ("ExecutionModel", "tool_calls"),
    ("SessionModel", "run"),
    ("ToolCallModel", "execution"),
    ("WorkflowRunModel", "sessions"),
}
#: Mapped classes that are the library's own business.
INTERNAL = {
    "CheckpointValueModel",
    "CheckpointWriteModel",
    "CheckpointModel",
    "CheckpointThreadModel",
    "CopyProgressModel",
    "ExchangeDeliveryModel",
    "ExchangeInboxModel",
    "ExchangeMemberModel",
    "ImportLedgerModel",
    "InvocationKindModel",
    "LastlightMetaModel",
    "MaintenancePermitModel",
    "WorkflowWorkerModel",
    "MaintenanceReceiptModel",
    "OutputCacheModel",
    "OutputHistoryModel",
    "OutputTableModel",
    "RunLeaseModel",
    "RunSequenceModel",
    "SessionChangeModel",
    "SourceKindModel",
    "TombstoneModel",
    "VectorModel",
    "VectorNamespaceModel",
}


@pytest.fixture
def engine(database: Database) -> Iterator[sa.Engine]:
    """Give an engine of the caller's."""
    made = engine_on(database)
    yield made
    made.dispose()


@pytest.fixture
def filled(database: Database) -> StateStore:
    """Return a store with rows of every kind."""
    return scene(database)[0]


def test_every_model_is_public_or_named_here() -> None:
    """house H-110."""
    of_table = {table_of(mapper.class_).name: mapper.class_.__name__ for mapper in Base.registry.mappers}
    ours = {of_table[name] for name in METADATA.tables if name in of_table}
    assert ours == {*models.__all__, *INTERNAL}


def test_type_checkers_see_the_relationships_that_there_are() -> None:
    """house H-110: each with the class that it leads to, and whether it is a list."""
    stated = {
        (each.name, line.target.id): ast.unparse(line.annotation)
        for each in ast.parse(STUB.read_text("utf-8")).body
        if isinstance(each, ast.ClassDef)
        for line in each.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    assert set(stated) == {(model.__name__, name) for model, name in RELATIONS}
    for model, name in RELATIONS:
        found = sa.inspect(model).relationships[name]
        kind = found.mapper.class_.__name__
        kinds = {f"Mapped[list[{kind}]]"} if found.uselist else {f"Mapped[{kind}]", f"Mapped[{kind} | None]"}
        assert stated[model.__name__, name] in kinds


def test_a_session_reads_what_the_library_reads(filled: StateStore, engine: sa.Engine) -> None:
    """house H-111: every column of every row: times with their zone, parsed JSON, flags."""
    for model in MODELS:
        table = table_of(model)
        statement = Statement[Any](sa.select(table).order_by(*table.primary_key))
        expected = filled._scope.read(partial(Unit.rows, statement=statement))
        with Session(engine) as session:
            rows = session.scalars(sa.select(model).order_by(*table.primary_key)).all()
            attributes = {column.name: name for name, column in sa.inspect(model).columns.items()}
            found = [{name: getattr(row, attributes[name]) for name in table.columns.keys()} for row in rows]  # noqa: SIM118
        assert found == expected
        assert found, model


def test_times_have_their_zone_and_costs_are_exact(database: Database, engine: sa.Engine) -> None:
    """house H-111."""
    store = database.open()
    run = store.workflows.runs.create("ship", trigger=Trigger("t"), phase="p", context={"a": [1.5]})
    execution = store.workflows.executions.start("ship:plan", run_id=run.id)
    store.workflows.executions.finish(execution.id, "succeeded", usage=Usage(cost_usd=Decimal("0.1000000001")))
    with Session(engine) as session:
        loaded = session.scalars(
            sa.select(models.WorkflowRunModel).options(selectinload(models.WorkflowRunModel.executions))
        ).one()
        assert (loaded.started_at, loaded.started_at.tzinfo, loaded.context) == (run.started_at, UTC, {"a": [1.5]})
        assert loaded.executions[0].cost == Decimal("0.1000000001")


@with_each(("model", "name"), RELATIONS, ids=[f"{model.__name__}.{name}" for model, name in RELATIONS])
def test_relationships_are_only_read(model: type[Base], name: str) -> None:
    """house H-112."""
    found = sa.inspect(model).relationships[name]
    assert (found.viewonly, found.lazy) == (True, "raise")


def test_every_relationship_can_be_loaded_and_none_loads_by_accident(filled: StateStore, engine: sa.Engine) -> None:
    """house H-112: a relationship that is not asked for is an error."""
    empty = []
    for model, name in RELATIONS:
        asked = getattr(model, name)
        with Session(engine) as session:
            if not any(getattr(row, name) for row in session.scalars(sa.select(model).options(selectinload(asked)))):
                empty.append((model.__name__, name))
            session.expunge_all()
            for row in session.scalars(sa.select(model).limit(1)):
                with pytest.raises(InvalidRequestError, match="lazy='raise'"):
                    getattr(row, name)
            session.scalars(sa.select(model).options(raiseload("*"))).all()
    assert set(empty) == WITHOUT_ROWS


def test_lists_have_the_order_of_their_rows(filled: StateStore, engine: sa.Engine) -> None:
    """house H-112."""
    with Session(engine) as session:
        run = session.get(
            models.WorkflowRunModel,
            "home",
            options=[
                selectinload(models.WorkflowRunModel.events).selectinload(models.RunEventModel.run),
                selectinload(models.WorkflowRunModel.children).joinedload(models.WorkflowRunModel.parent),
            ],
        )
        assert run is not None
        assert [event.seq for event in run.events] == sorted(event.seq for event in run.events)
        assert all(event.run is run for event in run.events)
        assert [child.id for child in run.children] == ["run-0", "run-1", "run-2"]
        talk = session.get(models.SessionModel, "talk-0", options=[selectinload(models.SessionModel.messages)])
        assert talk is not None
        assert [message.id for message in talk.messages] == ["msg-0", "msg-1", "msg-2"]


def test_rows_are_named_by_key_status_and_name_and_by_nothing_personal(filled: StateStore, engine: sa.Engine) -> None:
    """house H-113: and a repr reads nothing, also of an object that has expired."""
    with Session(engine) as session:
        run = session.get(models.WorkflowRunModel, "home")
        assert repr(run) == "WorkflowRunModel(id='home', workflow_name='home', status='running')"
        chat = session.get(models.MessagingSessionModel, "ms-0")
        assert repr(chat) == "MessagingSessionModel(id='ms-0')"
        session.expire_all()
        assert repr(run) == "WorkflowRunModel(id='home')"
        inbox = session.scalars(sa.select(ExchangeInboxModel)).first()
        assert repr(inbox) == "ExchangeInboxModel()"
    assert repr(models.WorkflowRunModel(id="new")) == "WorkflowRunModel(id='new')"


def _status(session: Session) -> None:
    run = session.get_one(models.WorkflowRunModel, "home")
    run.status = "succeeded"


def _removed(session: Session) -> None:
    session.delete(session.get_one(models.WorkflowRunModel, "home"))


def _event(session: Session) -> None:
    session.add(models.RunEventModel(run_id="home", seq=99, type="t"))


@pytest.mark.parametrize(
    ("deed", "problem"),
    [
        (
            _status,
            r"change status of WorkflowRunModel\(id='home', .*\): use .* or store.workflows.runs.finish or ",
        ),
        (_removed, r"remove WorkflowRunModel\(id='home'.*\): use store.maintenance.prune.run$"),
        (_event, r"add RunEventModel\(run_id='home', seq=99\): use store.journal.events.append$"),
    ],
)
def test_a_session_that_would_write_is_told_which_call_does(
    deed: Callable[[Session], None], problem: str, filled: StateStore, engine: sa.Engine
) -> None:
    """house H-114: and nothing is written, of what the session wrote before neither."""
    before = filled.workflows.runs.get("home")
    runs = table_of(models.WorkflowRunModel)

    def write() -> None:
        with Session(engine) as session, session.begin():
            session.execute(sa.update(runs).where(runs.c.id == "home").values(trace_id="of the session"))
            deed(session)

    with pytest.raises(MisuseError, match=problem):
        write()
    assert filled.workflows.runs.get("home") == before


def test_what_a_session_only_read_is_no_write(filled: StateStore, engine: sa.Engine) -> None:
    """house H-114: a value that is set to what it is changes nothing, and statements on tables are the caller's own."""
    with Session(engine) as session:
        run = session.get_one(models.WorkflowRunModel, "home")
        run.status = run.status
        session.flush()
        table = table_of(models.WorkflowRunModel)
        session.execute(sa.update(table).where(table.c.id == "nobody").values(trace_id="t"))
        session.commit()


def test_a_statement_on_a_model_meets_the_guards_of_the_database(filled: StateStore, engine: sa.Engine) -> None:
    """house H-114: as one on its table does, and what they permit is the caller's own."""
    events = filled.journal.events.list("home").items
    for statement in (sa.update(models.RunEventModel).values(type="other"), sa.delete(models.RunEventModel)):
        with Session(engine) as session, pytest.raises(sa.exc.DBAPIError, match="run_events"):
            session.execute(statement)
    assert filled.journal.events.list("home").items == events
    with Session(engine) as session, session.begin():
        session.execute(sa.update(models.WorkflowRunModel).values(trace_id="theirs"))
    assert filled.workflows.runs.get("home").trace_id == "theirs"


@pytest.mark.slow
def test_loading_the_models_adds_no_listener_that_others_meet(tmp_path: Path) -> None:
    """house H-114: not to sessions or engines of the host."""
    program = (
        "from sqlalchemy import create_engine; from sqlalchemy.orm import Session\n"
        "def heard():\n"
        "    engine = create_engine('sqlite://')\n"
        "    all = Session(engine), engine, engine.pool, engine.dialect\n"
        "    return [n for one in all for n in one.dispatch._event_names if getattr(one.dispatch, n)]\n"
        "before = heard()\n"
        "from lastlight_state import models\n"
        "models.WorkflowRunModel.executions\n"
        "assert heard() == before, heard()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_every_call_that_a_refusal_names_is_there(sqlite_database: Database) -> None:
    """house H-114."""
    store = sqlite_database.open()
    for model in MODELS:
        assert set(calls_of(model)) == set(get_args(Deed))
        for path in (path for paths in calls_of(model).values() for path in paths):
            found: Any = store
            for name in path.split("."):
                found = getattr(found, name)
            assert callable(found)


@pytest.mark.slow
def test_a_store_loads_no_public_model(tmp_path: Path) -> None:
    """house H-110: relationships and refusals come with the first model that is asked for."""
    program = (
        "import sys; from lastlight_state import StateStore, models\n"
        "with StateStore.open('a.db') as store: store.workflows.runs.list()\n"
        "assert 'lastlight_state.models.mapped' not in sys.modules\n"
        "models.WorkflowRunModel.executions\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
