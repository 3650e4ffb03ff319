"""Four helpers of one answer on the real engine, and the same four tasks one after another.

The turn that has the helpers is played; what they answer comes from the model, greedy and cut at
one length. Every answer's tokens over the time of the whole turn make the rate.
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from clawd.providers.base import CallDelta, ChatRequest, Delta, Finished, Sampling
from clawd.runtime.incoming import IncomingMessage
from clawd.wire.events import HopUsage, PromptEvaluated, TextDelta
from clawd.wire.models import LoadModel
from tests.support.inprocess import OWNER, Inside, daemon_in

HELPERS, STREAMS, ANSWER_TOKENS = 4, 8, 96
# In place of what the model says: past its own end it may begin a call, which would be carried out
# or asked for again, so that one helper answers twice and the others wait for it.
SAID = "word "
# Tokens by which SmolLM2 ends: `<|endoftext|>` and `<|im_end|>`. No answer is shorter than another.
NO_END = {0: -100.0, 2: -100.0}
TOGETHER, IN_TURN = "all at once", "one by one"
TASKS = ("the sea", "a mountain", "old trains", "bread", "the moon", "a river", "cats", "clocks")
_NONE = HopUsage(prompt_tokens=0, cached_tokens=0, completion_tokens=0)


class Helped(msgspec.Struct, kw_only=True):
    """What one turn and its helpers came to.

    Attributes:
        tokens: that the helpers said.
        prompt_tokens: of one helper's prompt.
        evaluated: of all their prompts, those that were not in the cache.
    """

    seconds: float = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    evaluated: int = 0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


async def helped_pairs(folder: Path, model: str, count: int) -> list[tuple[Helped, Helped]]:
    """Return so many turns with four helpers at once, each with one that has them in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = (
        f'[providers.models.real]\nkind = "local"\nmodel = "{model}"\n'
        f"[agent]\nhelpers = {HELPERS}\n[engine]\nn_parallel = {STREAMS}\n"
    )
    async with daemon_in(folder, tables) as inside:
        await inside.ask(LoadModel(name=model), OWNER)  # whoever has helpers has it loaded
        pairs = []
        for number in range(count):
            sides = [await _turn(inside, way, number) for way in (TOGETHER, IN_TURN)]
            pairs.append((sides[0], sides[1]))
        return pairs


async def _turn(inside: Inside, way: str, number: int) -> Helped:
    found = Helped()
    provider = inside.daemon.state.providers["real"]
    answer = provider.chat

    async def chat(request: ChatRequest) -> AsyncIterator[Delta]:
        if way in (request.messages[0].content or ""):
            for delta in _played(request, way, number):
                yield delta
            return
        sampling = msgspec.structs.replace(
            request.sampling or Sampling(),
            max_tokens=ANSWER_TOKENS,
            logit_bias=NO_END,
        )
        async for delta in answer(msgspec.structs.replace(request, sampling=sampling)):
            if isinstance(delta, CallDelta):
                continue
            if isinstance(delta, TextDelta):
                delta = TextDelta(text=SAID)
            if isinstance(delta, PromptEvaluated):
                found.prompt_tokens = delta.tokens
                found.evaluated += delta.tokens - delta.cached
            elif isinstance(delta, Finished):
                found.tokens += delta.usage.completion_tokens
                delta = msgspec.structs.replace(delta, reason="length")
            yield delta

    provider.chat = chat  # type: ignore[method-assign]
    began = time.perf_counter()
    try:
        ticket = await inside.daemon.inbox.submit(IncomingMessage(text=way, provider="real"), OWNER)
        async for _event in ticket.events:
            pass
        await ticket.finished()
    finally:
        provider.chat = answer  # type: ignore[method-assign]
    found.seconds = time.perf_counter() - began
    return found


def _played(request: ChatRequest, way: str, number: int) -> list[Delta]:
    """Return what the turn that has helpers says: their tasks, all at once or the next, or done."""
    had = sum(message.role == "tool" for message in request.messages)
    wanted = range(had, HELPERS if way == TOGETHER else min(had + 1, HELPERS))
    deltas: list[Delta] = []
    for index, task in enumerate(wanted):
        about = TASKS[(number + task) % len(TASKS)]
        arguments = msgspec.json.encode({"task": f"Tell a long story about {about}."}).decode()
        deltas.append(CallDelta(index=index, id=f"call-{task}", name="delegate"))
        deltas.append(CallDelta(index=index, arguments=arguments))
    if deltas:
        return [*deltas, Finished(reason="tool_calls", usage=_NONE)]
    return [TextDelta(text="done"), Finished(reason="stop", usage=_NONE)]
