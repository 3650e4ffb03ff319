"""Drives a daemon with Anthropic's SDK."""

import asyncio
import json
import os
from typing import Any, Literal

import anthropic
from pydantic import BaseModel

from tests.clients.drivers import saying

CLIENT = anthropic.Anthropic(base_url=saying.URL, api_key=saying.KEY, max_retries=0, timeout=90)
HELLO: Any = [{"role": "user", "content": "hello"}]
ASKED: Any = [{"role": "user", "content": saying.WEATHER}]
TOOLS: Any = [
    {
        "name": "get_weather",
        "description": "Tells the weather.",
        "input_schema": saying.PARAMETERS,
    }
]
SOME: Any = {"model": saying.MODEL, "max_tokens": 1000}


class Liked(BaseModel):
    # The SDK takes bounds of texts out of the schema, and tells them to the model in words.
    name: Literal["Ada", "Grace"]
    color: Literal["red", "green", "blue"]
    likes_it: bool


def chat() -> Any:
    answer = CLIENT.messages.create(**SOME, messages=HELLO, system="Be brief.")
    return {
        "content": [block.model_dump(exclude_none=True) for block in answer.content],
        "end": answer.stop_reason,
        "model": answer.model,
        "usage": answer.usage.model_dump(exclude_none=True),
    }


def by_environment() -> Any:
    os.environ |= {"ANTHROPIC_BASE_URL": saying.URL, "ANTHROPIC_API_KEY": saying.KEY}
    said = anthropic.Anthropic().messages.create(**SOME | {"model": "clawd"}, messages=HELLO)
    return said.content[0].text


def stream() -> Any:
    with CLIENT.messages.stream(**SOME, messages=HELLO) as events:
        pieces = list(events.text_stream)
        last = events.get_final_message()
    raw = list(CLIENT.messages.create(**SOME, messages=HELLO, stream=True))
    return {
        "text": "".join(pieces),
        "whole": last.content[0].text,
        "end": last.stop_reason,
        "usage": last.usage.model_dump(exclude_none=True),
        "kinds": [event.type for event in raw if event.type not in {"ping", "content_block_delta"}],
        "raw": "".join(e.delta.text for e in raw if e.type == "content_block_delta"),
    }


def streamed_async() -> Any:
    async def read() -> str:
        async with (
            anthropic.AsyncAnthropic(base_url=saying.URL, auth_token=saying.KEY) as client,
            client.messages.stream(**SOME, messages=HELLO) as events,
        ):
            return "".join([text async for text in events.text_stream])

    return asyncio.run(read())


def same_both_ways() -> Any:
    asked: Any = {"model": saying.REAL, "max_tokens": 1000, "messages": HELLO, "tools": TOOLS}
    counted = CLIENT.messages.count_tokens(model=saying.REAL, messages=HELLO, tools=TOOLS)
    whole = CLIENT.messages.create(**asked)
    with CLIENT.messages.stream(**asked) as events:
        streamed = events.get_final_message()
    return {
        "counted": counted.input_tokens,
        "both": [
            {
                "text": each.content[0].text,
                "prompt": each.usage.input_tokens + (each.usage.cache_read_input_tokens or 0),
                "answer": each.usage.output_tokens,
            }
            for each in (whole, streamed)
        ],
        "cached": streamed.usage.cache_read_input_tokens,
    }


def tools() -> Any:
    found = []
    for is_streamed in (False, True):
        first = _message(ASKED, is_streamed=is_streamed)
        (call,) = [block for block in first.content if block.type == "tool_use"]
        result = {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": saying.weather(**call.input),
        }
        said = [
            *ASKED,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        last = _message(said, is_streamed=is_streamed)
        found.append(
            {
                "end": first.stop_reason,
                "name": call.name,
                "arguments": call.input,
                "text": last.content[0].text,
                "last": last.stop_reason,
            }
        )
    return found


def tool_runner() -> Any:
    def get_weather(city: str) -> str:
        """Tells the weather.

        Args:
            city: where.
        """
        return saying.weather(city)

    runner = CLIENT.beta.messages.tool_runner(
        **SOME, messages=ASKED, tools=[anthropic.beta_tool(get_weather)]
    )
    return {
        "blocks": [[block.type for block in message.content] for message in runner],
        "kept": saying.refusal(lambda: CLIENT.beta.messages.thread(**SOME, messages=ASKED).send()),
    }


def own_tools() -> Any:
    said: Any = [{"role": "user", "content": "look"}]
    return CLIENT.messages.create(**SOME, messages=said).content[0].text


def forced() -> Any:
    asked: Any = {"model": saying.REAL, "max_tokens": 200, "messages": HELLO, "tools": TOOLS}
    found = []
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        answer = CLIENT.messages.create(**asked, tool_choice=choice)
        (call,) = answer.content
        found.append([call.name, sorted(call.input)])
    return found


def structured() -> Any:
    asked: Any = {"model": saying.REAL, "max_tokens": 400, "messages": HELLO}
    parsed = CLIENT.messages.parse(**asked, output_format=Liked)
    plain = CLIENT.messages.create(
        **asked, output_config={"format": {"type": "json_schema", "schema": saying.SCHEMA}}
    )
    return {
        "parsed": parsed.parsed_output.model_dump(),
        "plain": json.loads(plain.content[0].text),
    }


def thinking() -> Any:
    asked: Any = SOME | {"messages": [{"role": "user", "content": "think"}]}
    asked |= {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    whole = CLIENT.messages.create(**asked)
    with CLIENT.messages.stream(**asked) as events:
        kinds = [event.type for event in events]
        streamed = events.get_final_message()
    said = [*asked["messages"], {"role": "assistant", "content": streamed.content}, *HELLO]
    again = CLIENT.messages.create(**asked | {"messages": said})
    hidden = CLIENT.messages.create(**asked | {"thinking": {"type": "disabled"}})
    return {
        "both": [
            [[block.type, getattr(block, "thinking", None) or block.text] for block in each.content]
            for each in (whole, streamed)
        ],
        "signed": all(isinstance(each.content[0].signature, str) for each in (whole, streamed)),
        "events": [kind for kind in ("thinking", "signature", "text") if kind in kinds],
        "again": again.content[-1].text,
        "hidden": [block.type for block in hidden.content],
    }


def errors() -> Any:
    create = CLIENT.messages.create
    stranger = CLIENT.with_options(api_key="wrong")
    bad: Any = SOME | {"messages": HELLO, "extra_body": {"temperature": -5}}
    long: Any = {"model": saying.SHORT, "max_tokens": 9, "tools": TOOLS}
    long["messages"] = [{"role": "user", "content": saying.LONG}]
    off: Any = SOME | {"messages": [{"role": "user", "content": "break off"}], "tools": TOOLS}
    return {
        "unknown": saying.refusal(lambda: create(**SOME | {"model": "nobody"}, messages=HELLO)),
        "bad": saying.refusal(lambda: create(**bad)),
        "bad_streamed": saying.refusal(lambda: create(**bad, stream=True)),
        "key": saying.refusal(lambda: stranger.messages.create(**SOME, messages=HELLO)),
        "long": saying.refusal(lambda: create(**long)),
        "long_streamed": saying.refusal(lambda: create(**long, stream=True)),
        "broken_off": saying.refusal(lambda: list(create(**off, stream=True))),
        "uncounted": saying.refusal(
            lambda: CLIENT.messages.count_tokens(model="nobody", messages=HELLO)
        ),
    }


def cancelled() -> Any:
    before = saying.settled()["left"]
    waiting: Any = SOME | {"messages": [{"role": "user", "content": "wait"}]}
    hasty = CLIENT.with_options(timeout=1.0)
    whole = saying.refusal(lambda: hasty.messages.create(**waiting))
    after_whole = saying.settled()["left"]
    with CLIENT.messages.stream(
        model=saying.ENDLESS, max_tokens=32000, messages=HELLO, tools=TOOLS
    ) as events:
        for _, text in zip(range(5), events.text_stream, strict=False):
            assert text
        busy = saying.busy_slots()
    after_stream = saying.settled()["left"]
    return {
        "raised": whole["type"],
        "left": [after_whole - before, after_stream - after_whole],
        "busy": [busy, saying.busy_slots()],
    }


def models() -> Any:
    return {
        "listed": sorted(model.id for model in CLIENT.models.list()),
        "one": CLIENT.models.retrieve(saying.REAL).display_name,
        "unknown": saying.refusal(lambda: CLIENT.models.retrieve("nobody")),
    }


def _message(messages: Any, *, is_streamed: bool) -> Any:
    asked: Any = SOME | {"messages": messages, "tools": TOOLS}
    if not is_streamed:
        return CLIENT.messages.create(**asked)
    with CLIENT.messages.stream(**asked) as events:
        return events.get_final_message()


def pictures() -> Any:
    source = {"type": "base64", "media_type": "image/png", "data": saying.PICTURE}
    picture = {"type": "image", "source": source}
    words = {"type": "text", "text": saying.SHOWN}
    said: Any = [{"role": "user", "content": [picture, words]}]
    with CLIENT.messages.stream(**SOME, messages=said) as events:
        streamed = "".join(events.text_stream)
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "x"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [picture]}
    held: Any = [
        {"role": "user", "content": saying.SHOWN},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, words]},
    ]
    unseen = SOME | {"model": saying.REAL}
    return {
        "chat": CLIENT.messages.create(**SOME, messages=said).content[0].text,
        "stream": streamed,
        "result": CLIENT.messages.create(**SOME, messages=held, tools=TOOLS).content[0].text,
        "unseen": saying.refusal(lambda: CLIENT.messages.create(**unseen, messages=said)),
    }


if __name__ == "__main__":
    saying.run(
        chat,
        stream,
        by_environment,
        streamed_async,
        same_both_ways,
        tools,
        tool_runner,
        own_tools,
        forced,
        structured,
        thinking,
        errors,
        cancelled,
        models,
        pictures,
    )
