"""Modules that load when something of theirs is first used.

A package's ``__init__`` says where its names live, and a face where its parts do; importing either loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, Self, TypeVar, cast, overload

T = TypeVar("T")


def public(package: dict[str, Any], homes: Mapping[str, str], *own: str) -> None:
    """Give a package its public names: ``__all__``, and each name at its first use.

    ``package`` is its ``globals()``; ``homes`` maps modules, relative to the package, to the names that they define,
    separated by spaces. ``own`` are the public names that the package defines itself.
    """
    path = package["__name__"]
    home_of = {name: f"{path}.{home}" for home, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> Any:  # noqa: N807 - the name that Python asks a module for (PEP 562)
        if name not in home_of:
            raise AttributeError(f"module {path!r} has no attribute {name!r}")
        value = package[name] = getattr(import_module(home_of[name]), name)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*package, *home_of})

    package.update(__getattr__=__getattr__, __dir__=__dir__, __all__=sorted({*home_of, *own}))


class Part(Generic[T]):
    """An attribute that is loaded and made when it is first asked for, and kept.

    ``home`` is the dotted path of its class. ``make`` makes it, called with the object that has the part and the class;
    without one, the object's own ``_made`` does, called with the class and the name.
    """

    def __init__(self, home: str, make: Callable[[Any, type[Any]], T] | None = None) -> None:
        self._module, _, self._class = home.rpartition(".")
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, whole: None, owner: type) -> Self: ...
    @overload
    def __get__(self, whole: object, owner: type) -> T: ...
    def __get__(self, whole: Any, owner: type) -> Self | T:
        if whole is None:
            return self
        part = whole._made(self.kind, self._name) if self._make is None else self._make(whole, self.kind)
        whole.__dict__[self._name] = part
        return cast(T, part)

    @property
    def kind(self) -> type[Any]:
        """Return the class of the part."""
        return cast("type[Any]", getattr(import_module(self._module), self._class))
