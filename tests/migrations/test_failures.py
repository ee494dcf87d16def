from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from support.migrations.support import Place

from lastlight_state.errors import BackendError
from lastlight_state.migrations.failures import translated_errors


def test_errors_of_the_driver_become_the_librarys_whichever_way_they_come(place: Place) -> None:
    """house H-51."""
    backend = place.backend()
    with pytest.raises(BackendError) as caught, translated_errors(backend), backend.migration(1) as connection:
        connection.execute(text("SELECT * FROM nowhere"))
    assert isinstance(caught.value.__cause__, backend.driver_errors)
    with pytest.raises(BackendError), translated_errors(backend):
        raise backend.driver_errors[0]("by itself")


def test_errors_of_another_driver_are_left_alone(place: Place) -> None:
    backend = place.backend()
    with pytest.raises(DBAPIError), translated_errors(backend):
        raise DBAPIError("SELECT 1", None, RuntimeError("somebody else's"))
    with pytest.raises(ZeroDivisionError), translated_errors(backend):
        raise ZeroDivisionError
