"""How many tokens a request takes, with and without a tokenizer and a report of the model."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from clawd.providers.base import ChatRequest, Message, ToolSpec
from clawd.providers.ledger import PartTokens, parts_of
from clawd.runtime.compression import (
    TEMPLATE_TOKENS,
    count_messages,
    count_parts,
    count_request,
    surely_fits,
)
from tests.runtime.counting_model import CountingModel, tokens_of
from tests.runtime.models import PlannedModel, says

REQUEST = ChatRequest(
    system="one two three",
    tools=(ToolSpec(name="probe", description="four five", parameters={}),),
    messages=(
        Message(role="user", content="<context>\ndate: today\n</context>\n\nhello there"),
        Message(role="assistant", content="an answer of mine"),
        Message(role="user", content="and now"),
    ),
)
MODEL = CountingModel(1_000, lambda _: says("x"))


class Mute(CountingModel):
    """A tokenizer that never answers."""

    async def count_parts(self, request: ChatRequest) -> PartTokens:
        await asyncio.Event().wait()
        return PartTokens(parts=(), counts=())


async def test_each_message_has_its_block_and_what_a_template_adds() -> None:
    count = await count_request(MODEL, REQUEST, known_tokens=0)
    assert count.each == tuple(n + TEMPLATE_TOKENS for n in (5, 4, 2))
    assert count.fixed == 3 + len(parts_of(REQUEST)[1].text.split())
    assert count.total == count.fixed + sum(count.each)
    messages = await count_messages(MODEL, REQUEST.messages, model="", scale=2.0)
    assert messages == [2 * each for each in count.each]


async def test_what_the_model_reported_is_the_truth() -> None:
    plain = await count_request(MODEL, REQUEST, known_tokens=0)
    told = await count_request(MODEL, REQUEST, known_tokens=400)
    assert told.total == 400 + plain.each[-1]
    assert told.scale == 4.0
    near = await count_request(MODEL, REQUEST, known_tokens=60)
    assert abs(near.total - 60 - plain.each[-1]) <= 3
    # A tokenizer's own count is never made smaller: what was known may lack the last answer.
    lacking = sum(plain.each[:1]) + plain.fixed
    assert (await count_request(MODEL, REQUEST, known_tokens=lacking)).total == plain.total
    guess = await count_request(PlannedModel(says("x")), REQUEST, known_tokens=0)
    dropped = await count_request(MODEL, REQUEST, known_tokens=12)
    assert dropped.total <= 12 + plain.each[-1] + 2
    again = await count_request(MODEL, REQUEST, known_tokens=0, measure=told.measure)
    assert again == told
    less = await count_request(PlannedModel(says("x")), REQUEST, known_tokens=30)
    assert less.total < guess.total


async def test_without_a_tokenizer_and_with_a_slow_one_it_is_an_estimate() -> None:
    assert (await count_parts(PlannedModel(says("x")), REQUEST)).is_estimate
    assert (await count_parts(Mute(1, lambda _: says("x")), REQUEST, patience_s=0.01)).is_estimate
    assert not (await count_parts(MODEL, REQUEST)).is_estimate


words = st.text("ab ", max_size=60)
talks = st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), words), max_size=9)


@given(talks, st.integers(1, 2_000))
def test_what_surely_fits_does_fit(talk: list[tuple[str, str]], limit: int) -> None:
    messages = tuple(Message(role=role, content=text) for role, text in talk)  # type: ignore[arg-type]
    answers = [n for n, message in enumerate(messages) if message.role == "assistant"]
    read = messages[: answers[-1]] if answers else ()
    known = tokens_of(ChatRequest(messages=read))
    if surely_fits(ChatRequest(messages=messages), known, limit):
        assert tokens_of(ChatRequest(messages=messages)) <= limit
    assert not surely_fits(ChatRequest(messages=messages), 0, limit)
