"""Triggers on crons and fires: rows cannot be deleted, and a finished fire cannot be changed."""

from __future__ import annotations

from lastlight_state.db.guards import Guard, Key, append_only, declare, no_replacement

CRONS = declare([*append_only("cron_schedules"), *no_replacement("cron_schedules", Key(("name",)))])

FIRES = declare(
    [
        *append_only("cron_fires"),
        *no_replacement("cron_fires", Key(("id",)), Key(("cron_name", "scheduled_for"))),
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
