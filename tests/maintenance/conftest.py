"""Fixtures that every test of maintenance uses."""

from support.open_files import nothing_is_left_open  # noqa: F401 - of every test here
