"""What tests of this library, and of services that use it, are made of.

The rest of the library imports nothing from here, and importing this package asks for no extra.
`plugin` is the pytest plugin that an installed library brings along.
"""

from lastlight_state.testing.postgres import ThrowawayPostgres

__all__ = ["ThrowawayPostgres"]
