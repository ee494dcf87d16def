"""All models and guards of the central schema together."""

from __future__ import annotations

from lastlight_state.db.base import Base
from lastlight_state.db.guards import declared_guards
from lastlight_state.messaging import guards as messaging_guards
from lastlight_state.messaging import models as messaging_models
from lastlight_state.receipts import guards as receipts_guards
from lastlight_state.receipts import models as receipts_models
from lastlight_state.schedules import guards as schedules_guards
from lastlight_state.schedules import models as schedules_models
from lastlight_state.workflows import guards as workflows_guards
from lastlight_state.workflows import indexes as workflows_indexes
from lastlight_state.workflows import models as workflows_models

DECLARED_BY = (
    receipts_models,
    receipts_guards,
    workflows_models,
    workflows_indexes,
    workflows_guards,
    schedules_models,
    schedules_guards,
    messaging_models,
    messaging_guards,
)
"""The modules whose import declares the schema."""

METADATA = Base.metadata
"""Every table and index of the central schema."""

GUARDS = declared_guards()
"""Every trigger of the central schema."""
