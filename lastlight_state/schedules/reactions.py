"""The trigger that has a cron planned again after its override changed, also by a program that knows nothing of plans.

It marks a plan that does not fit what is now in effect: ``planned_with`` is `UNPLANNED`, and the time lies in the past,
so that the next `take_due` finds the cron among those that are due. It plans the cron instead of firing it.
"""

from __future__ import annotations

from lastlight_state.db.reactions import Reaction, declare

#: The ``planned_with`` of a cron that waits to be planned again. Patterns are kept with their zone and a blank.
UNPLANNED = "unplanned"

_OVERRIDE = "FROM cron_overrides AS o WHERE o.name = cron_schedules.name"
_ENABLED = f"(SELECT CASE WHEN o.enabled AND o.inherits_enabled THEN NULL ELSE o.enabled END {_OVERRIDE})"

UNPLAN = declare(
    Reaction(
        "cron_overrides_unplan",
        "cron_overrides",
        "cron_schedules",
        key="name",
        sets="next_run_at = created_at, planned_with = 'unplanned'",
        when=(
            f"retired_at IS NULL AND coalesce({_ENABLED}, enabled) "
            # An instant that a caller set stays: it has no pattern that it could fit.
            "AND coalesce(planned_with, CASE WHEN next_run_at IS NULL THEN 'unplanned' END) "
            f"<> coalesce((SELECT o.timezone {_OVERRIDE}), timezone) || ' ' "
            f"|| coalesce((SELECT o.schedule {_OVERRIDE}), pattern)"
        ),
        says="the cron is planned again by the next `take_due`, if its plan does not fit the override",
        function="lastlight_unplan",
    )
)
