"""What is settled before a turn begins: its limits, and everything it works with."""

import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from clawd.providers.base import ChatRequest, Message, Provider, Sampling
from clawd.tools.base import Tool
from clawd.tools.outcome import CallScope
from clawd.tools.registry import specs

MakeRoom = Callable[[ChatRequest, int], Awaitable[bool]]
"""Compresses the committed messages where a request would not fit; tells whether it did.

The second argument is how many tokens the model has read of the request, 0 for unknown.
"""


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a turn may go.

    Attributes:
        wall_clock_budget_s: for all of the turn, its hops and calls included; 0 is no limit.
        max_response_bytes: of one answer, its reasoning and its calls included.
        retry_on_incomplete: empty and broken-off answers are asked for again.
    """

    max_tool_rounds: int = 8
    wall_clock_budget_s: float = 0.0
    max_response_bytes: int = 1_000_000
    retry_on_incomplete: bool = True


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What every request of a turn begins with.

    Attributes:
        offered: the names of the flat tools that may be called.
        fixed: the `fixed_mark` of the system prompt and the tools.
    """

    system: str
    tools: tuple[Tool, ...]
    offered: frozenset[str]
    fixed: str


class TurnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is settled before a turn begins.

    Attributes:
        hints: what the message asks of a router: `model`, `cost`, `privacy`, `size`.
        fixed: the `fixed_mark` of the system prompt and the tools.
        known_tokens: how many tokens the last prompt and its answer had, 0 for unknown.
        is_continued: that prompt began with the same system prompt and tools; if not, its length
            says little about the next one's.
        calls_tools: the model can; if not, it is shown plain text, and `CMD: ` lines of its
            answers are calls of `shell`.
        tool_choice: of the first request; what follows a result is free to end the turn.
        news: returns another beginning once when the tools have become others, else None.
        make_room: asked before every request; None lets everything be sent.
    """

    turn_id: str
    message: Message
    system: str
    tools: tuple[Tool, ...]
    provider: Provider
    model: str
    limits: TurnLimits
    scope: CallScope
    sampling: Sampling | None = None
    hints: dict[str, str] = {}
    fixed: str = ""
    known_tokens: int = 0
    is_continued: bool = True
    calls_tools: bool = True
    tool_choice: str = "auto"
    news: Callable[[], Beginning | None] = lambda: None
    make_room: MakeRoom | None = None

    @property
    def measured_tokens(self) -> int:
        """The known tokens as far as the length of the next prompt can be told by them."""
        return self.known_tokens if self.is_continued else 0


def renewed(plan: TurnPlan) -> TurnPlan:
    """Return the plan with the tools there are now; the plan itself while they are the same."""
    begin = plan.news()
    if begin is None:
        return plan
    return msgspec.structs.replace(
        plan,
        system=begin.system,
        tools=begin.tools,
        fixed=begin.fixed,
        scope=msgspec.structs.replace(plan.scope, offered=begin.offered),
    )


def fixed_mark(system: str, tools: tuple[Tool, ...]) -> str:
    """Return what tells one beginning of a prompt, its system prompt and tools, from another."""
    text = msgspec.json.encode((system, specs(tools)))
    return hashlib.sha256(text).hexdigest()[:16]


def request_of(plan: TurnPlan, messages: tuple[Message, ...]) -> ChatRequest:
    """Return what a turn asks of its provider."""
    is_first = bool(messages) and messages[-1].role == "user"
    return ChatRequest(
        system=plan.system,
        messages=messages,
        tools=specs(plan.tools) if plan.calls_tools else (),
        model=plan.model,
        metadata=plan.hints | {"conversation_id": plan.scope.conversation_id},
        sampling=plan.sampling,
        tool_choice=plan.tool_choice if is_first and plan.calls_tools else "auto",
    )
