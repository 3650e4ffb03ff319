"""All handlers of the control socket in one object."""

from clawd.channels.rpc.handlers.acts import ActHandlers
from clawd.channels.rpc.handlers.conversations import (
    ConversationHandlers,
)
from clawd.channels.rpc.handlers.mcp import McpHandlers
from clawd.channels.rpc.handlers.models import ModelHandlers
from clawd.channels.rpc.handlers.policy import PolicyHandlers
from clawd.channels.rpc.handlers.records import RecordHandlers
from clawd.channels.rpc.handlers.service import (
    ServiceHandlers,
)
from clawd.channels.rpc.handlers.turns import TurnHandlers


class Handlers(
    ServiceHandlers,
    TurnHandlers,
    ConversationHandlers,
    ActHandlers,
    PolicyHandlers,
    RecordHandlers,
    McpHandlers,
    ModelHandlers,
):
    """An async method for every method of the wire."""
