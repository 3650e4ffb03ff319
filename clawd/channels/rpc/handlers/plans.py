"""Handlers about plans."""

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.memory.rows import visible_to
from clawd.tools.plans import PlanKey, markdown
from clawd.wire.plan_methods import ShowPlan
from clawd.wire.plans import PlanLine, PlanReport


class PlanHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def show_plan(self, params: ShowPlan, call: Call) -> PlanReport:
        """Show a plan."""
        memory, conversation_id, workspace = self.parts.memory, "", ""
        if params.conversation_id:
            owner = visible_to(call.principal)
            record = await memory.conversations.match(params.conversation_id, owner=owner)
            conversation_id = record.id
        else:
            workspace = str(self.parts.calls.workspace(params.workspace))
        key = PlanKey(
            conversation_id=conversation_id, owner=call.principal.uid, workspace=workspace
        )
        items = (await memory.plans.load(key)).open
        return PlanReport(
            conversation_id=conversation_id,
            workspace=workspace,
            items=tuple(PlanLine(id=item.id, text=item.text, status=item.status) for item in items),
            markdown=markdown(items),
        )
