"""The table of known faults, which tests do without but for those that ask for it.

Otherwise what `doctor` and `check` say would depend on the versions that a machine has.
"""

from lastlight_state.backends import known_faults

TABLE = known_faults.FAULTS


def hide() -> None:
    """Leave the table empty."""
    known_faults.FAULTS = ()
