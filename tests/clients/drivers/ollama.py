"""Drives a daemon with Ollama's library for Python."""

import json
import os
from typing import Any

import ollama

from tests.clients.drivers import saying

HEADERS = {"Authorization": f"Bearer {saying.KEY}"}
CLIENT = ollama.Client(host=saying.URL, headers=HEADERS, timeout=90)
HELLO: Any = [{"role": "user", "content": "hello"}]
ASKED: Any = [{"role": "user", "content": saying.WEATHER}]
TOOLS: Any = [saying.FUNCTION]


def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: where.
    """
    return saying.weather(city)


def chat() -> Any:
    answer = CLIENT.chat(model=saying.MODEL, messages=HELLO)
    return {
        "text": answer.message.content,
        "end": answer.done_reason,
        "model": answer.model,
        "counts": [answer.prompt_eval_count, answer.eval_count],
    }


def by_environment() -> Any:
    os.environ |= {"OLLAMA_HOST": saying.URL, "OLLAMA_API_KEY": saying.KEY}
    return ollama.Client().chat(model="clawd", messages=HELLO).message.content


def stream() -> Any:
    lines = list(CLIENT.chat(model=saying.MODEL, messages=HELLO, stream=True))
    return {
        "text": "".join(line.message.content or "" for line in lines),
        "done": [bool(line.done) for line in lines].count(True),
        "end": lines[-1].done_reason,
        "counts": [lines[-1].prompt_eval_count, lines[-1].eval_count],
    }


def same_both_ways() -> Any:
    asked: Any = {"model": saying.REAL, "messages": HELLO, "tools": TOOLS}
    whole = CLIENT.chat(**asked)
    lines = list(CLIENT.chat(**asked, stream=True))
    text = "".join(line.message.content or "" for line in lines)
    last = lines[-1]
    return [
        [whole.message.content, whole.prompt_eval_count, whole.eval_count],
        [text, last.prompt_eval_count, last.eval_count],
    ]


def tools() -> Any:
    found = []
    for is_streamed in (False, True):
        message = _message(ASKED, is_streamed=is_streamed, tools=[get_weather])
        (call,) = message.tool_calls
        result = {
            "role": "tool",
            "tool_name": call.function.name,
            "content": get_weather(**call.function.arguments),
        }
        last = _message([*ASKED, message, result], is_streamed=is_streamed, tools=[get_weather])
        found.append(
            {
                "name": call.function.name,
                "arguments": dict(call.function.arguments),
                "text": last.content,
            }
        )
    return found


def own_tools() -> Any:
    said: Any = [{"role": "user", "content": "look"}]
    return CLIENT.chat(model=saying.MODEL, messages=said).message.content


def structured() -> Any:
    asked: Any = {"model": saying.REAL, "format": saying.SCHEMA}
    chat = CLIENT.chat(**asked, messages=HELLO)
    lines = CLIENT.generate(**asked, prompt="hello", stream=True)
    return [
        json.loads(chat.message.content),
        json.loads("".join(line.response for line in lines)),
    ]


def thinking() -> Any:
    asked: Any = {"model": saying.MODEL, "messages": [{"role": "user", "content": "think"}]}
    whole = CLIENT.chat(**asked, think=True).message
    lines = list(CLIENT.chat(**asked, think=True, stream=True))
    return [
        [whole.thinking, whole.content],
        [
            "".join(line.message.thinking or "" for line in lines),
            "".join(line.message.content or "" for line in lines),
        ],
        CLIENT.chat(**asked, think=False).message.thinking,
    ]


def generate() -> Any:
    whole = CLIENT.generate(model=saying.MODEL, prompt="hello", system="Be brief.")
    lines = list(CLIENT.generate(model=saying.MODEL, prompt="hello", stream=True))
    short = CLIENT.generate(
        model=saying.REAL, prompt="Hello", raw=True, options={"num_predict": 3, "temperature": 0}
    )
    loaded = CLIENT.generate(model=saying.REAL, prompt="")
    return {
        "text": whole.response,
        "streamed": "".join(line.response for line in lines),
        "end": lines[-1].done_reason,
        "short": [short.done_reason, short.eval_count, short.total_duration > 0],
        "loaded": loaded.done_reason,
    }


def embed() -> Any:
    made = CLIENT.embed(model=saying.VECTORS, input=["hello", "a dog", "hello"])
    vectors = [list(vector) for vector in made.embeddings]
    old = CLIENT.embeddings(model=saying.VECTORS, prompt="hello")
    return {
        "lengths": [sum(value * value for value in vector) for vector in vectors],
        "same": vectors[0] == vectors[2] != vectors[1],
        "width": [len(vectors[0]), len(old.embedding)],
        "counted": made.prompt_eval_count,
    }


def about_models() -> Any:
    shown = CLIENT.show(saying.REAL)
    running = CLIENT.ps().models
    return {
        "tags": sorted(model.model for model in CLIENT.list().models),
        "capabilities": shown.capabilities,
        "family": shown.details.family,
        "context": shown.modelinfo[f"{shown.details.family}.context_length"],
        "running": saying.REAL in {model.model.removesuffix(":latest") for model in running},
        "of_vectors": CLIENT.show(saying.VECTORS).capabilities,
        "mock": CLIENT.show(saying.MODEL).capabilities,
    }


def errors() -> Any:
    stranger = ollama.Client(host=saying.URL, headers={"Authorization": "Bearer wrong"})
    bad: Any = {"model": saying.MODEL, "messages": HELLO, "options": {"temperature": -5.0}}
    long: Any = {"model": saying.SHORT, "tools": TOOLS}
    long["messages"] = [{"role": "user", "content": saying.LONG}]
    off: Any = {"model": saying.MODEL, "tools": TOOLS}
    off["messages"] = [{"role": "user", "content": "break off"}]
    return {
        "unknown": saying.refusal(lambda: CLIENT.chat(model="nobody", messages=HELLO)),
        "unshown": saying.refusal(lambda: CLIENT.show("nobody")),
        "bad": saying.refusal(lambda: CLIENT.chat(**bad)),
        "key": saying.refusal(lambda: stranger.chat(model=saying.MODEL, messages=HELLO)),
        "long": saying.refusal(lambda: CLIENT.chat(**long)),
        "long_streamed": saying.refusal(lambda: list(CLIENT.chat(**long, stream=True))),
        "broken_off": saying.refusal(lambda: list(CLIENT.chat(**off, stream=True))),
        "pull": saying.refusal(lambda: CLIENT.pull("https://models.example/m.gguf")),
    }


def cancelled() -> Any:
    before = saying.settled()["left"]
    hasty = ollama.Client(host=saying.URL, headers=HEADERS, timeout=1.0)
    waiting: Any = {"model": saying.MODEL, "messages": [{"role": "user", "content": "wait"}]}
    whole = saying.refusal(lambda: hasty.chat(**waiting))
    after_whole = saying.settled()["left"]
    lines: Any = CLIENT.chat(model=saying.ENDLESS, messages=HELLO, tools=TOOLS, stream=True)
    for _, line in zip(range(5), lines, strict=False):
        assert not line.done
    busy = saying.busy_slots()
    lines.close()
    after_stream = saying.settled()["left"]
    return {
        "raised": whole["type"],
        "left": [after_whole - before, after_stream - after_whole],
        "busy": [busy, saying.busy_slots()],
    }


def _message(messages: Any, *, is_streamed: bool, tools: Any) -> Any:
    if not is_streamed:
        return CLIENT.chat(model=saying.MODEL, messages=messages, tools=tools).message
    whole = ollama.Message(role="assistant", content="", tool_calls=[])
    for line in CLIENT.chat(model=saying.MODEL, messages=messages, tools=tools, stream=True):
        whole.content += line.message.content or ""
        whole.tool_calls = [*whole.tool_calls, *(line.message.tool_calls or ())]
    return whole


def pictures() -> Any:
    said: Any = [{"role": "user", "content": saying.SHOWN, "images": [saying.PICTURE]}]
    lines = CLIENT.chat(model=saying.MODEL, messages=said, stream=True)
    made = CLIENT.generate(model=saying.MODEL, prompt=saying.SHOWN, images=[saying.PICTURE])
    return {
        "chat": CLIENT.chat(model=saying.MODEL, messages=said).message.content,
        "stream": "".join(line.message.content or "" for line in lines),
        "generate": made.response,
        "unseen": saying.refusal(lambda: CLIENT.chat(model=saying.REAL, messages=said)),
    }


if __name__ == "__main__":
    saying.run(
        chat,
        stream,
        by_environment,
        same_both_ways,
        tools,
        own_tools,
        structured,
        thinking,
        generate,
        embed,
        about_models,
        errors,
        cancelled,
        pictures,
    )
