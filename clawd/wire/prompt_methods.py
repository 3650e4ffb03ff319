"""The methods of the control socket about what the model is told; see `wire.methods`."""

from clawd.wire.method import Method
from clawd.wire.prompt_reports import PromptText


class ShowPrompt(Method[PromptText], frozen=True, kw_only=True):
    """Show the system prompt, and the block that a message sent now would carry.

    Of a conversation (its id, or a unique beginning of it), else of a new one in this workspace.
    Nothing counts as shown to the model by it.
    """

    agent: str = ""
    workspace: str = ""
    conversation_id: str = ""
