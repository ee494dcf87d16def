"""backends B-183: which versions of engines and drivers have which faults, and where that is said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.each import with_each
from support.known_faults import TABLE

from lastlight_state import StateStore
from lastlight_state.backends import known_faults
from lastlight_state.backends.known_faults import Fault, faults_of
from lastlight_state.settings import Settings
from lastlight_state.testing import Database


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table itself, which other tests do without."""
    monkeypatch.setattr(known_faults, "FAULTS", TABLE)
    known_faults._log_once.cache_clear()
    yield
    known_faults._log_once.cache_clear()


#: By product: versions, and the faults that they have.
VERSIONS: dict[str, dict[str, set[str]]] = {
    "SQLite": {
        "3.35.0": {"wal_reset", "savepoint_in_memory"},
        "3.37.1": {"wal_reset", "savepoint_in_memory"},
        "3.37.2": {"wal_reset"},
        "3.40.1": {"wal_reset"},
        "3.44.5": {"wal_reset"},
        "3.44.6": set(),
        "3.44.9": set(),
        "3.45.0": {"wal_reset"},
        "3.46.1": {"wal_reset"},
        "3.50.6": {"wal_reset"},
        "3.50.7": set(),
        "3.51.0": {"wal_reset"},
        "3.51.2": {"wal_reset"},
        "3.51.3": set(),
        "3.52.0": set(),
        "3.53.4": set(),
    },
    "PostgreSQL": {
        "14.1": {"hot_chains", "concurrent_indexes", "inplace_updates", "multibyte_overrun"},
        "14.2": {"concurrent_indexes", "inplace_updates", "multibyte_overrun"},
        "14.4": {"inplace_updates", "multibyte_overrun"},
        "14.14": {"multibyte_overrun"},
        "14.21": {"substring_regression"},
        "14.22": set(),
        "15.8 (Debian 15.8-0+deb12u1)": {"inplace_updates", "multibyte_overrun"},
        "15.9": {"multibyte_overrun"},
        "15.16": {"substring_regression"},
        "15.17": set(),
        "16.4": {"inplace_updates", "multibyte_overrun"},
        "16.13": set(),
        "17.0": {"inplace_updates", "multibyte_overrun"},
        "17.1": {"multibyte_overrun"},
        "17.8": {"substring_regression"},
        "17.9": set(),
        "18.1": {"multibyte_overrun"},
        "18.2": {"substring_regression"},
        "18.3": set(),
        "19beta1": set(),
    },
    "psycopg": {"3.2.13": set(), "3.3.0": {"adapters_at_start"}, "3.3.1": {"adapters_at_start"}, "3.3.2": set()},
    "YugabyteDB": {"2.25": set()},
}


@with_each(("product", "version"), [(product, version) for product, found in VERSIONS.items() for version in found])
def test_a_version_has_its_faults_and_no_other(product: str, version: str) -> None:
    """backends B-183: at the borders, and where a fix was brought back to an older line."""
    assert {fault.name for fault in faults_of(product, version)} == VERSIONS[product][version]


@with_each("fault", TABLE, ids=lambda fault: fault.name)
def test_a_fault_says_what_happens_what_mends_it_and_who_says_so(fault: Fault) -> None:
    """backends B-183: and the version that mends it has not got it."""
    assert fault.happens
    assert fault.source
    assert fault.mended
    for first, mended in fault.versions:
        assert fault.affects(first)
        assert not fault.affects(mended)
        assert fault.mended in fault.sentence


@pytest.fixture
def affected(database: Database, monkeypatch: pytest.MonkeyPatch) -> tuple[Database, str]:
    """A database whose engine and driver have a fault each, that nothing is done against."""
    store = database.open()
    versions = store.backend.versions()
    faults = tuple(
        Fault(product, "broken", ((version, "99.0"),), "rows can be lost", "a later one", "this test")
        for product, version in versions.items()
    )
    monkeypatch.setattr(known_faults, "FAULTS", faults)
    return database, next(iter(versions))


@pytest.mark.logs("has a known fault: rows can be lost; mended in a later one")
def test_opening_logs_each_fault_once_in_a_process(
    affected: tuple[Database, str], caplog: pytest.LogCaptureFixture
) -> None:
    """backends B-183: on both databases, for the engine and its driver."""
    database, _ = affected
    with caplog.at_level(logging.INFO, "lastlight_state.backends"):
        for _ in range(3):
            database.open()
    told = [record for record in caplog.records if "known fault" in record.message]
    assert len(told) == (1 if database.name == "sqlite" else 2)
    assert {record.levelname for record in told} == {"WARNING"}


@pytest.mark.logs("has a known fault")
def test_doctor_and_check_name_it(affected: tuple[Database, str]) -> None:
    """backends B-183, maintenance OP-15."""
    database, product = affected
    found = database.open().maintenance.doctor.examine(only=["DOC-18"]).findings
    assert [finding.severity for finding in found] == ["warning"] * len(found)
    assert found[0].subject in ("SQLite", "PostgreSQL", "psycopg")
    assert "rows can be lost; mended in a later one" in found[0].message
    said = lastlight_state("check", "--url", database.url, "--json")
    assert said.code == 0
    assert said.data["known_faults"][0].startswith(product)
    assert "known faults of this version" in lastlight_state("check", "--url", database.url).out


def test_what_the_library_avoids_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """backends B-183: of SQLite's lost commits, and only where there is a write-ahead log."""
    fault = Fault("SQLite", "wal", (("3.0", "99.0"),), "rows can be lost", "99.0", "this test", "all is done")
    monkeypatch.setattr("lastlight_state.backends.sqlite.WAL_RESET", fault)
    monkeypatch.setattr(known_faults, "FAULTS", (fault,))
    with caplog.at_level(logging.INFO, "lastlight_state.backends"):
        with StateStore.open(tmp_path / "a.db", settings=Settings(journal_mode="delete")) as store:
            assert store.maintenance.doctor.examine(only=["DOC-18"]).findings == ()
        with StateStore.open("sqlite:///:memory:") as store:
            assert store.backend.known_faults() == []
        assert not caplog.records
        with StateStore.open(tmp_path / "b.db") as store:
            [found] = store.maintenance.doctor.examine(only=["DOC-18"]).findings
    assert (found.severity, "against it: all is done" in found.message) == ("info", True)
    assert [record.levelname for record in caplog.records] == ["INFO"]
