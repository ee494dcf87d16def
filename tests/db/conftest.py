from collections.abc import Iterator

import pytest
from support.scratch import scratch_tables

from lastlight_state import StateStore


@pytest.fixture
def scratch(every_backend: StateStore) -> Iterator[StateStore]:
    """A store on each backend, with the tables of `scratch` in its database."""
    with scratch_tables(every_backend):
        yield every_backend
