"""Streams of any events, cut anywhere, read back to what they were made of."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.channels.http.answering import ManyDialect, One
from clawd.channels.http.model_api import (
    Answered,
    Folding,
    GatewayEvent,
    Generation,
    ModelRequest,
)
from clawd.channels.http.openai.chat import AnswerOptions, ChatAnswer
from clawd.channels.http.openai.completions import CompletionAnswer
from clawd.channels.http.openai.responses import ResponseAnswer, ResponseAsked
from clawd.engine.protocol import TokenLogprob
from clawd.providers.base import CallDelta, Delta, Finished, Message, ScoredText
from clawd.providers.http import SseParser
from clawd.providers.openai import OpenAIAnswer
from clawd.wire.events import (
    HopUsage,
    Notice,
    PromptEvaluated,
    PromptProgress,
    ReasoningDelta,
)
from tests.channels.http.openai.rig import Fixed

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
USAGE = HopUsage(prompt_tokens=5, cached_tokens=1, completion_tokens=7)


@st.composite
def call_pieces(draw: st.DrawFn, index: int) -> list[GatewayEvent]:
    value = draw(st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none()), max_size=3))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    opening = CallDelta(index=index, id=f"call_{index}", name=draw(st.sampled_from(["f", "g"])))
    return [opening, *(CallDelta(index=index, arguments=piece) for piece in pieces)]


@st.composite
def transcripts(draw: st.DrawFn) -> list[GatewayEvent]:
    events: list[GatewayEvent] = []
    if draw(st.booleans()):
        total = draw(st.integers(1, 50))
        events.append(PromptProgress(processed=draw(st.integers(0, total)), cached=0, total=total))
        events.append(
            PromptEvaluated(
                tokens=total, cached=0, elapsed_ms=1, context_used=total, context_size=99
            )
        )
    events += [ReasoningDelta(text=text) for text in draw(st.lists(TEXTS, max_size=3))]
    for text in draw(st.lists(TEXTS, max_size=4)):
        token = TokenLogprob(token=0, piece=text.encode(), logprob=-1.0)
        events.append(ScoredText(text=text, logprobs=(token,)))
    events += draw(st.sampled_from([[], [Notice(level="info", text="beside")]]))
    lists = [draw(call_pieces(index)) for index in range(draw(st.integers(0, 3)))]
    while any(lists):
        chosen = draw(st.sampled_from([each for each in lists if each]))
        events.append(chosen.pop(0))
    is_cut = draw(st.booleans())
    return [*events, Finished(reason="length" if is_cut else "stop", usage=USAGE)]


@st.composite
def cuts_of(draw: st.DrawFn) -> list[int]:
    return draw(st.lists(st.integers(1, 40), min_size=1, max_size=20))


def written(dialect: ManyDialect, events: Sequence[GatewayEvent]) -> bytes:
    generation: Generation = Fixed(events, "tiny", "")
    pieces = [*dialect.begin([generation])]
    for event in events:
        pieces += [dialect.ping, *dialect.take(0, event)]
    return b"".join([*pieces, *dialect.end()])


def folded(events: Sequence[GatewayEvent]) -> Answered:
    folding = Folding()
    answers = [folding.add(event) for event in events]
    assert answers[-1] is not None
    return answers[-1]


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut bytes into pieces whose sizes repeat; nothing says where characters end."""
    pieces, at, number = [], 0, 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        pieces.append(data[at : at + size])
        at, number = at + size, number + 1
    return pieces


def values(data: bytes, sizes: list[int]) -> list[tuple[str, str]]:
    parser = SseParser()
    events = [event for piece in cut(data, sizes) for event in parser.feed(piece)]
    return [(event.event, event.data) for event in [*events, *parser.finish()]]


@settings(max_examples=60, deadline=None)
@given(events=transcripts(), sizes=cuts_of(), loud=st.booleans())
def test_a_chat_stream_read_back_by_a_client_is_what_it_was_made_of(
    events: list[GatewayEvent], sizes: list[int], loud: bool
) -> None:
    telling = AnswerOptions(
        stream=True, usage=True, events=loud, progress=loud, llama_progress=loud
    )
    data = written(ChatAnswer(telling), events)
    reader = OpenAIAnswer("test", "tiny")
    deltas: list[Delta] = []
    for _, value in values(data, sizes):
        deltas += reader.take(value)
    assert reader.is_done and reader.has_reason and not reader.missed_index
    deltas += reader.finish()
    mine, theirs = folded(events), folded(deltas)
    assert (theirs.text, theirs.reasoning, theirs.calls) == (mine.text, mine.reasoning, mine.calls)
    assert msgspec.structs.replace(theirs.usage, tokens_per_s=0.0) == USAGE
    whole = ChatAnswer(telling).whole([Fixed(events, "tiny", "")], [mine])
    reader = OpenAIAnswer("test", "tiny")
    again = folded([*reader.take(json.dumps(whole)), *reader.finish()])
    assert (again.text, again.reasoning, again.calls) == (mine.text, mine.reasoning, mine.calls)
    assert msgspec.structs.replace(again.usage, tokens_per_s=0.0) == USAGE


@settings(max_examples=60, deadline=None)
@given(events=transcripts(), sizes=cuts_of())
def test_pieces_of_a_chat_stream_join_to_the_answer_and_never_leave_valid_json(
    events: list[GatewayEvent], sizes: list[int]
) -> None:
    data = written(ChatAnswer(AnswerOptions(stream=True)), events)
    chunks = [json.loads(value) for _, value in values(data, sizes)[:-1]]
    mine = folded(events)
    tokens, arguments = "", {call.id: "" for call in mine.calls}
    ids: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            tokens += "".join(
                one["token"] for one in (choice["logprobs"] or {"content": []})["content"]
            )
            for piece in choice["delta"].get("tool_calls", []):
                ids.setdefault(piece["index"], piece.get("id", ""))
                arguments[ids[piece["index"]]] += piece["function"]["arguments"]
                for call in mine.calls:
                    assert call.arguments.startswith(arguments[call.id])
    assert tokens == mine.text
    assert arguments == {call.id: call.arguments for call in mine.calls}


@settings(max_examples=60, deadline=None)
@given(events=transcripts(), sizes=cuts_of(), summarises=st.booleans(), loud=st.booleans())
def test_a_response_stream_is_what_the_whole_response_says(
    events: list[GatewayEvent], sizes: list[int], summarises: bool, loud: bool
) -> None:
    asked = ResponseAsked(
        request=ModelRequest(messages=(Message(role="user", content="a"),)),
        events=loud,
        progress=loud,
        summarises=summarises,
    )
    found = values(written(One(ResponseAnswer(asked)), events), sizes)
    told = [(name, json.loads(value)) for name, value in found]
    assert [value["sequence_number"] for _, value in told] == list(range(len(told)))
    assert all(value["type"] == name for name, value in told)
    last = told[-1][1]["response"]
    whole = ResponseAnswer(asked).whole(Fixed(events, "tiny", ""), folded(events))
    assert _without_ids(last) == _without_ids(json.loads(msgspec.json.encode(whole)))
    assert _rebuilt(told) == [_content(item) for item in last["output"]]


@settings(max_examples=40, deadline=None)
@given(events=transcripts(), sizes=cuts_of(), before=st.one_of(st.just(""), TEXTS))
def test_a_completion_stream_joins_to_the_whole(
    events: list[GatewayEvent], sizes: list[int], before: str
) -> None:
    told = values(written(CompletionAnswer(AnswerOptions(), before=[before]), events), sizes)
    assert told[-1] == ("", "[DONE]")
    text = "".join(
        choice["text"] for _, value in told[:-1] for choice in json.loads(value)["choices"]
    )
    whole = CompletionAnswer(AnswerOptions(), before=[before]).whole(
        [Fixed(events, "tiny", "")], [folded(events)]
    )
    assert text == whole["choices"][0]["text"] == before + folded(events).text


def _without_ids(response: dict[str, Any]) -> dict[str, Any]:
    output = [
        {name: value for name, value in item.items() if name != "id"} for item in response["output"]
    ]
    for item in output:
        for part in item.get("content", []):
            part.pop("logprobs", None)
    kept = {name: response[name] for name in ("status", "usage", "incomplete_details", "model")}
    return kept | {"output": output}


def _rebuilt(told: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return the content of each item, joined from deltas alone."""
    contents: dict[int, str] = {}
    for name, value in told:
        if name == "response.output_item.added":
            contents[value["output_index"]] = ""
        elif name.startswith("response.") and name.endswith(".delta"):
            contents[value["output_index"]] += value["delta"]
    return [contents[index] for index in sorted(contents)]


def _content(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    parts = item["summary"] or item["content"] if item["type"] == "reasoning" else item["content"]
    return "".join(part["text"] for part in parts)
