"""Triggers on fires: rows cannot be deleted, and a finished fire cannot be changed."""

from __future__ import annotations

from lastlight_state.db.guards import Guard, append_only, declare, no_replacement

FIRES = declare(
    [
        *append_only("cron_fires"),
        *no_replacement("cron_fires"),
        Guard(
            "cron_fires_finished_stays",
            "cron_fires",
            "update",
            "a finished fire never changes",
            when="OLD.status <> 'running'",
            permit="any",
        ),
    ]
)
