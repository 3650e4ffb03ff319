"""All handlers of the control socket in one object."""

from clawd.channels.rpc.handlers.acts import ActHandlers
from clawd.channels.rpc.handlers.conversations import ConversationHandlers
from clawd.channels.rpc.handlers.exports import ExportHandlers
from clawd.channels.rpc.handlers.keys import KeyHandlers
from clawd.channels.rpc.handlers.knowledge import KnowledgeHandlers
from clawd.channels.rpc.handlers.logs import LogHandlers
from clawd.channels.rpc.handlers.mcp import McpHandlers
from clawd.channels.rpc.handlers.metrics import MetricHandlers
from clawd.channels.rpc.handlers.models import ModelHandlers
from clawd.channels.rpc.handlers.plans import PlanHandlers
from clawd.channels.rpc.handlers.plugins import PluginHandlers
from clawd.channels.rpc.handlers.policy import PolicyHandlers
from clawd.channels.rpc.handlers.prompts import PromptHandlers
from clawd.channels.rpc.handlers.records import RecordHandlers
from clawd.channels.rpc.handlers.service import ServiceHandlers
from clawd.channels.rpc.handlers.serving import ServingHandlers
from clawd.channels.rpc.handlers.session_files import SessionFileHandlers
from clawd.channels.rpc.handlers.turns import TurnHandlers
from clawd.channels.rpc.handlers.upkeep import UpkeepHandlers


class Handlers(
    ServiceHandlers,
    TurnHandlers,
    ConversationHandlers,
    ActHandlers,
    PlanHandlers,
    PolicyHandlers,
    PromptHandlers,
    PluginHandlers,
    RecordHandlers,
    KeyHandlers,
    KnowledgeHandlers,
    LogHandlers,
    McpHandlers,
    ExportHandlers,
    ModelHandlers,
    UpkeepHandlers,
    MetricHandlers,
    SessionFileHandlers,
    ServingHandlers,
):
    """An async method for every method of the wire."""
