"""One test says that ``make record`` is due; those that read recordings wait for it."""

from __future__ import annotations

import pytest
from support.migrations import golden, recordings
from support.migrations.recordings import DUE

from lastlight_state.migrations import scripts


def test_what_make_record_writes_is_up_to_date() -> None:
    """house H-69, packaging PT-23, migrations MG-16, MG-55: of SQLite, and the page about the schema."""
    files = recordings.late()
    assert not files, DUE.format(files=", ".join(files))


def test_a_recording_that_is_missing_or_differs_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """house H-69: so is that of a revision which was never recorded."""
    monkeypatch.setattr(golden, "FOLDER", recordings.ROOT / "tests" / "fixtures" / "wheels")
    late = list(recordings._late_dumps(scripts.revisions()))
    assert late == [f"tests/fixtures/wheels/sqlite/{one}.sql" for one in scripts.revisions()]


@pytest.mark.recorded
def test_a_test_that_reads_recordings_runs_where_they_are_up_to_date() -> None:
    """house H-69."""
    assert recordings.late_schema() is None


def test_a_test_that_reads_recordings_waits_where_they_are_late(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """house H-69: skipped with what is to be done."""
    monkeypatch.setattr(recordings, "late_schema", lambda: "a.sql")
    item = request.node
    item.add_marker(pytest.mark.recorded)
    with pytest.raises(pytest.skip.Exception, match=r"`make record` is due: a\.sql would be written anew"):
        recordings.wait(item)
