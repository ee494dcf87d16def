"""A look at what an adoption would find, where revisions cannot be tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from sqlalchemy import Connection

from lastlight_state.backends.base import Options
from lastlight_state.backends.sqlite import SqliteBackend
from lastlight_state.errors import BackendBusy, BackendUnavailable, MisuseError, NotSupported
from lastlight_state.migrations.adoption import survey


class Unable(SqliteBackend):
    """A backend that has no place to try revisions in, for some reason."""

    reason: Exception

    def scratch(self) -> AbstractContextManager[Connection]:
        raise self.reason


@pytest.fixture
def unable(tmp_path: Path) -> Iterator[Unable]:
    with closing(Unable(str(tmp_path / "a.db"), Options())) as made:
        yield made


@pytest.mark.parametrize(
    "reason", [BackendUnavailable("no right", reason="permission"), MisuseError("only reads"), NotSupported("no place")]
)
def test_where_revisions_cannot_be_tried_nothing_is_found(unable: Unable, reason: Exception) -> None:
    """maintenance OP-5: the rest of the plan is told all the same."""
    unable.reason = reason
    assert survey.read_survey(unable) is None


@pytest.mark.parametrize("reason", [BackendBusy("locked"), ZeroDivisionError("a mistake")])
def test_any_other_error_is_told(unable: Unable, reason: Exception) -> None:
    """maintenance OP-5: it does not say that there is nothing."""
    unable.reason = reason
    with pytest.raises(type(reason)):
        survey.read_survey(unable)
