"""Modules that load when something of theirs is first used.

A package's ``__init__`` says where its names live, and a face where its parts do; importing either loads none of them.

Threads load one after the other: CPython gives a module that is half made to one of two threads which import modules
of a package in different orders. And nothing is imported in the main thread, where handlers of signals raise: an
exception inside CPython's import leaves a lock behind, for which all other threads would wait for ever.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any, Generic, Self, TypeVar, cast, overload

T = TypeVar("T")

#: Held by the thread that imports. The main thread never has it.
_turn = threading.RLock()


def load(name: str) -> ModuleType:
    """Return the module of this dotted path, and import it if nobody has."""
    found = sys.modules.get(name)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return run_imports(partial(import_module, name))


def run_imports(call: Callable[[], T]) -> T:
    """Return what ``call`` returns, which may import modules.

    The main thread waits for another one that makes the call. An exception of a signal ends the wait, and not the call.
    In the middle of an import the call is made at once, because the thread has locks that another one may need.
    """
    if _is_importing():
        return call()
    if threading.get_ident() == threading.main_thread().ident:
        return _made_apart(call)
    with _turn:
        return call()


def _is_importing() -> bool:
    """True if this thread is importing a module."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_filename == "<frozen importlib._bootstrap>" and code.co_name != "_handle_fromlist":
            return True
        frame = frame.f_back
    return False


def _made_apart(call: Callable[[], T]) -> T:
    made: list[T] = []
    raised: list[BaseException] = []
    is_over = threading.Lock()
    is_over.acquire()

    def make() -> None:
        try:
            with _turn:
                made.append(call())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the one who waits
            raised.append(error)
        finally:
            is_over.release()

    # A signal's exception in `start` may leave this thread waiting for ever, which must not hold up the program's end.
    thread = threading.Thread(target=make, name="lastlight-import", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # there are too many threads, or the interpreter ends
        if thread.ident is not None:
            raise
        return call()
    # A signal that comes just before a wait does not end it: Python would handle it when the import is over.
    while not is_over.acquire(timeout=1):
        pass
    if raised:
        raise raised.pop()
    return made.pop()


def _renew() -> None:
    """Give a forked child a lock of its own: the thread that has this one is not there."""
    global _turn  # noqa: PLW0603
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_renew)


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
        value = package[name] = getattr(load(home_of[name]), name)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*package, *home_of})

    package.update(__getattr__=__getattr__, __dir__=__dir__, __all__=sorted({*home_of, *own}))


class Module:
    """A module that is loaded when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._path = name

    def __getattr__(self, name: str) -> Any:
        return getattr(load(self._path), name)


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
        return cast("type[Any]", getattr(load(self._module), self._class))
