"""/v1/completions: what its bodies become, and its answers, read raw from the socket."""

from typing import Any

from clawd import __version__
from clawd.engine.protocol import TokenLogprob
from clawd.errors import ProviderError
from clawd.providers.base import Failed, Finished, Sampling, ScoredText
from clawd.wire.events import PromptProgress, TextDelta
from tests.channels.http.openai.rig import HELLO, USAGE, Answer, Door, door
from tests.support.rows import each_row


async def complete(at: Door, **body: Any) -> Answer:
    return await at.post("/v1/completions", {"prompt": "Say", **body})


def said(answer: Answer, index: int = 0) -> str:
    return "".join(
        choice["text"]
        for chunk in answer.data()
        for choice in chunk["choices"]
        if choice["index"] == index
    )


@each_row(
    ("prompt", "prompts"),
    [
        ("Say", ["Say"]),
        ([1, 2, 3], [(1, 2, 3)]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2, 3]], [(1,), (2, 3)]),
        (["a", [4]], ["a", (4,)]),
    ],
)
async def test_a_prompt_is_text_tokens_or_a_list_of_them(prompt: Any, prompts: list[Any]) -> None:
    async with door() as at:
        answer = await complete(at, prompt=prompt)
        assert [each.prompt for each in at.generations.asked] == prompts
        assert all(each.is_plain and not each.inject for each in at.generations.asked)
    assert [each["index"] for each in answer.json()["choices"]] == list(range(len(prompts)))


async def test_a_whole_completion_has_every_field() -> None:
    async with door() as at:
        told = (await complete(at, model="m", suffix=None, stop=["x"], max_tokens=5)).json()
        assert at.asked.sampling == Sampling(stop=("x",), max_tokens=5)
    assert told.pop("id").startswith("cmpl-")
    assert isinstance(told.pop("created"), int)
    assert told == {
        "object": "text_completion",
        "model": "m",
        "system_fingerprint": f"clawd-{__version__}",
        "choices": [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 3,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }


async def test_a_stream_has_chunks_of_the_same_kind_and_usage_if_asked_for() -> None:
    async with door() as at:
        quiet = await complete(at, stream=True)
        counted = await complete(at, stream=True, stream_options={"include_usage": True})
    assert {chunk["object"] for chunk in quiet.data()} == {"text_completion"}
    assert said(quiet) == "Hello"
    assert quiet.data()[-1]["choices"][0]["finish_reason"] == "stop"
    assert all("usage" not in chunk for chunk in quiet.data())
    assert counted.data()[-1]["choices"] == []
    assert counted.data()[-1]["usage"]["total_tokens"] == 14


@each_row("stream", [False, True])
async def test_an_echo_puts_the_prompt_before_each_answer(stream: bool) -> None:
    async with door() as at:
        answer = await complete(at, prompt=["A: ", "B: "], n=2, echo=True, stream=stream)
    texts = (
        [said(answer, index) for index in range(4)]
        if stream
        else [each["text"] for each in answer.json()["choices"]]
    )
    assert texts == ["A: Hello", "A: Hello", "B: Hello", "B: Hello"]


@each_row("stream", [False, True])
async def test_each_prompt_is_counted_once_however_many_choices_it_has(stream: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    async with door() as at:
        answer = await complete(at, prompt=["A: ", "B: "], n=2, stream=stream, **options)
    usage = (answer.data()[-1] if stream else answer.json())["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (22, 12)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 8}


@each_row("stream", [False, True])
async def test_log_probabilities_have_the_old_form(stream: bool) -> None:
    tokens = (
        TokenLogprob(token=0, piece="Hé".encode(), logprob=-0.25),
        TokenLogprob(token=0, piece=b"llo", logprob=float("-inf")),
    )
    end = Finished(reason="length", usage=USAGE, logprobs=tokens)
    async with door((TextDelta(text="Hé"), TextDelta(text="llo"), end)) as at:
        answer = await complete(at, logprobs=0, stream=stream)
        assert (at.asked.sampling.logprobs, at.asked.sampling.top_logprobs) == (True, 0)
    choices = (
        [choice for chunk in answer.data() for choice in chunk["choices"]]
        if stream
        else answer.json()["choices"]
    )
    (told,) = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert told == {
        "tokens": ["Hé", "llo"],
        "token_logprobs": [-0.25, -10000.0],
        "top_logprobs": [{}, {}],
        "text_offset": [0, 2],
    }
    assert choices[-1]["finish_reason"] == "length"


async def test_offsets_of_tokens_go_on_from_piece_to_piece() -> None:
    def piece(text: str) -> TextDelta:
        token = TokenLogprob(token=0, piece=text.encode(), logprob=-1.0)
        return ScoredText(text=text, logprobs=(token,))

    async with door((piece("ab"), piece("c"), HELLO[-1])) as at:
        chunks = (await complete(at, logprobs=1, stream=True)).data()
    offsets = [
        offset
        for chunk in chunks
        for choice in chunk["choices"]
        for offset in (choice["logprobs"] or {"text_offset": []})["text_offset"]
    ]
    assert offsets == [0, 2]


async def test_progress_is_told_in_llama_cpps_words() -> None:
    events = (PromptProgress(processed=5, cached=0, total=5), *HELLO)
    async with door(events) as at:
        chunks = (await complete(at, stream=True, return_progress=True)).data()
    told = [chunk["prompt_progress"]["processed"] for chunk in chunks if "prompt_progress" in chunk]
    assert told == [0, 5]


async def test_a_failure_in_the_middle_is_an_error_event_and_then_the_end() -> None:
    broken = (
        TextDelta(text="He"),
        Failed(error=ProviderError("gone", kind="network"), partial=True),
    )
    async with door(broken) as at:
        answer = await complete(at, stream=True)
        whole = await complete(at)
    assert answer.events()[-1][1]["error"]["message"] == "gone"
    assert b"[DONE]" not in answer.body
    assert whole.status == 502
