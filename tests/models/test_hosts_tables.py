"""Tables of a caller's own that refer to ours: made, migrated, joined and pruned beside them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload
from support.callers import engine_on

from lastlight_state import StateStore
from lastlight_state.errors import Conflict
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.models import ExecutionModel, WorkflowRunModel
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger


class Theirs(DeclarativeBase):
    """The caller's tables."""


class Order(Theirs):
    """Goes with its run."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    price: Mapped[int]
    run_id: Mapped[str] = mapped_column(sa.ForeignKey(WorkflowRunModel.id, ondelete="CASCADE"), index=True)
    run: Mapped[WorkflowRunModel] = relationship(WorkflowRunModel)


class Bill(Theirs):
    """Keeps its run."""

    __tablename__ = "bills"
    id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(sa.ForeignKey(WorkflowRunModel.id), index=True)


@pytest.fixture
def engine(fresh_database: Database) -> Iterator[sa.Engine]:
    """Give an engine of the caller's, whose tables are made beside ours."""
    made = engine_on(fresh_database)
    Theirs.metadata.create_all(made)
    yield made
    made.dispose()


def ended(store: StateStore, number: int = 0) -> str:
    run = store.workflows.runs.create("ship", trigger=Trigger(f"order-{number}"), phase="p")
    store.workflows.runs.finish(run.id, "succeeded")
    return run.id


def test_tables_that_refer_to_ours_are_made_beside_them(fresh_database: Database, engine: sa.Engine) -> None:
    """house H-115: with the foreign key, and nothing of ours is made anew."""
    [key] = sa.inspect(engine).get_foreign_keys("orders")
    assert (key["referred_table"], key["referred_columns"]) == ("workflow_runs", ["id"])
    Theirs.metadata.create_all(engine)
    store = fresh_database.open()
    with pytest.raises(sa.exc.IntegrityError), Session(engine) as session, session.begin():
        session.add(Order(id="o", price=1, run_id="nobody"))
    assert store.workflows.runs.list().items == ()


def test_callers_join_filter_and_aggregate_over_both(fresh_database: Database, engine: sa.Engine) -> None:
    """house H-115: in one transaction with the store, too."""
    store = fresh_database.open()
    with Session(engine) as session, session.begin(), store.transaction(connection=session) as tx:
        for number in (1, 2):
            run = tx.workflows.runs.create("ship", trigger=Trigger(f"t-{number}"), phase="p")
            tx.workflows.executions.start("ship:pack", run_id=run.id)
            session.add(Order(id=f"o-{number}", price=number * 10, run_id=run.id))
        session.flush()
        open_price = (
            sa.select(sa.func.sum(Order.price), sa.func.count(ExecutionModel.id))
            .join(Order.run)
            .join(WorkflowRunModel.executions)
            .where(WorkflowRunModel.status == "running")
        )
        assert session.execute(open_price).one() == (30, 2)
    with Session(engine) as session:
        orders = session.scalars(
            sa.select(Order).options(selectinload(Order.run).selectinload(WorkflowRunModel.executions))
        ).all()
        assert {order.run.executions[0].skill for order in orders} == {"ship:pack"}


def test_a_session_that_changes_a_row_of_the_caller_may_hold_one_of_ours(
    fresh_database: Database, engine: sa.Engine
) -> None:
    """house H-115: the caller's relationship writes the caller's column alone."""
    run_id = ended(fresh_database.open())
    with Session(engine) as session, session.begin():
        session.add(Order(id="o", price=1, run=session.get_one(WorkflowRunModel, run_id)))
    with Session(engine) as session:
        assert session.get_one(Order, "o").run_id == run_id


def test_a_prune_takes_rows_with_it_that_say_so(fresh_database: Database, engine: sa.Engine) -> None:
    """house H-116."""
    store = fresh_database.open()
    run_id = ended(store)
    with Session(engine) as session, session.begin():
        session.add(Order(id="o", price=1, run_id=run_id))
    fresh_database.clock.advance(seconds=2 * 86_400)
    receipt = store.maintenance.prune.run(PrunePolicy(kind="runs", keep_days=1, keep_n=0))
    assert receipt.counts["workflow_runs"] == 1
    with Session(engine) as session:
        assert session.scalars(sa.select(Order)).all() == []


def test_a_prune_is_refused_where_a_row_keeps_its_run(fresh_database: Database, engine: sa.Engine) -> None:
    """house H-116: nothing of that run is removed."""
    store = fresh_database.open()
    run_id = ended(store)
    with Session(engine) as session, session.begin():
        session.add(Bill(id="b", run_id=run_id))
    fresh_database.clock.advance(seconds=2 * 86_400)
    with pytest.raises(Conflict, match="foreign_key"):
        store.maintenance.prune.run(PrunePolicy(kind="runs", keep_days=1, keep_n=0))
    assert len(store.workflows.lookups.list_transitions(run_id).items) == 2


def test_our_tables_are_not_made_twice(fresh_database: Database, engine: sa.Engine) -> None:
    """house H-115: `create_all` on our metadata finds all of it, the view too."""
    WorkflowRunModel.metadata.create_all(engine)
    assert fresh_database.open().workflows.runs.list().items == ()
