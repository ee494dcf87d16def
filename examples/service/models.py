"""The service's own table, beside those of the library."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from lastlight_state.models import WorkflowRunModel


class Base(DeclarativeBase):
    """The service's own tables."""


class Shipment(Base):
    """A pull request that is to be merged, and the run that does it."""

    __tablename__ = "shipments"

    pull: Mapped[str] = mapped_column(primary_key=True)
    repo: Mapped[str]
    state: Mapped[str] = mapped_column(default="open")
    run_id: Mapped[str] = mapped_column(ForeignKey(WorkflowRunModel.id, ondelete="CASCADE"), index=True)
    run: Mapped[WorkflowRunModel] = relationship(WorkflowRunModel)
