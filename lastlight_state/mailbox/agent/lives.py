"""Lives of an agent: one process at a time may write for it, the one that started last."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.db.statements import bind, constant, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import ClaimLost
from lastlight_state.ids import new_id
from lastlight_state.mailbox import models
from lastlight_state.mailbox.agent import tidying
from lastlight_state.mailbox.kernel import meta
from lastlight_state.mailbox.kernel.pair import Pair
from lastlight_state.mailbox.reports import StartReport

_INSTANCE = "agent_instance"
_FREE = prepared(sa.delete(models.ACKS).where(models.ACKS.c.status == constant("processing")))

_tool = models.CONTAINER_STATE.c
_NAMES = ("current_tool", "tool_declared_timeout_ms", "tool_started_at", "updated_at")
_put = insert(models.CONTAINER_STATE).values(id=number(1), **{name: bind(name, _tool[name]) for name in _NAMES})
_PUT_TOOL = prepared(
    _put.on_conflict_do_update(index_elements=[_tool.id], set_={name: _put.excluded[name] for name in _NAMES})
)


def joined(pair: Pair, instance: str | None) -> Pair:
    """The pair, whose writes are fenced by this life of the agent."""
    pair.instance = None if instance is None else valid.identifier("instance", instance)
    pair.own.admit = lambda unit: _admit(unit, pair)
    return pair


def start(pair: Pair) -> StartReport:
    """Begin a new life. All later writes of earlier ones are refused."""

    def work(unit: Unit) -> tuple[str, int]:
        lives = _number(meta.find(unit, pair.declared, _INSTANCE)) + 1
        instance = f"{lives}-{new_id()}"
        meta.put(unit, pair.declared, _INSTANCE, instance)
        return instance, unit.change(_FREE)

    pair.instance = None
    pair.instance, freed = pair.own.writing(work)
    pair.first_poll = True
    tidied = pair.own.writing(lambda unit: tidying.tidy(unit, pair))
    return StartReport(instance=pair.instance, freed=freed, tidied=tidied)


def tool_started(pair: Pair, name: str, timeout: timedelta | None) -> None:
    """Note the tool in use."""
    millis = None if timeout is None else int(valid.duration("timeout", timeout) / timedelta(milliseconds=1))
    now = iso_text(pair.clock.now())
    tool = valid.identifier("name", name)
    _put_tool(pair, current_tool=tool, tool_declared_timeout_ms=millis, tool_started_at=now, updated_at=now)


def tool_finished(pair: Pair) -> None:
    """Note that no tool is in use."""
    now = iso_text(pair.clock.now())
    _put_tool(pair, current_tool=None, tool_declared_timeout_ms=None, tool_started_at=None, updated_at=now)


def _put_tool(pair: Pair, **values: object) -> None:
    pair.context.scope.writing(lambda unit: unit.change(_PUT_TOOL, values))


def _admit(unit: Unit, pair: Pair) -> None:
    """Refuse a write of an agent that another has replaced. Raises `ClaimLost`."""
    if pair.instance is None:
        return
    stored = meta.find(unit, pair.declared, _INSTANCE)
    if stored != pair.instance:
        raise ClaimLost(
            pair.place.key,
            presented=_number(pair.instance),
            current_epoch=_number(stored),
            held_by=stored,
            status="replaced",
            kind="agent",
        )


def _number(instance: str | None) -> int:
    """The number of a life; 0 where others wrote something else."""
    first = (instance or "").partition("-")[0]
    return int(first) if first.isascii() and first.isdigit() else 0
