"""Repositories that present a claim by themselves, so that a block that drives a run need not repeat it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from lastlight_state.workflows.arguments import Claim

R = TypeVar("R")


def with_claim(repository: R, claim: Claim) -> R:
    """Return the repository, whose engine writes present this claim unless they are given another.

    A call that names another run presents nothing by itself: the claim says nothing about that run.
    """
    kind: Any = type(repository)
    for name, place in _engine_writes(kind):
        setattr(repository, name, _presenting(getattr(repository, name), place, claim))
    return repository


def _presenting(method: Callable[..., Any], place: int | None, claim: Claim) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("claim") is None and _is_of_run(claim.run_id, place, args, kwargs):
            kwargs["claim"] = claim
        return method(*args, **kwargs)

    return call


def _is_of_run(run_id: str, place: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call may be one of the run. What belongs to a run by its own id, the database looks up."""
    if place is None:
        return True
    return (args[place] if place < len(args) else kwargs.get("run_id")) == run_id


@cache
def _engine_writes(kind: type[Any]) -> tuple[tuple[str, int | None], ...]:
    """Return the methods that take ``claim=``, and where they take ``run_id``, if they do."""
    found = []
    for name in dir(kind):
        method = getattr(kind, name)
        if name.startswith("_") or not isfunction(method):
            continue
        parameters = list(signature(method).parameters.values())[1:]
        names = [parameter.name for parameter in parameters]
        if "claim" in names and parameters[names.index("claim")].default is None:
            found.append((name, names.index("run_id") if "run_id" in names else None))
    return tuple(found)
