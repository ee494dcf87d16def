"""A worker: drives the runs, and stores what it did to the service's own table in the transaction of the run."""

import os

from models import Shipment
from sqlalchemy import create_engine, event, select
from sqlalchemy.orm import Session

from lastlight_state import StateStore
from lastlight_state.worker import Job, Worker

engine = create_engine(os.environ["DATABASE_URL"])
if engine.dialect.name == "sqlite":
    event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA foreign_keys = ON"))

with StateStore.open(engine=engine) as store:
    worker = Worker(store, slots=4)

    @worker.workflow("ship")
    def ship(job: Job) -> None:
        """Plan, ask, merge."""
        plan = job.phase("plan", lambda: {"files": len(job.run.context["changed"])})
        gate = job.ask("merge", f"Merge {plan['files']} files of {job.run.repo}?", on_reject="resume")
        with job.transaction() as tx, Session(bind=tx.connection) as session:  # only while this worker has the run
            mine = session.scalars(select(Shipment).where(Shipment.run_id == job.run.id)).one()
            mine.state = "merged" if gate.status == "approved" else "dropped"
            tx.journal.events.append(job.run.id, f"shipment.{mine.state}", event_id="shipment")
            session.commit()

    worker.run()

engine.dispose()
