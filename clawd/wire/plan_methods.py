"""The methods of the control socket about plans; see `wire.methods`."""

from clawd.wire.method import Method
from clawd.wire.plans import PlanReport


class ShowPlan(Method[PlanReport], frozen=True, kw_only=True):
    """Show the plan of a conversation, by id or a unique beginning of it.

    Without one, the plan that the caller's calls outside of conversations keep in a workspace
    (absolute, or empty for the configured one).
    """

    conversation_id: str = ""
    workspace: str = ""
