"""The library's own tests use the plugin that it ships, and pytest's own for tests of that plugin."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import known_faults
from support.migrations import recordings, replayed
from support.opened import name_openers
from support.rewritten import rewrite_share
from support.workflows.crew import Crew

from lastlight_state.testing import Database, FrozenClock, PostgresTemplate, SqliteTemplate
from lastlight_state.testing.server import PLACES, fastest_place

pytest_plugins = ["pytester"]

# Neither a slow machine nor unlucky draws are a failure. Each run tries new examples, wherever it runs; a failure
# prints how to repeat it.
settings.register_profile(
    "lastlight",
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.load_profile("lastlight")


known_faults.hide()

#: Coverage's trace function, where coverage is measured.
TRACER = sys.gettrace()

#: The parameters of fixtures that mean Postgres.
POSTGRES = {"postgres", "postgresql"}

#: The variants of a test that ``make quick`` leaves out.
SLOWER = {*POSTGRES, "async"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what chooses among the variants of a test; docs/contributing.md says which of them run."""
    parser.addoption("--quick", action="store_true", help="run no variant of a test on Postgres or from coroutines")
    parser.addoption("--on-a-server", action="store_true", help="run only the variants that have a Postgres server")
    parser.addoption("--every-face", action="store_true", help="run every variant of a test from coroutines, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the variants of a test that prove what another one proves, and those that an option leaves out.

    A test is called the same in each process, which an address is not.
    """
    odd = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if odd:
        raise pytest.UsageError(f"give these variants ids that stay the same: {odd}")
    left_out = set[pytest.Item]()
    if not config.getoption("every_face") and not any("[" in name for name in config.args):
        left_out.update(_proved_by_the_sync_face(items))
    if config.getoption("quick"):
        left_out.update(item for item in items if _words(item) & SLOWER)
    if config.getoption("on_a_server"):
        left_out.update(item for item in items if "async" in _words(item) or not _has_a_server(item))
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _proved_by_the_sync_face(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Return the async variants but the first of each test on SQLite: an async call is the sync one on a thread."""
    seen = set[str]()
    for item in items:
        if "async" in (words := _words(item)):
            test = item.nodeid.partition("[")[0]
            if words & POSTGRES or test in seen:
                yield item
            else:
                seen.add(test)


def _words(item: pytest.Item) -> set[str]:
    """Return the parameters of a variant that are words."""
    variant = getattr(item, "callspec", None)
    return {value for value in variant.params.values() if isinstance(value, str)} if variant else set()


def _has_a_server(item: pytest.Item) -> bool:
    names = [item.nodeid, *getattr(item, "fixturenames", []), *_words(item)]
    return any("postgres" in name for name in names)


@pytest.fixture(autouse=True)
def what_is_logged(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test with the mark ``logs`` unless it has logged these texts."""
    marks = list(request.node.iter_markers("logs"))
    if not marks:
        yield
        return
    caplog: pytest.LogCaptureFixture = request.getfixturevalue("caplog")
    yield
    logged = "\n".join(record.getMessage() for record in caplog.get_records("call"))
    for mark in marks:
        assert mark.args[0] in logged


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let tests of recordings wait for `make record`. Only tests of migrations run the revisions for each database."""
    recordings.wait(item)
    if "migrations" in item.path.parts:
        replayed.remove()
    else:
        replayed.install()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Go on measuring coverage after a test during which its trace function failed, as at the end of a stack."""
    if sys.gettrace() is not TRACER:
        sys.settrace(TRACER)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Return two for each processor: tests wait for a server, a process or a clock for half of their time."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else 2 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests without collections of garbage, after the share of this process in their rewriting."""
    rewrite_share(session.config)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep garbage collections from looking at the half million objects of what was collected, again and again."""
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Hear Ctrl-C: a shell's background job starts with SIGINT ignored, and its children would ignore it, too.

    And have it told which test leaves a connection open. Files of tests are in memory where there is room: what a call
    has brought to the disk is seen by the calls of ``fsync``, and waiting for a disk proves nothing.
    """
    name_openers()
    if (place := fastest_place(runs_programs=True)) != PLACES[-1]:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", place)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def sqlite_database(sqlite_template: SqliteTemplate, state_dir: Path, frozen_clock: FrozenClock) -> Iterator[Database]:
    """A migrated file, for what is true of SQLite alone."""
    with sqlite_template.fresh(state_dir, frozen_clock) as database:
        yield database


@pytest.fixture
def postgres_database(
    postgres_template: PostgresTemplate, state_dir: Path, frozen_clock: FrozenClock
) -> Iterator[Database]:
    """A migrated database of the test's own on Postgres, for what is true of Postgres alone."""
    with postgres_template.fresh(state_dir, frozen_clock) as database:
        yield database


@pytest.fixture
def shared_postgres(
    postgres_template: PostgresTemplate, state_dir: Path, frozen_clock: FrozenClock
) -> Iterator[Database]:
    """The database on Postgres that tests share, empty: for rows that are locked, and cheaper than one of its own."""
    with postgres_template.shared(state_dir, frozen_clock) as database:
        yield database


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """Processes for scripts to race in (a second, once)."""
    crew = Crew()
    yield crew
    crew.close()
