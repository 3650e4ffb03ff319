"""Drives a daemon with OpenAI's SDK."""

import base64
import json
import os
import struct
from typing import Any, Literal

import openai
from pydantic import BaseModel, Field

from tests.clients.drivers import saying

CLIENT = openai.OpenAI(base_url=saying.V1, api_key=saying.KEY, max_retries=0, timeout=90)
HELLO: Any = [{"role": "user", "content": "hello"}]
ASKED: Any = [{"role": "user", "content": saying.WEATHER}]
TOOLS: Any = [saying.FUNCTION]
FLAT: Any = [saying.FUNCTION["function"] | {"type": "function", "strict": True}]


class Liked(BaseModel):
    name: str = Field(max_length=12)
    color: Literal["red", "green", "blue"]
    likes_it: bool


def chat() -> Any:
    answer = CLIENT.chat.completions.create(model=saying.MODEL, messages=HELLO)
    (choice,) = answer.choices
    return {
        "text": choice.message.content,
        "end": choice.finish_reason,
        "model": answer.model,
        "usage": answer.usage.model_dump(),
    }


def by_environment() -> Any:
    os.environ |= {"OPENAI_BASE_URL": saying.V1, "OPENAI_API_KEY": saying.KEY}
    answer = openai.OpenAI().chat.completions.create(model="clawd", messages=HELLO)
    return answer.choices[0].message.content


def stream() -> Any:
    usage: Any = None
    pieces: list[str] = []
    ids: set[str] = set()
    ends: list[str] = []
    for chunk in CLIENT.chat.completions.create(
        model=saying.MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
    ):
        ids.add(chunk.id)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            ends += [choice.finish_reason] if choice.finish_reason else []
    return {
        "text": "".join(pieces),
        "pieces": len(pieces),
        "ids": len(ids),
        "ends": ends,
        "usage": usage.model_dump(),
    }


def same_both_ways() -> Any:
    asked: Any = {"model": saying.REAL, "messages": HELLO, "temperature": 0, "tools": TOOLS}
    asked.update(tool_choice="none", logprobs=True, top_logprobs=2)
    whole = CLIENT.chat.completions.create(**asked)
    with CLIENT.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        kinds = {event.type for event in events}
        streamed = events.get_final_completion()
    return {
        "kinds": sorted(kinds),
        "both": [
            {
                "text": each.choices[0].message.content,
                "tokens": "".join(token.token for token in each.choices[0].logprobs.content),
                "likely": all(
                    token.logprob <= 0 and len(token.top_logprobs) == 2
                    for token in each.choices[0].logprobs.content
                ),
                "usage": [each.usage.prompt_tokens, each.usage.completion_tokens],
            }
            for each in (whole, streamed)
        ],
    }


def tools() -> Any:
    answer = CLIENT.chat.completions.create(model=saying.MODEL, messages=ASKED, tools=TOOLS)
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    last = CLIENT.chat.completions.create(
        model=saying.MODEL, messages=_with_result(choice.message, call), tools=TOOLS
    )
    return {
        "end": choice.finish_reason,
        "name": call.function.name,
        "arguments": json.loads(call.function.arguments),
        "text": last.choices[0].message.content,
        "calls": last.choices[0].message.tool_calls,
    }


def tools_streamed() -> Any:
    with CLIENT.chat.completions.stream(
        model=saying.MODEL, messages=ASKED, tools=TOOLS, parallel_tool_calls=False
    ) as events:
        kinds = [event.type for event in events]
        (choice,) = events.get_final_completion().choices
    (call,) = choice.message.tool_calls
    with CLIENT.chat.completions.stream(
        model=saying.MODEL, messages=_with_result(choice.message, call), tools=TOOLS
    ) as events:
        text = "".join(event.delta for event in events if event.type == "content.delta")
    return {
        "kinds": sorted(set(kinds)),
        "end": choice.finish_reason,
        "name": call.function.name,
        "arguments": json.loads(call.function.arguments),
        "text": text,
    }


def own_tools() -> Any:
    said: Any = [{"role": "user", "content": "look"}]
    answer = CLIENT.chat.completions.create(model=saying.MODEL, messages=said)
    response = CLIENT.responses.create(model=saying.MODEL, input="look")
    asked: Any = {"model": saying.MODEL, "messages": said, "stream": True}
    chunks = CLIENT.chat.completions.create(
        **asked, extra_body={"stream_options": {"clawd_events": True}}
    )
    told = [chunk.model_extra["clawd"]["event"] for chunk in chunks if "clawd" in chunk.model_extra]
    return {
        "texts": [answer.choices[0].message.content, response.output_text],
        "calls": [call["status"] for call in answer.model_extra["clawd"]["tool_calls"]],
        "told": sorted(set(told) & {"clawd.tool_call", "clawd.tool_result"}),
    }


def forced() -> Any:
    asked: Any = {"model": saying.REAL, "messages": HELLO, "tools": TOOLS, "max_tokens": 200}
    named = {"type": "function", "function": {"name": "get_weather"}}
    found = []
    for choice in ("required", named):
        answer = CLIENT.chat.completions.create(**asked, tool_choice=choice)
        (call,) = answer.choices[0].message.tool_calls
        found.append([call.function.name, sorted(json.loads(call.function.arguments))])
    return found


def structured() -> Any:
    answer = CLIENT.chat.completions.parse(model=saying.REAL, messages=HELLO, response_format=Liked)
    with CLIENT.chat.completions.stream(
        model=saying.REAL, messages=HELLO, response_format=Liked
    ) as events:
        streamed = events.get_final_completion().choices[0].message.parsed
    response = CLIENT.responses.parse(model=saying.REAL, input="hello", text_format=Liked)
    plain = CLIENT.chat.completions.create(
        model=saying.REAL,
        messages=HELLO,
        max_tokens=400,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "liked", "schema": saying.SCHEMA, "strict": True},
        },
    )
    return {
        "parsed": answer.choices[0].message.parsed.model_dump(),
        "streamed": streamed.model_dump(),
        "response": response.output_parsed.model_dump(),
        "plain": json.loads(plain.choices[0].message.content),
    }


def reasoning() -> Any:
    asked: Any = {"model": saying.MODEL, "messages": [{"role": "user", "content": "think"}]}
    answer = CLIENT.chat.completions.create(**asked)
    pieces = [
        (chunk.choices[0].delta.model_extra or {}).get("reasoning_content") or ""
        for chunk in CLIENT.chat.completions.create(**asked, stream=True)
        if chunk.choices
    ]
    return [answer.choices[0].message.model_extra["reasoning_content"], "".join(pieces)]


def errors() -> Any:
    chat = CLIENT.chat.completions.create
    stranger = CLIENT.with_options(api_key="wrong")
    bad: Any = {"model": saying.MODEL, "messages": HELLO, "temperature": -5}
    long: Any = {"model": saying.SHORT, "messages": [{"role": "user", "content": saying.LONG}]}
    long |= {"tools": TOOLS}
    return {
        "unknown": saying.refusal(lambda: chat(model="nobody", messages=HELLO)),
        "bad": saying.refusal(lambda: chat(**bad)),
        "bad_streamed": saying.refusal(lambda: chat(**bad, stream=True)),
        "key": saying.refusal(
            lambda: stranger.chat.completions.create(model=saying.MODEL, messages=HELLO)
        ),
        "long": saying.refusal(lambda: chat(**long)),
        "long_streamed": saying.refusal(lambda: chat(**long, stream=True)),
        "broken_off": _broken_off(),
    }


def cancelled() -> Any:
    before = saying.settled()["left"]
    waiting: Any = {"model": saying.MODEL, "messages": [{"role": "user", "content": "wait"}]}
    hasty = CLIENT.with_options(timeout=1.0)
    whole = saying.refusal(lambda: hasty.chat.completions.create(**waiting))
    after_whole = saying.settled()["left"]
    events = CLIENT.chat.completions.create(
        model=saying.ENDLESS, messages=HELLO, tools=TOOLS, stream=True
    )
    for _, chunk in zip(range(5), events, strict=False):
        assert chunk.choices
    busy = saying.busy_slots()
    events.close()
    after_stream = saying.settled()["left"]
    return {
        "raised": whole["type"],
        "left": [after_whole - before, after_stream - after_whole],
        "busy": [busy, saying.busy_slots()],
    }


def completions() -> Any:
    asked: Any = {"model": saying.REAL, "prompt": "Hello", "max_tokens": 8, "temperature": 0}
    whole = CLIENT.completions.create(**asked, logprobs=1)
    chunks = list(CLIENT.completions.create(**asked, stream=True))
    several = CLIENT.completions.create(**asked | {"prompt": ["Hello", "Hello"]}, n=2)
    return {
        "text": whole.choices[0].text,
        "end": whole.choices[0].finish_reason,
        "usage": whole.usage.completion_tokens,
        "logprobs": "".join(whole.choices[0].logprobs.tokens),
        "streamed": "".join(chunk.choices[0].text for chunk in chunks if chunk.choices),
        "several": [choice.text for choice in several.choices],
        "indices": [choice.index for choice in several.choices],
    }


def responses() -> Any:
    whole = CLIENT.responses.create(model=saying.MODEL, input="hello", instructions="Be brief.")
    with CLIENT.responses.stream(model=saying.MODEL, input="hello") as events:
        told = list(events)
        streamed = events.get_final_response()
    return {
        "text": whole.output_text,
        "status": whole.status,
        "usage": whole.usage.total_tokens,
        "streamed": streamed.output_text,
        "deltas": "".join(e.delta for e in told if e.type == "response.output_text.delta"),
        "numbers": [event.sequence_number for event in told] == list(range(len(told))),
        "first": told[0].type,
        "last": told[-1].type,
        "broken_off": saying.refusal(
            lambda: list(
                CLIENT.responses.create(model=saying.MODEL, input="break off", stream=True)
            )
        ),
    }


def responses_tools() -> Any:
    found = []
    for is_streamed in (False, True):
        asked: Any = {"model": saying.MODEL, "tools": FLAT}
        said: list[Any] = list(ASKED)
        first = _response(asked | {"input": said}, is_streamed=is_streamed)
        (call,) = [item for item in first.output if item.type == "function_call"]
        result = saying.weather(**json.loads(call.arguments))
        said += first.output
        said.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        last = _response(asked | {"input": said}, is_streamed=is_streamed)
        found.append({"name": call.name, "status": call.status, "text": last.output_text})
    return found


def embeddings() -> Any:
    made = CLIENT.embeddings.create(model=saying.VECTORS, input=["hello", "a dog", "hello"])
    plain = CLIENT.embeddings.create(model=saying.VECTORS, input=["hello"], encoding_format="float")
    raw = CLIENT.embeddings.with_raw_response.create(
        model=saying.VECTORS, input="hello", encoding_format="base64"
    )
    packed = base64.b64decode(json.loads(raw.text)["data"][0]["embedding"])
    vectors = [item.embedding for item in made.data]
    return {
        "indices": [item.index for item in made.data],
        "lengths": [sum(value * value for value in vector) for vector in vectors],
        "same": vectors[0] == vectors[2] != vectors[1],
        "usage": made.usage.prompt_tokens,
        "forms": _apart(plain.data[0].embedding, struct.unpack(f"<{len(packed) // 4}f", packed)),
        "refused": saying.refusal(
            lambda: CLIENT.embeddings.create(model=saying.MODEL, input="hello")
        ),
    }


def models() -> Any:
    listed = CLIENT.models.list()
    return {
        "listed": sorted(model.id for model in listed),
        "one": CLIENT.models.retrieve(saying.REAL).id,
        "slash": CLIENT.models.retrieve("mock/large").id,
        "unknown": saying.refusal(lambda: CLIENT.models.retrieve("nobody")),
    }


def _response(asked: Any, *, is_streamed: bool) -> Any:
    if not is_streamed:
        return CLIENT.responses.create(**asked)
    with CLIENT.responses.stream(**asked) as events:
        return events.get_final_response()


def _broken_off() -> Any:
    pieces: list[str] = []

    def read() -> None:
        said: Any = [{"role": "user", "content": "break off"}]
        for chunk in CLIENT.chat.completions.create(
            model=saying.MODEL, messages=said, tools=TOOLS, stream=True
        ):
            pieces.extend(choice.delta.content or "" for choice in chunk.choices)

    return saying.refusal(read) | {"text": "".join(pieces)}


def _with_result(message: Any, call: Any) -> Any:
    result = saying.weather(**json.loads(call.function.arguments))
    return [*ASKED, message, {"role": "tool", "tool_call_id": call.id, "content": result}]


def _apart(one: Any, other: Any) -> Any:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def pictures() -> Any:
    url = f"data:image/png;base64,{saying.PICTURE}"
    parts: Any = [
        {"type": "text", "text": saying.SHOWN},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    asked: Any = {"model": saying.MODEL, "messages": [{"role": "user", "content": parts}]}
    whole = CLIENT.chat.completions.create(**asked)
    chunks = CLIENT.chat.completions.create(**asked, stream=True)
    given: Any = [
        {"type": "input_text", "text": saying.SHOWN},
        {"type": "input_image", "image_url": url, "detail": "auto"},
    ]
    response = CLIENT.responses.create(
        model=saying.MODEL, input=[{"role": "user", "content": given}]
    )
    unseen = asked | {"model": saying.REAL}
    return {
        "chat": whole.choices[0].message.content,
        "stream": "".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
        "responses": response.output_text,
        "unseen": saying.refusal(lambda: CLIENT.chat.completions.create(**unseen)),
    }


if __name__ == "__main__":
    saying.run(
        chat,
        stream,
        by_environment,
        same_both_ways,
        tools,
        tools_streamed,
        own_tools,
        forced,
        structured,
        reasoning,
        errors,
        cancelled,
        completions,
        responses,
        responses_tools,
        embeddings,
        models,
        pictures,
    )
