"""All models, guards and reactions of the central schema together."""

from __future__ import annotations

from lastlight_state.checkpoints import models as checkpoints_models
from lastlight_state.conversations import (
    guards as conversations_guards,
    indexes as conversations_indexes,
    models as conversations_models,
    views as conversations_views,
)
from lastlight_state.db.base import Base
from lastlight_state.db.guards import declared_guards, keep_spelling
from lastlight_state.db.reactions import declared_derived_rows, declared_reactions
from lastlight_state.journal import guards as journal_guards, models as journal_models
from lastlight_state.messaging import guards as messaging_guards, models as messaging_models
from lastlight_state.outputs import guards as outputs_guards, models as outputs_models
from lastlight_state.receipts import guards as receipts_guards, models as receipts_models
from lastlight_state.schedules import (
    guards as schedules_guards,
    models as schedules_models,
    reactions as schedules_reactions,
)
from lastlight_state.states import models as states_models
from lastlight_state.workflows import (
    guards as workflows_guards,
    indexes as workflows_indexes,
    models as workflows_models,
    reactions as workflows_reactions,
)

#: The modules whose import declares the schema.
DECLARED_BY = (
    receipts_models,
    receipts_guards,
    workflows_models,
    workflows_indexes,
    workflows_guards,
    workflows_reactions,
    schedules_models,
    schedules_guards,
    schedules_reactions,
    messaging_models,
    messaging_guards,
    journal_models,
    journal_guards,
    outputs_models,
    outputs_guards,
    conversations_models,
    conversations_indexes,
    conversations_guards,
    conversations_views,
    checkpoints_models,
    states_models,
)

#: Every table and index of the central schema.
METADATA = Base.metadata

keep_spelling(METADATA)

#: Every trigger of the central schema that refuses something.
GUARDS = declared_guards()

#: Every trigger of the central schema that changes something.
REACTIONS = declared_reactions()

#: The triggers of the central schema that keep rows beside those of a table.
DERIVED_ROWS = declared_derived_rows()
