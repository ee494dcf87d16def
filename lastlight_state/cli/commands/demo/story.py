"""What the demo's workflow consists of."""

from __future__ import annotations

from dataclasses import dataclass

from lastlight_state.messaging import ConversationKey
from lastlight_state.workflows import Trigger

WORKFLOW = "issue-to-pr"
TRIGGER = Trigger(
    "acme/weather#42", type="webhook", owner="acme", repo="weather", issue_number=42, actor="maria", actor_type="github"
)
CONTEXT = {"issue": {"number": 42, "title": "Forecast endpoint fails for some cities", "labels": ["bug", "customer"]}}
CHAT = ConversationKey("slack", "C-weather", "maria", "1768381200.000100")
APPROVER = "maria"


@dataclass(frozen=True)
class Step:
    """A phase, which is also the name of its recorded session.

    ``gate`` is asked when it is done. Its last text becomes the output of the loop ``keeps``; the output of the loop
    ``reads`` is added to its prompt.
    """

    phase: str
    gate: str | None = None
    keeps: str | None = None
    reads: str | None = None

    @property
    def skill(self) -> str:
        """The name of its executions."""
        return f"{WORKFLOW}:{self.phase}"


STEPS = (
    Step("architect", gate="post_architect", keeps="plan"),
    Step("executor", reads="plan"),
    Step("reviewer", keeps="review"),
    Step("reviewer_fix_1", reads="review"),
    Step("reviewer_1", gate="post_reviewer", keeps="review"),
)
