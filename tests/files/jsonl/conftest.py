"""Every test of line files is watched for what it leaves open."""

from support.open_files import nothing_is_left_open  # noqa: F401 - of every test here
