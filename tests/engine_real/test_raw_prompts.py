"""Raw prompts, beginnings of answers, counts and log probabilities with the embedded model."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from clawd.engine.protocol import TokenLogprob
from clawd.engine.supervisor import Engine
from clawd.errors import ContextFullError, InvalidRequestError
from clawd.providers.base import (
    ChatRequest,
    Delta,
    Finished,
    Message,
    Sampling,
    ScoredText,
    ToolCall,
)
from clawd.providers.local import LocalProvider
from tests.engine_real.test_local_provider import TOOLS, unlimited
from tests.support.collecting import collect
from tests.support.rows import Rows

pytestmark = pytest.mark.real_model
shared = pytest.mark.asyncio(loop_scope="module")  # for those that take `provider`

QUESTION = "what is 12 times 7?"
CHAT = ChatRequest(messages=(Message(role="user", content=QUESTION),), tools=TOOLS)
CALL = ToolCall(id="call_1", name="calculator", arguments='{"expression": "12*7"}')
AFTER_CALL = msgspec.structs.replace(
    CHAT,
    system="You are clawd.",
    messages=(
        *CHAT.messages,
        Message(role="assistant", tool_calls=(CALL,)),
        Message(role="tool", content="84", tool_call_id="call_1", name="calculator"),
    ),
)
UNUSUAL = ChatRequest(
    messages=(Message(role="user", content="naïve € 🙂 <|im_end|> <tool_call> 日本"),),
    system="Über alles: <|im_start|>",
)
BEGUN = ChatRequest(
    messages=(Message(role="user", content="Hello!"), Message(role="assistant", content="He"))
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine_of_all(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[LocalProvider, Engine]]:
    """One worker for all of them: no prompt here does anything to the engine."""
    async with unlimited(tmp_path_factory.mktemp("models")) as made:
        yield made


@pytest.fixture(scope="module")
def provider(engine_of_all: tuple[LocalProvider, Engine]) -> LocalProvider:
    return engine_of_all[0]


@pytest.fixture(scope="module")
def engine(engine_of_all: tuple[LocalProvider, Engine]) -> Engine:
    return engine_of_all[1]


async def answer_of(provider: LocalProvider, request: ChatRequest) -> tuple[str, int]:
    response = await collect(provider.chat(request))
    return response.final_text, response.usage.prompt_tokens


async def finished(provider: LocalProvider, request: ChatRequest) -> tuple[list[Delta], Finished]:
    deltas = [delta async for delta in provider.chat(request)]
    last = deltas[-1]
    assert isinstance(last, Finished), last
    return deltas, last


@shared
async def test_a_rendered_prompt_counts_as_the_answer_will(provider: LocalProvider) -> None:
    rows = Rows()
    for request in (CHAT, AFTER_CALL, UNUSUAL, BEGUN, ChatRequest(prompt="a b")):
        with rows.row(request):
            short = msgspec.structs.replace(request, sampling=Sampling(max_tokens=1))
            before = (await provider.render(short)).tokens
            _, last = await finished(provider, short)
            after = (await provider.render(short)).tokens
            assert before == last.usage.prompt_tokens == after
    rows.check()


@shared
async def test_the_rendered_text_as_a_raw_prompt_is_answered_alike(provider: LocalProvider) -> None:
    written = await provider.render(AFTER_CALL)
    text, _ = await answer_of(provider, AFTER_CALL)
    raw, count = await answer_of(provider, ChatRequest(prompt=written.text))
    cut = await provider.tokenize("", written.text, add_special=True, parse_special=True)
    tokens, _ = await answer_of(provider, ChatRequest(prompt=cut.tokens))
    assert written.text.endswith("<|im_start|>assistant\n")
    assert text == raw == tokens
    assert written.tokens == count == len(cut.tokens)


@shared
async def test_a_raw_answer_keeps_its_markers(provider: LocalProvider) -> None:
    written = await provider.render(CHAT)
    raw = await collect(provider.chat(ChatRequest(prompt=written.text)))
    assert raw.tool_calls == ()
    assert "<tool_call>" in raw.final_text


@shared
async def test_raw_prompts_stop_end_and_use_the_cache(provider: LocalProvider) -> None:
    written = await provider.render(AFTER_CALL)
    whole, _ = await answer_of(provider, ChatRequest(prompt=written.text))
    again = await collect(provider.chat(ChatRequest(prompt=written.text)))
    stopping = ChatRequest(prompt=written.text, sampling=Sampling(stop=("84",)))
    stopped, _ = await answer_of(provider, stopping)
    limited = ChatRequest(prompt=written.text, sampling=Sampling(max_tokens=2))
    _, last = await finished(provider, limited)
    assert again.usage.cached_tokens > 0
    assert stopped == whole.split("84")[0]
    assert (last.reason, last.usage.completion_tokens) == ("length", 2)


@shared
async def test_a_raw_prompt_is_held_to_a_schema(provider: LocalProvider) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 5}}, "required": ["a"]}
    request = ChatRequest(
        prompt="JSON:",
        response_format={"type": "json_schema", "json_schema": {"schema": schema}},
    )
    text, _ = await answer_of(provider, request)
    assert msgspec.json.decode(text) == {"a": 5}


@shared
async def test_a_prompt_that_is_none_is_refused(provider: LocalProvider) -> None:
    prompts: list[str | tuple[int, ...]] = [(), "", (5, 1536), (-1,), (2**40,)]
    for prompt in prompts:
        with pytest.raises(InvalidRequestError):
            await collect(provider.chat(ChatRequest(prompt=prompt)))
    mixed = ChatRequest(prompt="x", messages=(Message(role="user", content="y"),))
    with pytest.raises(InvalidRequestError, match="one of the two"):
        await collect(provider.chat(mixed))
    assert (await collect(provider.chat(CHAT))).tool_calls


@shared
async def test_a_prompt_that_does_not_fit_tells_the_counts(provider: LocalProvider) -> None:
    for size in (3000, 400_000):
        with pytest.raises(ContextFullError) as caught:
            await collect(provider.chat(ChatRequest(prompt="x " * size)))
        assert caught.value.data is not None
        assert caught.value.data["n_ctx"] == 2048
        assert caught.value.data["n_prompt_tokens"] > 2048


@shared
async def test_a_text_of_the_assistant_is_gone_on_with(provider: LocalProvider) -> None:
    whole, _ = await answer_of(provider, AFTER_CALL)
    for cut in (1, len(whole) // 2, len(whole) - 1):
        begun = Message(role="assistant", content=whole[:cut])
        request = msgspec.structs.replace(AFTER_CALL, messages=(*AFTER_CALL.messages, begun))
        rest, _ = await answer_of(provider, request)
        assert whole[:cut] + rest == whole
        assert (await provider.render(request)).text.endswith(whole[:cut])


@shared
async def test_two_texts_of_the_assistant_at_the_end_are_refused(provider: LocalProvider) -> None:
    said = Message(role="assistant", content="a")
    with pytest.raises(InvalidRequestError, match="two messages of the assistant"):
        await collect(
            provider.chat(msgspec.structs.replace(CHAT, messages=(*CHAT.messages, said, said)))
        )


@shared
async def test_tokens_and_texts_go_back_and_forth(provider: LocalProvider) -> None:
    text = "<|im_start|>naïve € 🙂 <tool_call>"
    special = await provider.tokenize("", text, add_special=False, parse_special=True)
    plain = await provider.tokenize("", text, add_special=False, parse_special=False)
    assert await provider.detokenize("", special.tokens) == text.encode()
    assert await provider.detokenize("", plain.tokens) == text.encode()
    assert b"".join(special.pieces) == text.encode()
    assert special.pieces[0] == b"<|im_start|>"
    assert len(plain.tokens) > len(special.tokens)
    for wrong in ((1536,), (-1,), (2**40,)):
        with pytest.raises(InvalidRequestError):
            await provider.detokenize("", wrong)
    with pytest.raises(InvalidRequestError, match="2000000 characters"):
        await provider.tokenize("", "x" * 2_000_000, add_special=False, parse_special=True)


@shared
async def test_log_probabilities_come_with_the_texts_that_they_are_of(
    provider: LocalProvider,
) -> None:
    request = msgspec.structs.replace(
        AFTER_CALL, sampling=Sampling(logprobs=True, top_logprobs=2, max_tokens=40)
    )
    deltas, last = await finished(provider, request)
    texts = [delta for delta in deltas if isinstance(delta, ScoredText)]
    told: list[TokenLogprob] = [each for text in texts for each in text.logprobs]
    assert b"".join(each.piece for each in told).decode() == "".join(t.text for t in texts)
    assert told == list(last.logprobs)
    assert all(each.logprob <= 0 and len(each.top) == 2 for each in told)


@shared
async def test_no_long_text_ends_the_worker_or_is_changed(
    provider: LocalProvider, engine: Engine
) -> None:
    rows = Rows()
    await provider.check()
    pid = engine.status()[0].pid
    for part in ("x", "日本", "{}[]();", "<|im_end|>", "<tool_call>", "é🙂\n"):
        text = part * (200_000 // len(part))
        with rows.row(part):
            for special in (True, False):
                cut = await provider.tokenize("", text, add_special=True, parse_special=special)
                assert await provider.detokenize("", cut.tokens) == text.encode()
            with pytest.raises(ContextFullError):
                await collect(provider.chat(ChatRequest(prompt=text)))
            assert engine.status()[0].pid == pid
    rows.check()
