"""What is settled before a turn begins: its limits, and everything it works with."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from clawd.providers.base import (
    ChatRequest,
    Message,
    Provider,
    Sampling,
    ToolCall,
    without_pictures,
)
from clawd.runtime.planning import Decision
from clawd.security.approvals import LateAnswer, PendingApproval
from clawd.tools.offer import RequestTools, met_in
from clawd.tools.outcome import CallScope

GoOn = Callable[[int, int], Awaitable[bool]]
"""Asks the person whether to go on after so many rounds, for so many more; tells what they said."""

MakeRoom = Callable[[ChatRequest, int], Awaitable[bool]]
"""Compresses the committed messages where a request would not fit; returns whether it did.

The second argument is how many tokens the model has read of the request, 0 for unknown.
"""


class Parking(Protocol):
    """Keeps calls whose questions lapse, so that they can be answered late.

    A call is given as the model made it, with its question and the id of its receipt.
    """

    async def hold(self, call: ToolCall, pending: PendingApproval, receipt_id: str) -> None:
        """Keep a call whose question is about to be shown: a crash makes it lapse."""
        ...

    async def keep(self, call: ToolCall, pending: PendingApproval, receipt_id: str) -> None:
        """Keep a call whose question lapsed."""
        ...

    async def release(self, approval_id: str) -> None:
        """Forget a call that was held and whose question was answered."""
        ...


class LateCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call with which a turn goes on that waited for an approval, and its late answer.

    Attributes:
        call: as the model made it.
        tool: what runs.
        arguments: with these arguments, as they were shown.
        drop: forgets it, when it has its receipt.
    """

    call: ToolCall
    tool: str
    arguments: str
    answer: LateAnswer
    drop: Callable[[], Awaitable[None]]


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a turn may go.

    Attributes:
        rounds_key: what set the limit of rounds, for the message that it is reached.
        max_tokens: read and written by all of its answers; 0 is no limit.
        wall_clock_budget_s: for all of the turn, its hops and calls included; 0 is no limit.
        max_response_bytes: of one answer, its reasoning and its calls included.
        retry_on_incomplete: empty and broken-off answers are asked for again.
    """

    max_tool_rounds: int = 8
    rounds_key: str = "max_tool_rounds in [agent]"
    max_tokens: int = 0
    wall_clock_budget_s: float = 0.0
    max_response_bytes: int = 1_000_000
    retry_on_incomplete: bool = True


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What every request of a turn begins with.

    Attributes:
        told: what requests carry of the tools.
        offered: the names of the flat tools that may be called.
        fixed: the `fixed_mark` of the system prompt and the tools.
    """

    system: str
    told: RequestTools
    offered: frozenset[str]
    fixed: str


class TurnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is settled before a turn begins.

    Attributes:
        told: what requests carry of the tools.
        hints: what the message asks of a router: `model`, `cost`, `privacy`, `size`.
        fixed: the `fixed_mark` of the system prompt and the tools.
        known_tokens: how many tokens the last prompt and its answer had, 0 for unknown.
        measured_tokens: those, where that prompt began with the same system prompt and tools; else
            0, as its length says little about the next one's.
        calls_tools: the model can; if not, it is shown plain text, and `CMD: ` lines of its
            answers are calls of `shell`.
        sees: the model sees pictures; if not, a line of text stands in for each.
        tool_choice: of the first request; what follows a result is free to end the turn.
        news: returns another beginning once when the tools have become others, else None.
        make_room: asked before every request; None lets everything be sent.
        go_on: asked at the limit of rounds; None ends the turn there.
        overheard: returns what the person said since the turn was asked last, "" for nothing; what
            it returns is in the next message that is stored.
        planned: puts the plan of a turn that only looks to the person; None ends it with the plan.
        late: the call with which the turn goes on, in place of the message; None for a new turn.
        parking: keeps calls that nobody answers for; the turn ends with one. None ends nothing.
    """

    turn_id: str
    message: Message
    system: str
    told: RequestTools
    provider: Provider
    model: str
    limits: TurnLimits
    scope: CallScope
    sampling: Sampling | None = None
    hints: dict[str, str] = {}
    fixed: str = ""
    known_tokens: int = 0
    measured_tokens: int = 0
    calls_tools: bool = True
    sees: bool = True
    tool_choice: str = "auto"
    news: Callable[[], Beginning | None] = lambda: None
    make_room: MakeRoom | None = None
    go_on: GoOn | None = None
    overheard: Callable[[], str] = lambda: ""
    planned: Callable[[], Awaitable[Decision]] | None = None
    late: LateCall | None = None
    parking: Parking | None = None


def renewed(plan: TurnPlan, begin: Beginning) -> TurnPlan:
    """Return the plan with the tools that there are now."""
    return msgspec.structs.replace(
        plan,
        system=begin.system,
        told=begin.told,
        fixed=begin.fixed,
        scope=msgspec.structs.replace(plan.scope, offered=begin.offered),
    )


def fixed_mark(system: str, told: RequestTools) -> str:
    """Return what tells one beginning of a prompt, its system prompt and tools, from another."""
    text = msgspec.json.encode((system, told.specs))
    return hashlib.sha256(text).hexdigest()[:16]


def request_of(plan: TurnPlan, messages: tuple[Message, ...]) -> ChatRequest:
    """Return what a turn asks of its provider."""
    if not plan.sees:
        messages = tuple(map(without_pictures, messages))
    is_first = bool(messages) and messages[-1].role == "user"
    told = plan.told if plan.calls_tools else RequestTools(tools=())
    calls = ((call.name, call.arguments) for message in messages for call in message.tool_calls)
    met = [tool.name for tool in met_in(calls, (*told.others, *told.hidden))]
    unmet = (tool.name for tool in told.others if tool.name not in met)
    return ChatRequest(
        system=plan.system,
        messages=messages,
        tools=told.specs,
        found=tuple(told.found_specs[name] for name in met),
        unlisted=tuple(told.found_specs[name] for name in unmet),
        model=plan.model,
        metadata=plan.hints | {"conversation_id": plan.scope.conversation_id},
        sampling=plan.sampling,
        tool_choice=plan.tool_choice if is_first and plan.calls_tools else "auto",
    )
