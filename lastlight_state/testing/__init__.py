"""What tests of this library, and of services that use it, are made of.

Nothing here is imported by the rest of the library, and importing this package asks for no extra.
`plugin` is the pytest plugin that an installed library brings along; `postgres` has the throw-away server.
"""
