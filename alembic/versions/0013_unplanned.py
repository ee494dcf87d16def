"""A cron is planned again after its override changed, whoever changed it.

Triggers on cron_overrides mark a plan that does not fit any more: it is due at once, and fires nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_OVERRIDE = "FROM cron_overrides AS o WHERE o.name = cron_schedules.name"
_ON = f"(SELECT CASE WHEN o.enabled AND o.inherits_enabled THEN NULL ELSE o.enabled END {_OVERRIDE})"

_MARKS = (
    "UPDATE cron_schedules SET next_run_at = created_at, planned_with = 'unplanned' "
    "WHERE name IN ({names}) AND retired_at IS NULL "
    f"AND coalesce({_ON}, enabled) "
    "AND coalesce(planned_with, CASE WHEN next_run_at IS NULL THEN 'unplanned' END) "
    f"<> coalesce((SELECT o.timezone {_OVERRIDE}), timezone) || ' ' "
    f"|| coalesce((SELECT o.schedule {_OVERRIDE}), pattern)"
)
_EVENTS = {"insert": "NEW.name", "update": "OLD.name, NEW.name", "delete": "OLD.name"}

# The rows are locked first: only a statement after that sees what somebody else has just done to them. A role that may
# not write the schedules marks nothing, and its change of the override goes through.
_FUNCTION = (
    "CREATE FUNCTION lastlight_unplan() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $reaction$ "
    "BEGIN IF has_table_privilege('cron_schedules', 'SELECT') AND has_table_privilege('cron_schedules', 'UPDATE') "
    "AND has_table_privilege('cron_overrides', 'SELECT') THEN "
    "PERFORM name FROM cron_schedules WHERE name IN (OLD.name, NEW.name) FOR NO KEY UPDATE; "
    f"{_MARKS.format(names='OLD.name, NEW.name')}; END IF; RETURN NULL; END $reaction$"
)


def _sqlite() -> Iterator[str]:
    for event, names in _EVENTS.items():
        yield (
            f"CREATE TRIGGER cron_overrides_unplan_{event} AFTER {event.upper()} ON cron_overrides FOR EACH ROW "
            f"BEGIN {_MARKS.format(names=names)}; END"
        )


def _postgres() -> Iterator[str]:
    yield _FUNCTION
    for event in _EVENTS:
        yield (
            f"CREATE TRIGGER cron_overrides_unplan_{event} AFTER {event.upper()} ON cron_overrides FOR EACH ROW "
            "EXECUTE FUNCTION lastlight_unplan()"
        )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES

# What the triggers change when they fire.
trigger_steps = ({"table": "cron_schedules", "columns": ("next_run_at", "planned_with")},)


def upgrade() -> None:
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)
