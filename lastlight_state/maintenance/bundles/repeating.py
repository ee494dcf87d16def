"""A load under new ids that was cut off after its commit: the same load again finishes it, and makes no second copy.

Its receipt has the digest of the bundle and the seed from which the new ids are made, so that the names of the log
files that are missing can be told again.
"""

from __future__ import annotations

import hashlib

from lastlight_state import codec
from lastlight_state.maintenance.bundles.records import Bundle
from lastlight_state.receipts import Receipt, Receipts
from lastlight_state.receipts.words import State

#: The receipts of loads that have not ended.
_UNFINISHED: tuple[State, ...] = ("running", "interrupted")
#: How many of them are looked at, the newest first.
_LOOK = 500


def digest(bundle: Bundle) -> str:
    """What identifies a bundle: the SHA-256 of its manifest, which has the digest of each part."""
    return hashlib.sha256(codec.canonical(bundle.model_dump(mode="json"))).hexdigest()


def cut_off(receipts: Receipts, bundle: Bundle) -> Receipt | None:
    """The receipt of a load of this bundle under new ids that stored its rows and did not end."""
    found = digest(bundle)
    for state in _UNFINISHED:
        for one in receipts.list(kind="bundle", state=state, limit=_LOOK).items:
            if one.counts:
                receipt = receipts.get(one.id)
                if receipt.policy.get("on_conflict") == "new_ids" and receipt.policy.get("digest") == found:
                    return receipt
    return None
