"""Answers in Anthropic's words, as properties of every answer there can be."""

from typing import Any

from hypothesis import given

from clawd.channels.http.anthropic import MessagesAnswer
from clawd.channels.http.model_api import GatewayEvent
from clawd.errors import ContextFullError
from clawd.providers.base import CallDelta, Failed, Finished
from clawd.wire.events import ReasoningDelta, TextDelta, ToolFinished, ToolRequested
from tests.channels.http.answers import CUTS, Named, answers, folded
from tests.channels.http.anthropic.reading import message_of
from tests.channels.http.told import EVALUATED, finished, reread_sse


def streamed(events: list[GatewayEvent], **how: Any) -> bytes:
    answer = MessagesAnswer(**how)
    pieces = [*answer.begin(Named())]
    for event in events:
        pieces += answer.take(event)
    return b"".join(pieces)


def whole(events: list[GatewayEvent], **how: Any) -> dict[str, Any]:
    value: dict[str, Any] = MessagesAnswer(**how).whole(Named(), folded(events))
    return value


def joined(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its thoughts and its text each in one piece."""
    content = message["content"]
    of_kind = {kind: [b for b in content if b["type"] == kind] for kind in ("thinking", "text")}
    return message | {
        "id": "",
        "content": [
            "".join(block["thinking"] for block in of_kind["thinking"]),
            "".join(block["text"] for block in of_kind["text"]),
            *(block for block in content if block["type"] == "tool_use"),
        ],
    }


@given(answers(), CUTS)
def test_a_stream_in_any_pieces_tells_the_whole_answer(
    events: list[GatewayEvent], cuts: list[int]
) -> None:
    data = streamed(events)
    assert reread_sse(data, cuts) == reread_sse(data)
    assert joined(message_of(reread_sse(data, cuts))) == joined(whole(events))


def test_a_stream_is_just_these_events() -> None:
    events: list[GatewayEvent] = [
        EVALUATED,
        ReasoningDelta(text="hm"),
        TextDelta(text="He"),
        TextDelta(text="llo"),
        CallDelta(index=0, id="call_1", name="look"),
        CallDelta(index=0, arguments='{"at":'),
        CallDelta(index=0, arguments="1}"),
        finished("tool_calls"),
    ]
    told = reread_sse(streamed(events))
    assert [name for name, _ in told] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    values = [value for _, value in told]
    message_id = values[0]["message"].pop("id")
    assert message_id.startswith("msg_")
    before = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 12}
    assert values[0]["message"] == {
        "type": "message",
        "role": "assistant",
        "model": "told-model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 18, "output_tokens": 0} | before,
    }
    assert values[3]["delta"] == {"type": "signature_delta", "signature": ""}
    assert values[9]["content_block"] == {
        "type": "tool_use",
        "id": "call_1",
        "name": "look",
        "input": {},
    }
    assert values[13] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"input_tokens": 18, "output_tokens": 7} | before,
    }


def test_a_call_without_arguments_is_an_empty_object() -> None:
    events: list[GatewayEvent] = [CallDelta(index=0, id="c", name="now"), finished("tool_calls")]
    (block,) = message_of(reread_sse(streamed(events)))["content"]
    assert block == {"type": "tool_use", "id": "c", "name": "now", "input": {}}


def test_a_call_without_an_id_gets_one() -> None:
    (block,) = message_of(
        reread_sse(streamed([CallDelta(index=0, name="now", arguments="{}"), finished()]))
    )["content"]
    assert block["id"].startswith("toolu_")


def test_why_an_answer_ended_is_told_in_the_words_of_the_dialect() -> None:
    def reason(*events: GatewayEvent) -> Any:
        streamed_one = message_of(reread_sse(streamed(list(events))))
        assert streamed_one["stop_reason"] == whole(list(events))["stop_reason"]
        return streamed_one["stop_reason"], streamed_one["stop_sequence"]

    call = CallDelta(index=0, id="c", name="now", arguments="{}")
    assert reason(TextDelta(text="a"), finished("stop")) == ("end_turn", None)
    assert reason(TextDelta(text="a"), finished("length")) == ("max_tokens", None)
    assert reason(call, finished("tool_calls")) == ("tool_use", None)
    assert reason(call, finished("stop")) == ("tool_use", None)
    assert reason(call, finished("length")) == ("max_tokens", None)
    at = Finished(reason="stop", stopped_by="END")
    assert reason(TextDelta(text="a"), at) == ("stop_sequence", "END")


def test_thoughts_are_left_out_where_nobody_wants_them() -> None:
    events: list[GatewayEvent] = [
        EVALUATED,
        ReasoningDelta(text="hm"),
        TextDelta(text="yes"),
        finished(),
    ]
    for message in (
        message_of(reread_sse(streamed(events, shows_thoughts=False))),
        whole(events, shows_thoughts=False),
    ):
        assert message["content"] == [{"type": "text", "text": "yes"}]


def test_without_a_count_the_start_tells_an_estimate_and_the_end_the_count() -> None:
    told = reread_sse(streamed([TextDelta(text="a"), finished()], estimate=40))
    assert told[0][1]["message"]["usage"]["input_tokens"] == 40
    assert told[-2][1]["usage"]["input_tokens"] == 18


def test_what_clawd_does_by_itself_is_shown_to_those_alone_who_ask() -> None:
    call = ToolRequested(call_id="1", tool="time", arguments="{}")
    done = ToolFinished(
        call_id="1", tool="time", status="allowed", output="noon", receipt_id="r", duration_ms=3
    )
    events: list[GatewayEvent] = [EVALUATED, call, done, TextDelta(text="noon"), finished()]
    silent = reread_sse(streamed(events))
    assert all("clawd" not in name for name, _ in silent)
    told = reread_sse(streamed(events, shows_events=True))
    assert [pair for pair in told if pair[0].startswith("clawd.tool")] == [
        (
            "clawd.tool_call",
            {"type": "clawd.tool_call", "call_id": "1", "tool": "time", "arguments": "{}"},
        ),
        (
            "clawd.tool_result",
            {
                "type": "clawd.tool_result",
                "call_id": "1",
                "tool": "time",
                "status": "allowed",
                "output": "noon",
                "receipt_id": "r",
                "duration_ms": 3,
                "asked": "",
                "exit_code": None,
                "job": "",
            },
        ),
    ]
    rest = [pair for pair in told if not pair[0].startswith("clawd.")]
    assert message_of(rest)["content"] == message_of(silent)["content"]


def test_a_late_error_is_one_event_and_says_in_known_words_that_a_prompt_is_too_long() -> None:
    error = ContextFullError("it does not fit", data={"n_prompt_tokens": 9000, "n_ctx": 4096})
    ((name, value),) = reread_sse(streamed([Failed(error=error)]))
    assert name == "error"
    assert value == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9000 tokens > 4096 maximum; it does not fit",
        },
    }
