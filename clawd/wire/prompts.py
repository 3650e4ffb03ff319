"""The method about what the model is told, and its report; see `wire.methods`."""

import msgspec

from clawd.wire.method import Method


class PromptFragment(msgspec.Struct, frozen=True, kw_only=True):
    """One fragment of the system prompt, by its id."""

    id: str
    text: str


class PromptText(msgspec.Struct, frozen=True, kw_only=True):
    """What a message sent now would come with.

    Attributes:
        system: the whole system prompt, its fragments joined.
        block: what is news since the conversation's last message; "" for nothing.
        untrusted: where untrusted text in the block came from; sending a message would taint.
        tools: names of the tools offered beside it.
    """

    system: str
    fragments: tuple[PromptFragment, ...]
    block: str
    untrusted: tuple[str, ...]
    tools: tuple[str, ...]
    workspace: str
    conversation_id: str


class ShowPrompt(Method[PromptText], frozen=True, kw_only=True):
    """Show the system prompt, and the block that a message sent now would carry.

    Of a conversation (its id, or a unique beginning of it), else of a new one in this workspace.
    Nothing counts as shown to the model by it.
    """

    agent: str = ""
    workspace: str = ""
    conversation_id: str = ""
