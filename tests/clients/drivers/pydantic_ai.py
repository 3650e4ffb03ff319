"""Drives a daemon with Pydantic AI, by OpenAI's two interfaces and by Anthropic's."""

import asyncio
from typing import Any, Literal

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.drivers import saying

BY = ("chat", "responses", "messages")


class Liked(BaseModel):
    """What somebody likes."""

    name: str = Field(max_length=12)
    color: Literal["red", "green", "blue"]
    likes_it: bool


def model(by: str, name: str = saying.MODEL, **more: Any) -> Any:
    options: dict[str, Any] = {"api_key": saying.KEY, "max_retries": 0, "timeout": 90} | more
    if by == "messages":
        client = AsyncAnthropic(base_url=saying.URL, **options)
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
    provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=saying.V1, **options))
    kind = OpenAIChatModel if by == "chat" else OpenAIResponsesModel
    return kind(name, provider=provider)


def chat() -> Any:
    found = {}
    for by in BY:
        result = Agent(model(by), instructions="Be brief.").run_sync("hello")
        usage = result.usage() if callable(result.usage) else result.usage
        found[by] = [result.output, usage.output_tokens]
    return found


def stream() -> Any:
    async def read(by: str) -> Any:
        async with Agent(model(by)).run_stream("hello") as result:
            pieces = [text async for text in result.stream_text(delta=True, debounce_by=None)]
            usage = result.usage() if callable(result.usage) else result.usage
        return ["".join(pieces), usage.output_tokens]

    return {by: asyncio.run(read(by)) for by in BY}


def tools() -> Any:
    found = {}
    for by in BY:
        told: list[str] = []
        result = _weather_agent(by, told).run_sync(saying.WEATHER)
        found[by] = [told, result.output]
    return found


def tools_streamed() -> Any:
    async def read(by: str) -> Any:
        told: list[str] = []
        async with _weather_agent(by, told).run_stream(saying.WEATHER) as result:
            pieces = [text async for text in result.stream_text(delta=True, debounce_by=None)]
        return [told, "".join(pieces)]

    return {by: asyncio.run(read(by)) for by in BY}


def structured() -> Any:
    found = []
    for output in (NativeOutput(Liked), ToolOutput(Liked)):
        real = model("chat", saying.REAL)
        settings: Any = {"temperature": 0.0, "max_tokens": 400}
        agent = Agent(real, output_type=output, model_settings=settings)
        found.append(agent.run_sync("hello").output.model_dump())
    return found


def errors() -> Any:
    return {by: _refusals(by) for by in BY}


def cancelled() -> Any:
    return {by: _left(by) for by in BY}


def _refusals(by: str) -> Any:
    def told(name: str, said: str = "hello", settings: Any = None, **more: Any) -> Any:
        agent = Agent(model(by, name, **more), model_settings=settings)
        return saying.refusal(lambda: agent.run_sync(said))

    return {
        "unknown": told("nobody"),
        "key": told(saying.MODEL, api_key="wrong"),
        "long": told(saying.SHORT, saying.LONG),
        "bad": told(saying.MODEL, settings={"temperature": -5.0}),
    }


def _left(by: str) -> Any:
    async def leave() -> None:
        await saying.leave_when_asked(Agent(model(by)).run("wait"))

    before = saying.settled()["left"]
    raised = saying.refusal(lambda: asyncio.run(leave()))
    return [raised["type"], saying.settled()["left"] - before]


def _weather_agent(by: str, told: list[str]) -> Any:
    def get_weather(city: str) -> str:
        """Tells the weather."""
        told.append(city)
        return saying.weather(city)

    return Agent(model(by), tools=[get_weather])


if __name__ == "__main__":
    saying.run(chat, stream, tools, tools_streamed, structured, errors, cancelled)
