"""What the database refuses about receipts and tombstones. No permit of ordinary maintenance opens these guards."""

from __future__ import annotations

from lastlight_state.db.guards import Guard, Key, append_only, declare, no_replacement

FINISHED_RECEIPTS = declare(
    [
        *append_only("maintenance_receipts", permit="reset"),
        *no_replacement("maintenance_receipts", Key(("id",)), Key(("kind", "scope"), among=("state", "'running'"))),
        Guard(
            "maintenance_receipts_finished_stays",
            "maintenance_receipts",
            "update",
            "a finished receipt never changes",
            when="OLD.state IN ('done', 'failed')",
            permit="reset",
        ),
    ]
)

TOMBSTONES = declare([*append_only("tombstones", permit="reset"), *no_replacement("tombstones", Key(("kind", "id")))])
