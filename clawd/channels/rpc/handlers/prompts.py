"""Handlers about what the model is told."""

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.memory.rows import visible_to
from clawd.wire.prompt_methods import ShowPrompt
from clawd.wire.prompt_reports import PromptFragment, PromptText


class PromptHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def show_prompt(self, params: ShowPrompt, call: Call) -> PromptText:
        """Show the system prompt and the block of facts."""
        conversation_id = ""
        if params.conversation_id:
            owner = visible_to(call.principal)
            conversations = self.parts.memory.conversations
            conversation_id = (await conversations.match(params.conversation_id, owner=owner)).id
        found = await self.parts.inbox.preview(
            call.principal,
            conversation_id=conversation_id,
            agent=params.agent,
            workspace=params.workspace,
        )
        return PromptText(
            system=found.system,
            fragments=tuple(PromptFragment(id=name, text=text) for name, text in found.fragments),
            block=found.block,
            untrusted=found.untrusted,
            tools=found.tools,
            workspace=str(found.workspace),
            conversation_id=conversation_id,
        )
