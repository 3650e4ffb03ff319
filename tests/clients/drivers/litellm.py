"""Drives a daemon with litellm: every case by OpenAI's, Anthropic's and Ollama's dialect."""

import functools
import json
from typing import Any

import litellm

from tests.clients.drivers import saying

HELLO: Any = [{"role": "user", "content": "hello"}]
ASKED: Any = [{"role": "user", "content": saying.WEATHER}]
TOOLS: Any = [saying.FUNCTION]
DIALECTS = {"openai": saying.V1, "anthropic": saying.URL, "ollama_chat": saying.URL}

litellm.suppress_debug_info = True


def ask(dialect: str, model: str, messages: Any, **more: Any) -> Any:
    asked: dict[str, Any] = {"api_key": saying.KEY, "num_retries": 0, "timeout": 90} | more
    return litellm.completion(
        model=f"{dialect}/{model}", messages=messages, api_base=DIALECTS[dialect], **asked
    )


def chat() -> Any:
    found = {}
    for dialect in DIALECTS:
        answer = ask(dialect, saying.MODEL, HELLO)
        (choice,) = answer.choices
        usage = [answer.usage.prompt_tokens > 0, answer.usage.completion_tokens]
        found[dialect] = [choice.message.content, choice.finish_reason, usage]
    return found


def stream() -> Any:
    found = {}
    for dialect in DIALECTS:
        chunks = list(
            ask(dialect, saying.MODEL, HELLO, stream=True, stream_options={"include_usage": True})
        )
        whole = litellm.stream_chunk_builder(chunks, messages=HELLO)
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        found[dialect] = [text, whole.choices[0].finish_reason, whole.usage.completion_tokens]
    return found


def tools() -> Any:
    return {dialect: _round_trip(dialect, is_streamed=False) for dialect in DIALECTS}


def tools_streamed() -> Any:
    return {dialect: _round_trip(dialect, is_streamed=True) for dialect in DIALECTS}


def structured() -> Any:
    schema = {"name": "liked", "schema": saying.SCHEMA, "strict": True}
    wanted = {"type": "json_schema", "json_schema": schema}
    found = {}
    for dialect in ("openai", "ollama_chat"):
        answer = ask(
            dialect,
            saying.REAL,
            HELLO,
            response_format=wanted,
            max_tokens=400,
        )
        found[dialect] = json.loads(answer.choices[0].message.content)
    return found


def thinking() -> Any:
    found = {}
    wish: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    # By a model's name it knows whether that thinks; ours has another.
    wish |= {"max_tokens": 4000, "allowed_openai_params": ["thinking"]}
    for dialect in DIALECTS:
        more = wish if dialect == "anthropic" else {}  # there one must ask for them
        message = ask(dialect, saying.MODEL, [{"role": "user", "content": "think"}], **more)
        message = message.choices[0].message
        found[dialect] = [message.reasoning_content, message.content]
    return found


def errors() -> Any:
    return {dialect: _refusals(dialect) for dialect in DIALECTS}


def cancelled() -> Any:
    found = {}
    for dialect in DIALECTS:
        before = saying.settled()["left"]
        waiting: Any = [{"role": "user", "content": "wait"}]
        leaving = functools.partial(ask, dialect, saying.MODEL, waiting, timeout=1.0)
        raised = saying.refusal(leaving)
        found[dialect] = [raised["type"], saying.settled()["left"] - before]
    return found


def embeddings() -> Any:
    made = litellm.embedding(
        model=f"openai/{saying.VECTORS}",
        input=["hello", "a dog"],
        api_base=saying.V1,
        api_key=saying.KEY,
    )
    return [round(sum(value * value for value in item["embedding"]), 3) for item in made.data]


def _refusals(dialect: str) -> Any:
    def told(model: str, messages: Any = HELLO, **more: Any) -> Any:
        return saying.refusal(lambda: ask(dialect, model, messages, **more))

    long: Any = [{"role": "user", "content": saying.LONG}]
    return {
        "unknown": told("nobody"),
        "bad": told(saying.MODEL, temperature=-5),
        "key": told(saying.MODEL, api_key="wrong"),
        "long": told(saying.SHORT, long, tools=TOOLS, max_tokens=9),
    }


def _round_trip(dialect: str, *, is_streamed: bool) -> Any:
    first = _message(dialect, ASKED, is_streamed=is_streamed)
    (call,) = first.tool_calls
    arguments = json.loads(call.function.arguments)
    result = {
        "role": "tool",
        "tool_call_id": call.id,
        "name": call.function.name,
        "content": saying.weather(**arguments),
    }
    last = _message(dialect, [*ASKED, first.model_dump(), result], is_streamed=is_streamed)
    return [call.function.name, arguments, last.content]


def _message(dialect: str, messages: Any, *, is_streamed: bool) -> Any:
    if not is_streamed:
        return ask(dialect, saying.MODEL, messages, tools=TOOLS).choices[0].message
    chunks = list(ask(dialect, saying.MODEL, messages, tools=TOOLS, stream=True))
    return litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message


if __name__ == "__main__":
    saying.run(
        chat,
        stream,
        tools,
        tools_streamed,
        structured,
        thinking,
        errors,
        cancelled,
        embeddings,
    )
