"""Answers in Ollama's words, as properties of every answer there can be."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clawd.channels.http.model_api import GatewayEvent
from clawd.channels.http.ollama.chat import Form, OllamaAnswer
from clawd.errors import ProviderError
from clawd.providers.base import CallDelta, Failed, Finished
from clawd.wire.events import PromptProgress, ReasoningDelta, TextDelta, ToolRequested
from tests.channels.http.answers import CUTS, Named, answers, folded
from tests.channels.http.told import EVALUATED, finished, reread_lines

FORMS: st.SearchStrategy[Form] = st.sampled_from(["chat", "generate"])
TIMES = ("total_duration", "load_duration")


def streamed(form: Form, events: list[GatewayEvent], **how: Any) -> bytes:
    answer = OllamaAnswer(form, **how)
    pieces = [*answer.begin(Named())]
    for event in events:
        pieces += answer.take(event)
    return b"".join(pieces)


def whole(form: Form, events: list[GatewayEvent], **how: Any) -> dict[str, Any]:
    value: dict[str, Any] = OllamaAnswer(form, **how).whole(Named(), folded(events))
    return value


def gathered(form: Form, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the whole answer that the lines of a stream tell; only the last is done."""
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    places = [line if form == "generate" else line["message"] for line in lines]
    text = "response" if form == "generate" else "content"
    found: dict[str, Any] = {
        text: "".join(place[text] for place in places),
        "thinking": "".join(place.get("thinking", "") for place in places),
        "tool_calls": [call for place in places for call in place.get("tool_calls", [])],
    }
    if form == "chat":
        assert all(place["role"] == "assistant" for place in places)
        return lines[-1] | {"message": found}
    return lines[-1] | found


def settled(form: Form, value: dict[str, Any]) -> dict[str, Any]:
    """Return a whole answer without what differs from one to the next."""
    empty = {"thinking": "", "tool_calls": []}
    told = {name: each for name, each in value.items() if name not in {*TIMES, "created_at"}}
    if form == "generate":
        return empty | told
    message = {name: each for name, each in told["message"].items() if name != "role"}
    return told | {"message": empty | message}


@given(FORMS, answers(), CUTS)
def test_a_stream_in_any_pieces_tells_the_whole_answer(
    form: Form, events: list[GatewayEvent], cuts: list[int]
) -> None:
    data = streamed(form, events)
    lines = reread_lines(data, cuts)
    assert lines == reread_lines(data)
    assert settled(form, gathered(form, lines)) == settled(form, whole(form, events))


def test_a_stream_is_just_these_lines() -> None:
    events: list[GatewayEvent] = [
        PromptProgress(processed=1, cached=0, total=30),
        EVALUATED,
        ReasoningDelta(text="hm"),
        TextDelta(text="Good\u2028day"),
        CallDelta(index=0, id="call_1", name="look"),
        CallDelta(index=0, arguments='{"at": 1}'),
        finished("tool_calls"),
    ]
    lines = reread_lines(streamed("chat", events))
    assert all(line.pop("created_at").endswith("Z") for line in lines)
    total, load = (lines[-1].pop(name) for name in TIMES)
    assert total > 0 and load >= 0
    head = {"model": "told-model", "done": False}

    def said(content: str = "", **more: Any) -> dict[str, Any]:
        return head | {"message": {"role": "assistant", "content": content} | more}

    call = {"id": "call_1", "function": {"index": 0, "name": "look", "arguments": {"at": 1}}}
    assert lines == [
        said(thinking="hm"),
        said("Good\u2028day"),
        said(tool_calls=[call]),
        said()
        | {
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 30,
            "prompt_eval_duration": 5_000_000,
            "eval_count": 7,
            "eval_duration": 140_000_000,
        },
    ]


def test_generate_has_text_and_thoughts_beside_each_other() -> None:
    events: list[GatewayEvent] = [
        ReasoningDelta(text="hm"),
        TextDelta(text="yes"),
        finished("length"),
    ]
    value = whole("generate", events)
    assert (value["response"], value["thinking"]) == ("yes", "hm")
    assert (value["done"], value["done_reason"]) == (True, "length")
    assert "message" not in value


def test_thoughts_are_left_out_where_nobody_wants_them() -> None:
    events: list[GatewayEvent] = [ReasoningDelta(text="hm"), TextDelta(text="yes"), finished()]
    for form in ("chat", "generate"):
        assert b"hm" not in streamed(form, events, shows_thoughts=False)
        assert "hm" not in str(whole(form, events, shows_thoughts=False))


def test_durations_are_whole_numbers_also_where_nobody_tells_any() -> None:
    value = whole("chat", [TextDelta(text="a"), Finished(reason="stop")])
    for name in (*TIMES, "prompt_eval_duration", "eval_duration", "eval_count"):
        assert isinstance(value[name], int), name
        assert value[name] >= 0


def test_what_clawd_does_by_itself_is_no_line_of_the_answer() -> None:
    call = ToolRequested(call_id="1", tool="time", arguments="{}")
    events: list[GatewayEvent] = [EVALUATED, call, TextDelta(text="noon"), finished()]
    assert [line["message"]["content"] for line in reread_lines(streamed("chat", events))] == [
        "noon",
        "",
    ]


def test_nothing_keeps_a_stream_alive_for_every_line_is_read_as_an_answer() -> None:
    assert OllamaAnswer("chat").ping == b""


def test_a_late_error_is_a_line() -> None:
    events: list[GatewayEvent] = [Failed(error=ProviderError("it broke", kind="network"))]
    assert reread_lines(streamed("chat", events)) == [{"error": "it broke"}]
