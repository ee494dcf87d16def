"""``receipts``: lists the receipts of maintenance, or shows one in full. Never writes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.views import kind
from lastlight_state.cli.views.kind import Filters
from lastlight_state.cli.views.kinds import KINDS
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue

_LISTED = KINDS["receipts"]


@command("receipts")
@click.argument("receipt_id", metavar="[ID]", required=False)
@kind.LIMIT
@kind.STATUS
@kind.PAGE_TOKEN
def run(call: Call, receipt_id: str | None, limit: int, status: Sequence[str], page_token: str | None) -> Answer:
    """List the receipts of maintenance, newest first, or show the receipt with this id in full."""
    if receipt_id is None:
        filters = Filters(kind.words(status), None, valid.page_limit(limit), page_token)
        return kind.answer(_LISTED, read_once(call, lambda store: _LISTED.page(store, filters)))
    if status or page_token is not None:
        raise InvalidValue("ID", "must not be given together with flags of a list")
    found = read_once(call, lambda store: store.receipts.get(receipt_id))
    return Answer({"record": found}, lambda screen: kind.lines(found, screen, full=True, more={}))
