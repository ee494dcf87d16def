from __future__ import annotations

import click
import pytest
from support.each import with_each

from lastlight_state.cli.exits import Terminated, failure_of
from lastlight_state.errors import (
    AlreadyExists,
    BackendBusy,
    BackendUnavailable,
    CorruptData,
    InvalidValue,
    MisuseError,
    NewerSchema,
    NotFound,
    NotMigrated,
    NotSupported,
    SchemaMismatch,
    StateError,
)

EXITS: list[tuple[BaseException, int, str]] = [
    (NotFound("workflow_run", "r"), 1, "not_found"),
    (AlreadyExists("workflow_run", "r"), 1, "already_exists"),
    (CorruptData("workflow_runs", "r", "context"), 1, "corrupt_data"),
    (NotSupported("not here"), 1, "not_supported"),
    (SchemaMismatch("not ours", differences=("a",)), 1, "schema_mismatch"),
    (MisuseError("in the wrong place"), 1, "misuse"),
    (StateError("whatever"), 1, "state_error"),
    (RuntimeError("a defect"), 1, "internal"),
    (InvalidValue("limit", "too large"), 2, "invalid_value"),
    (click.BadParameter("no number"), 2, "usage"),
    (NotMigrated(found=None, head="0002_lastlight_state", command="lastlight-state migrate"), 3, "not_migrated"),
    (NewerSchema(found="0009", head="0002_lastlight_state", min_reader="0008"), 5, "newer_schema"),
    (SchemaMismatch("a copy has not ended", code="unfinished_copy"), 5, "unfinished_copy"),
    (BackendBusy("locked"), 6, "backend_busy"),
    (BackendUnavailable("gone"), 6, "backend_unavailable"),
    (MisuseError.missing_extra("postgres", what="Postgres"), 6, "misuse"),
    (PermissionError(13, "Permission denied", "/somewhere"), 6, "os_error"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (Terminated(), 143, "terminated"),
]


@with_each(("error", "exit_code", "code"), EXITS, ids=[f"{e[2]} {e[1]}" for e in EXITS])
def test_each_failure_has_its_exit_code_and_its_name(error: BaseException, exit_code: int, code: str) -> None:
    """maintenance OP-72."""
    failure = failure_of(error)
    assert (failure.exit_code, failure.code) == (exit_code, code)
    assert failure.message


def test_what_is_out_of_reach_is_named() -> None:
    failure = failure_of(BackendUnavailable("refused"), location="postgresql://host/db")
    assert failure.message == "postgresql://host/db: refused"
    assert failure.details["location"] == "postgresql://host/db"
    other = failure_of(NotFound("run", "r"), location="postgresql://host/db")
    assert ("location" in other.details, "postgresql" in other.message) == (False, False)


def test_a_defect_is_shown_with_its_traceback() -> None:
    with pytest.raises(RuntimeError) as raised:
        raise RuntimeError("no such luck")
    assert "test_exits.py" in failure_of(raised.value).message
