"""The central schema: the revision of a database, and its upgrade to the newest revision.

Each name loads its module at its first use. Alembic is loaded only if there is something to upgrade, and the models
only if a caller requests the tables. Opening a current database costs one SELECT and loads neither.
"""

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.migrations.host_env import upgrade_from_env as upgrade_from_env
    from lastlight_state.migrations.metadata import include_object as include_object
    from lastlight_state.migrations.offline import grants as grants
    from lastlight_state.migrations.plan import check as check
    from lastlight_state.migrations.records import (
        Adoption as Adoption,
        MigrationResult as MigrationResult,
        Plan as Plan,
        PlannedRevision as PlannedRevision,
        Revision as Revision,
        Rewrite as Rewrite,
        SchemaState as SchemaState,
    )
    from lastlight_state.migrations.runner import (
        current as current,
        migrate as migrate,
        script as script,
        stamp as stamp,
        upgrade as upgrade,
    )
    from lastlight_state.migrations.scripts import history as history
    from lastlight_state.migrations.state import read_state as read_state
    from lastlight_state.migrations.verification import verify as verify

public(
    globals(),
    {
        "metadata": "include_object",
        "host_env": "upgrade_from_env",
        "plan": "check",
        "records": "Adoption MigrationResult Plan PlannedRevision Revision Rewrite SchemaState",
        "offline": "grants",
        "runner": "current migrate script stamp upgrade",
        "scripts": "history",
        "state": "read_state",
        "verification": "verify",
    },
)
