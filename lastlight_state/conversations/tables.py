"""The tables of this domain, as statements name them."""

from __future__ import annotations

from lastlight_state.conversations.models import (
    BranchModel,
    ExchangeDeliveryModel,
    ExchangeInboxModel,
    ExchangeMemberModel,
    MessageModel,
    MessageTypeModel,
    ProgressionLinkModel,
    ProgressionModel,
    SessionChangeModel,
    SessionModel,
    SessionTransitionModel,
    VectorModel,
    VectorNamespaceModel,
)
from lastlight_state.db.schema.base import table_of

TYPES = table_of(MessageTypeModel)

MESSAGES = table_of(MessageModel)

PROGRESSIONS = table_of(ProgressionModel)

LINKS = table_of(ProgressionLinkModel)

SESSIONS = table_of(SessionModel)

BRANCHES = table_of(BranchModel)

NAMESPACES = table_of(VectorNamespaceModel)

VECTORS = table_of(VectorModel)

TRANSITIONS = table_of(SessionTransitionModel)

CHANGES = table_of(SessionChangeModel)

INBOXES = table_of(ExchangeInboxModel)

DELIVERIES = table_of(ExchangeDeliveryModel)

MEMBERS = table_of(ExchangeMemberModel)
