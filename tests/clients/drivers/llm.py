"""Drives a daemon with llm, as a library; models are in the file that its users write."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import llm

from tests.clients.drivers import saying

MODELS = """
- model_id: scripted
  model_name: {mock}
  api_base: {url}
  api_key_name: clawd
  supports_tools: true
  supports_schema: true
- model_id: real
  model_name: {real}
  api_base: {url}
  api_key_name: clawd
  supports_tools: true
  supports_schema: true
- {{model_id: nobody, model_name: nobody, api_base: {url}, api_key_name: clawd}}
- {{model_id: short, model_name: {short}, api_base: {url}, api_key_name: clawd}}
- model_id: endless
  model_name: {endless}
  api_base: {url}
  api_key_name: clawd
  headers: {{"X-Clawd-Inject": "off"}}
"""


def chat() -> Any:
    response = llm.get_model("scripted").prompt("hello", system="Be brief.", stream=False)
    usage = response.usage()
    return {"text": response.text(), "usage": [usage.input, usage.output]}


def stream() -> Any:
    response = llm.get_model("scripted").prompt("hello", system="Be brief.")
    pieces = list(response)
    usage = response.usage()
    return {"text": "".join(pieces), "usage": [usage.input, usage.output]}


def conversation() -> Any:
    talk = llm.get_model("scripted").conversation()
    return [talk.prompt("hello").text(), talk.prompt("and again").text()]


def tools() -> Any:
    def get_weather(city: str) -> str:
        """Tells the weather."""
        return saying.weather(city)

    found = []
    for is_streamed in (False, True):
        chain = llm.get_model("scripted").chain(
            saying.WEATHER, tools=[get_weather], stream=is_streamed
        )
        responses = list(chain.responses())
        found.append(
            {
                "calls": [[call.name, call.arguments] for call in responses[0].tool_calls()],
                "text": responses[-1].text(),
            }
        )
    return found


def structured() -> Any:
    model = llm.get_model("real")
    return [
        json.loads(model.prompt("hello", schema=saying.SCHEMA, stream=is_streamed).text())
        for is_streamed in (False, True)
    ]


def errors() -> Any:
    scripted = llm.get_model("scripted")
    return {
        "unknown": saying.refusal(lambda: llm.get_model("nobody").prompt("hello").text()),
        "bad": saying.refusal(lambda: scripted.prompt("hello", max_tokens=-5).text()),
        "key": saying.refusal(lambda: scripted.prompt("hello", key="wrong").text()),
        "long": saying.refusal(lambda: llm.get_model("short").prompt(saying.LONG).text()),
        "long_whole": saying.refusal(
            lambda: llm.get_model("short").prompt(saying.LONG, stream=False).text()
        ),
        "broken_off": saying.refusal(lambda: scripted.prompt("break off").text()),
    }


def cancelled() -> Any:
    """Leave as people do: by Ctrl-C in the middle of an answer."""
    before = saying.settled()["left"]
    asked = subprocess.Popen(
        [sys.executable, "-m", "llm", "-m", "endless", "hello"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert asked.stdout is not None
    shown = asked.stdout.read(20)
    busy = saying.busy_slots()
    asked.send_signal(signal.SIGINT)
    asked.stdout.close()
    asked.wait(saying.LIMIT_S)
    return {
        "shown": len(shown),
        "left": saying.settled()["left"] - before,
        "busy": [busy, saying.busy_slots()],
    }


def prepare() -> Any:
    """Write what a user of llm writes once."""
    folder = Path(os.environ["LLM_USER_PATH"])
    folder.mkdir(exist_ok=True)
    names = {"mock": saying.MODEL, "real": saying.REAL, "short": saying.SHORT}
    text = MODELS.format(url=saying.V1, endless=saying.ENDLESS, **names)
    (folder / "extra-openai-models.yaml").write_text(text)
    (folder / "keys.json").write_text(json.dumps({"clawd": saying.KEY}))


if __name__ == "__main__":
    saying.run(prepare, chat, stream, conversation, tools, structured, errors, cancelled)
