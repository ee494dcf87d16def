"""How many statements a call sends: on a link that is slow each of them is waited for."""

from __future__ import annotations

from support.checkpoints.steps import step, write

from lastlight_state.checkpoints import NewWrite
from lastlight_state.testing import Database, racing


def test_a_few_writes_of_a_task_are_one_statement_on_postgres(postgres_database: Database) -> None:
    """checkpoints CK-61: with the change of the thread, and without a transaction around it."""
    store = postgres_database.open()
    store.checkpoints.put("t", step(1))
    with racing(store) as race:
        store.checkpoints.put_writes("t", "step-1", "task", [write(0, "a"), write(1, "b")])
        assert len(race.statements) == 1


def test_many_writes_and_few_are_stored_alike(database: Database) -> None:
    """checkpoints CK-61: the first of a place stays, or is replaced, whatever there is beside it."""
    store = database.open()
    c = store.checkpoints
    c.put("t", step(1))
    for number in (1, 4, 5, 9):
        task = f"task-{number}"

        def writes(text: str, number: int = number) -> list[NewWrite]:
            return [write(at, f"{text} {at}") for at in range(number)]

        c.put_writes("t", "step-1", task, writes("first"))
        c.put_writes("t", "step-1", task, writes("second"))
        assert [one.content.data for one in c.get("t").writes if one.task == task] == [
            one.content.data for one in writes("first")
        ]
        c.put_writes("t", "step-1", task, writes("third"), taken="replace")
        assert [one.content.data for one in c.get("t").writes if one.task == task] == [
            one.content.data for one in writes("third")
        ]
