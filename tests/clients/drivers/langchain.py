"""Drives a daemon with LangChain's classes for OpenAI."""

from typing import Any, Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

from tests.clients.drivers import saying


class Liked(BaseModel):
    """What somebody likes."""

    name: str = Field(max_length=12)
    color: Literal["red", "green", "blue"]
    likes_it: bool


def weather(city: str) -> str:
    """Tells the weather."""
    return saying.weather(city)


get_weather: Any = tool("get_weather")(weather)


def model(name: str = saying.MODEL, **more: Any) -> Any:
    known: dict[str, Any] = {"base_url": saying.V1, "api_key": saying.KEY, "max_retries": 0}
    return ChatOpenAI(model=name, **known | {"timeout": 90} | more)


def chat() -> Any:
    answer = model().invoke("hello")
    return {
        "text": answer.content,
        "end": answer.response_metadata["finish_reason"],
        "usage": answer.usage_metadata["output_tokens"],
    }


def stream() -> Any:
    whole: Any = None
    for chunk in model(stream_usage=True).stream("hello"):
        whole = chunk if whole is None else whole + chunk
    return {"text": whole.content, "usage": whole.usage_metadata["output_tokens"]}


def responses() -> Any:
    by_responses = model(use_responses_api=True)
    whole = by_responses.invoke("hello")
    pieces = [chunk.text for chunk in by_responses.stream("hello")]
    return [whole.text, "".join(pieces)]


def tools() -> Any:
    found = []
    for is_streamed in (False, True):
        for by_responses in (None, True):
            bound = model(use_responses_api=by_responses).bind_tools([get_weather])
            asked = HumanMessage(saying.WEATHER)
            first = _message(bound, [asked], is_streamed=is_streamed)
            (call,) = first.tool_calls
            result = get_weather.invoke(call)
            assert isinstance(result, ToolMessage)
            last = _message(bound, [asked, first, result], is_streamed=is_streamed)
            found.append([call["name"], call["args"], last.text])
    return found


def forced() -> Any:
    found = []
    for choice in ("required", "get_weather"):
        bound = model(saying.REAL, max_tokens=200).bind_tools([get_weather], tool_choice=choice)
        (call,) = bound.invoke("hello").tool_calls
        found.append([call["name"], sorted(call["args"])])
    return found


def structured() -> Any:
    found = []
    for method in ("json_schema", "function_calling"):
        real = model(saying.REAL, temperature=0)
        answer = real.with_structured_output(Liked, method=method).invoke("hello")
        found.append(answer.model_dump())
    return found


def errors() -> Any:
    stranger = model(api_key="wrong")
    return {
        "unknown": saying.refusal(lambda: model("nobody").invoke("hello")),
        "bad": saying.refusal(lambda: model(max_tokens=-5).invoke("hello")),
        "key": saying.refusal(lambda: stranger.invoke("hello")),
        "long": saying.refusal(lambda: model(saying.SHORT).invoke(saying.LONG)),
        "long_streamed": saying.refusal(lambda: list(model(saying.SHORT).stream(saying.LONG))),
        "broken_off": saying.refusal(lambda: list(model().stream("break off"))),
    }


def cancelled() -> Any:
    before = saying.settled()["left"]
    whole = saying.refusal(lambda: model(timeout=1.0).invoke("wait"))
    after_whole = saying.settled()["left"]
    chunks = model(saying.ENDLESS, default_headers=saying.ALONE).stream("hello")
    for _, chunk in zip(range(5), chunks, strict=False):
        assert isinstance(chunk.content, str)
    busy = saying.busy_slots()
    chunks.close()
    after_stream = saying.settled()["left"]
    return {
        "raised": whole["type"],
        "left": [after_whole - before, after_stream - after_whole],
        "busy": [busy, saying.busy_slots()],
    }


def embeddings() -> Any:
    made = OpenAIEmbeddings(
        model=saying.VECTORS,
        base_url=saying.V1,
        api_key=saying.KEY,
        check_embedding_ctx_length=False,
    ).embed_documents(["hello", "a dog"])
    return [round(sum(value * value for value in vector), 3) for vector in made]


def _message(bound: Any, messages: Any, *, is_streamed: bool) -> Any:
    if not is_streamed:
        return bound.invoke(messages)
    whole: Any = None
    for chunk in bound.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


if __name__ == "__main__":
    saying.run(
        chat,
        stream,
        responses,
        tools,
        forced,
        structured,
        errors,
        cancelled,
        embeddings,
    )
