"""``store.receipts`` from coroutines."""

from __future__ import annotations

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.receipts import Receipts


class AsyncReceipts(Face[Receipts]):
    """``store.receipts``"""

    get = reading(Receipts.get)
    find = reading(Receipts.find)
    list = reading(Receipts.list)
    begin = writing(Receipts.begin)
    resume = writing(Receipts.resume)
    step = writing(Receipts.step)
    finish = writing(Receipts.finish)
