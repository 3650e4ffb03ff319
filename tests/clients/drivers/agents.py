"""Drives a daemon with OpenAI's Agents SDK, by both of its interfaces."""

import asyncio
from typing import Any, Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

from tests.clients.drivers import saying

BY = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


class Liked(BaseModel):
    name: str = Field(max_length=12)
    color: Literal["red", "green", "blue"]
    likes_it: bool


def agent(by: str, name: str = saying.MODEL, tools: Any = (), **more: Any) -> Any:
    settings = more.pop("settings", ModelSettings())
    output = more.pop("output", None)
    options: dict[str, Any] = {"api_key": saying.KEY, "max_retries": 0, "timeout": 90} | more
    client = AsyncOpenAI(base_url=saying.V1, **options)
    return Agent(
        name="helper",
        instructions="Be brief.",
        model=BY[by](model=name, openai_client=client),
        tools=list(tools),
        output_type=output,
        model_settings=settings,
    )


def chat() -> Any:
    found = {}
    for by in BY:
        result = Runner.run_sync(agent(by), "hello")
        found[by] = [result.final_output, result.context_wrapper.usage.output_tokens]
    return found


def stream() -> Any:
    async def read(by: str) -> Any:
        result = Runner.run_streamed(agent(by), "hello")
        pieces = [
            event.data.delta
            async for event in result.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"
        ]
        return ["".join(pieces), result.final_output]

    return {by: asyncio.run(read(by)) for by in BY}


def tools() -> Any:
    found = {}
    for by in BY:
        told: list[str] = []
        result = Runner.run_sync(agent(by, tools=[_weather(told)]), saying.WEATHER)
        found[by] = [told, result.final_output]
    return found


def tools_streamed() -> Any:
    async def read(by: str) -> Any:
        told: list[str] = []
        result = Runner.run_streamed(agent(by, tools=[_weather(told)]), saying.WEATHER)
        items = [
            event.item.type
            async for event in result.stream_events()
            if event.type == "run_item_stream_event"
        ]
        return [told, result.final_output, items]

    return {by: asyncio.run(read(by)) for by in BY}


def structured() -> Any:
    found = {}
    for by in BY:
        settings = ModelSettings(temperature=0.0, max_tokens=400)
        real = agent(by, saying.REAL, output=Liked, settings=settings)
        found[by] = Runner.run_sync(real, "hello").final_output.model_dump()
    return found


def errors() -> Any:
    return {by: _refusals(by) for by in BY}


def cancelled() -> Any:
    return {by: _left(by) for by in BY}


def _refusals(by: str) -> Any:
    def told(name: str, said: str = "hello", **more: Any) -> Any:
        return saying.refusal(lambda: Runner.run_sync(agent(by, name, **more), said))

    return {
        "unknown": told("nobody"),
        "key": told(saying.MODEL, api_key="wrong"),
        "bad": told(saying.MODEL, settings=ModelSettings(max_tokens=-5)),
        "long": told(saying.SHORT, saying.LONG),
    }


def _left(by: str) -> Any:
    async def leave() -> None:
        await saying.leave_when_asked(Runner.run(agent(by), "wait"))

    before = saying.settled()["left"]
    raised = saying.refusal(lambda: asyncio.run(leave()))
    return [raised["type"], saying.settled()["left"] - before]


def _weather(told: list[str]) -> Any:
    def get_weather(city: str) -> str:
        """Tells the weather."""
        told.append(city)
        return saying.weather(city)

    return function_tool(get_weather)


if __name__ == "__main__":
    saying.run(chat, stream, tools, tools_streamed, structured, errors, cancelled)
