"""The method about turns that run, and its report; see `wire.methods`."""

from typing import Literal

import msgspec

from clawd.wire.method import Method

Doing = Literal["thinking", "loading", "prompt", "answering", "tool", "approval", "question"]


class TurnLine(msgspec.Struct, frozen=True, kw_only=True):
    """One turn that runs.

    Attributes:
        owner: uid of whose conversation it is.
        doing: what it does now: thinking (nothing came yet, or reasoning), loading (the model),
            prompt (its prompt is evaluated), answering, tool (a call runs), approval or question
            (it waits for a person).
        detail: the tool, or how much of the model is loaded or of the prompt evaluated ("43%");
            else empty.
        elapsed_s: since the turn began; `doing_s` since it does what it does now.
        tokens: generated so far; of the answer under way its pieces are counted.
        tokens_per_s: of the answer under way, by its pieces, else of the last one.
        context_used: tokens of the last prompt, of `context_size`; 0 for unknown.
    """

    conversation_id: str
    turn_id: str
    owner: int
    provider: str
    model: str = ""
    workspace: str = ""
    doing: Doing = "thinking"
    detail: str = ""
    elapsed_s: float = 0.0
    doing_s: float = 0.0
    rounds: int = 0
    tool_calls: int = 0
    tokens: int = 0
    tokens_per_s: float = 0.0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    context_used: int = 0
    context_size: int = 0


class TurnList(msgspec.Struct, frozen=True, kw_only=True):
    """Turns that run, the oldest first; of other owners' an admin alone sees more than a number."""

    items: tuple[TurnLine, ...]
    others: int = 0


class ListTurns(Method[TurnList], frozen=True, kw_only=True):
    """List the turns that run, and what each does just now."""
