"""The methods of the control socket about plans; see `wire.methods`."""

import msgspec

from clawd.wire.method import Method


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a plan; `status` is pending, working, done, error or deleted."""

    id: int
    text: str
    status: str


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """A plan.

    Attributes:
        conversation_id: whose plan it is; empty for one of a workspace.
        workspace: whose plan it is; empty for one of a conversation.
        items: what was not deleted, in order.
        markdown: the same as a list, as the model sees it; empty for an empty plan.
    """

    conversation_id: str
    workspace: str
    items: tuple[PlanLine, ...]
    markdown: str


class ShowPlan(Method[PlanReport], frozen=True, kw_only=True):
    """Show the plan of a conversation, by id or a unique beginning of it.

    Without one, the plan that the caller's calls outside of conversations keep in a workspace
    (absolute, or empty for the configured one).
    """

    conversation_id: str = ""
    workspace: str = ""
