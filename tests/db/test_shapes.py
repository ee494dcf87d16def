"""What is kept of statements that are made for the shape of a call's arguments."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from itertools import count, islice
from pkgutil import walk_packages
from typing import Any

import pytest
from support.memory import assert_left_bytes_below

import lastlight_state
from lastlight_state import StateStore
from lastlight_state.checkpoints import CheckpointSummary, statements as checkpoints
from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.shapes import SHAPES, Shapes
from lastlight_state.db.rows.statements import Family
from lastlight_state.workflows.runs import statements as runs

MIB = 2**20
#: Kept for each product, folder of revisions, function or class of the library, or set of its variables.
FEW = {
    "backends.known_faults._log_once",
    "cli.commands.demo.agent.segments",
    "db.schema.base._repr_attributes",
    "db.schema.declarations.limits_of",
    "migrations.drift._listed_entries",
    "migrations.mending._made_by_revisions",
    "migrations.outlines._outline_of",
    "settings._warn_of",
    "telemetry._method_facts",
    "workflows.shared.presenting._engine_writes",
}
WORDS = ["queued", "running", "paused", "succeeded", "failed", "cancelled"]


def constants() -> Iterator[Any]:
    """Every list, family and filtered statement of the library."""
    seen = set()
    for module in walk_packages(lastlight_state.__path__, "lastlight_state."):
        for found in vars(import_module(module.name)).values():
            for one in found.values() if isinstance(found, dict) else (found,):
                if isinstance(one, Listing | Family | Filtered) and id(one) not in seen:
                    seen.add(id(one))
                    yield one


def ask(one: Listing, draw: random.Random, store: StateStore) -> None:
    """Compile a page of a list for arguments drawn at random."""
    chosen: dict[str, Any] = {name: {} for name in [*one._filters, *one._either] if draw.random() < 0.4}
    for name in one._spread:
        if draw.random() < 0.5:
            words = draw.sample(WORDS, draw.randint(1, len(WORDS)))
            chosen[name] = words if name in one._worded else [f"v{i}" for i in range(draw.randint(1, one._most))]
    for name in one._groups:
        if draw.random() < 0.5:
            chosen[name] = [{} for _ in range(draw.randint(1, one._most))]
    limit = draw.randint(1, 200)
    one.statement(chosen, paged=draw.random() < 0.5, limit=limit).on(store.backend)


@pytest.mark.parametrize(("asked", "most"), [(80, MIB // 4), pytest.param(10_000, 2 * MIB, marks=pytest.mark.soak)])
def test_lists_that_are_asked_for_any_number_of_shapes_take_bounded_memory(
    every_backend: StateStore, monkeypatch: pytest.MonkeyPatch, asked: int, most: int
) -> None:
    """backends B-61: all lists together, whatever their callers ask for."""
    lists = [one for one in constants() if isinstance(one, Listing)]
    assert len(lists) > 60
    draw = random.Random(4)
    monkeypatch.setattr(SHAPES, "_most", most)
    for one in lists:  # what is loaded and made once
        ask(one, draw, every_backend)

    def ask_for_many() -> None:
        SHAPES.clear()
        for _ in range(asked):
            ask(draw.choice(lists), draw, every_backend)

    assert_left_bytes_below(most + MIB, ask_for_many)
    assert SHAPES.size <= most


@pytest.mark.slow
def test_statements_of_callers_take_bounded_memory(every_backend: StateStore) -> None:
    """backends B-61: a connection keeps hundreds of texts, and these may be long."""
    rows = every_backend.outputs.query.rows
    rows("SELECT 1")
    numbers = count()

    def ask_for_many() -> None:
        for number in islice(numbers, 100):
            rows(f"SELECT {number} /* {'x' * 100_000} */")

    assert_left_bytes_below(6 * MIB, ask_for_many)  # of 10 MiB that were asked with


def _unbounded() -> Iterator[str]:
    """The caches of functions that take arguments, and have no bound."""
    for module in walk_packages(lastlight_state.__path__, "lastlight_state."):
        for name, found in vars(import_module(module.name)).items():
            parameters = getattr(found, "cache_parameters", None)
            if parameters is None or found.__module__ != module.name or parameters()["maxsize"] is not None:
                continue
            if signature(found).parameters:
                yield f"{module.name.removeprefix('lastlight_state.')}.{name}"


def test_caches_without_a_bound_hold_what_the_library_or_the_process_has_few_of() -> None:
    """backends B-61: no text, type or value that a caller chooses."""
    assert set(_unbounded()) == FEW


def test_the_shape_that_was_not_used_for_the_longest_time_goes_first() -> None:
    """backends B-61."""
    kept = Shapes(10_000)
    for name in "abc":
        kept.put(name, name, 1_500)
    assert kept.get("a") == "a"
    kept.put("d", "d", 1_500)
    assert [name for name in "abcd" if kept.get(name)] == ["a", "c", "d"]
    kept.grow("d", 6_000)
    assert [name for name in "acd" if kept.get(name)] == ["d"]
    kept.put("e", "e", 20_000)
    assert (len(kept), kept.size) == (0, 0)
    kept.grow("e", 1)
    assert kept.size == 0


@pytest.mark.slow
def test_threads_share_what_is_kept(every_backend: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-61: one that uses a shape while another makes room for others."""
    monkeypatch.setattr(SHAPES, "_most", 200_000)
    lists = [one for one in constants() if isinstance(one, Listing)]
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(60):
                ask(draw.choice(lists), draw, every_backend)
        except Exception as error:  # noqa: BLE001 - whatever it is
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert SHAPES.size <= 200_000


def test_a_chain_of_a_shape_is_the_chain_that_its_function_makes(every_backend: StateStore) -> None:
    """backends B-61: on both databases, also after it was let go."""
    names = frozenset({"id", "workflow_name", "status"})
    plain: Any = runs.create
    made = plain.__wrapped__(names)
    for _ in range(2):
        kept = runs.create(names)
        for part in ("head", "tail", "whole"):
            assert (
                getattr(kept, part).on(every_backend.backend).sql == getattr(made, part).on(every_backend.backend).sql
            )
        assert runs.create(names) is kept
        SHAPES.clear()


def test_a_statement_of_a_shape_gives_rows_of_the_type_that_its_function_names() -> None:
    """house H-70."""
    statement = checkpoints.put_with_values(1)
    assert statement.row is CheckpointSummary
    assert statement.make is not None
    assert type(statement.make({})) is CheckpointSummary
