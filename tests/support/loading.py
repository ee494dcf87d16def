"""Loads what a process would otherwise load when it first needs it, for a process that is forked many times."""

from importlib import import_module
from pkgutil import walk_packages


def load(*packages: str) -> None:
    """Import the store and every module of these packages of the library."""
    import_module("lastlight_state.store")
    for name in packages:
        package = import_module(f"lastlight_state.{name}")
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
