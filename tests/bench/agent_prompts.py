"""How many tokens the prompt of two words has in the chat templates of many families.

What a daemon asks of a server is taken down: system prompt, message and tools, once with the core
of tools and once with all. Each template writes that as it would for a model of its family. The
tokenizer is the real model's for all of them, so markers of other families count as text.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import msgspec
from typing_extensions import override

from clawctl.client import connect
from clawd.engine.protocol import ChatMessage
from clawd.engine.worker.template import ChatTemplate, RenderInput
from clawd.paths import layout
from clawd.wire.turns import SendMessage
from tests.support.home import Home

SAID = "Say hi"
OFFERS: tuple[Literal["core", "all"], ...] = ("core", "all")
CHECKOUT = Path(__file__).parents[2]
# One template for each family that people run; `ChatML` is what the engine uses without one.
FAMILIES: Mapping[str, str] = {
    "chatml": "",
    "command-r7b": "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "deepseek-r1-distill": "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-v3.1": "deepseek-ai-DeepSeek-V3.1",
    "functionary-3.2": "meetkai-functionary-medium-v3.2",
    "gemma-2": "google-gemma-2-2b-it",
    "gemma-4": "google-gemma-4-31B-it",
    "glm-4.6": "GLM-4.6",
    "gpt-oss": "openai-gpt-oss-120b",
    "granite-4.0": "ibm-granite-granite-4.0",
    "hermes-3": "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "kimi-k2": "Kimi-K2-Instruct",
    "lfm2": "LFM2-8B-A1B",
    "llama-3.2": "meta-llama-Llama-3.2-3B-Instruct",
    "minimax-m2": "MiniMax-M2",
    "mistral-small-3.2": "Mistral-Small-3.2-24B-Instruct-2506",
    "phi-3.5": "microsoft-Phi-3.5-mini-instruct",
    "qwen-2.5": "Qwen-Qwen2.5-7B-Instruct",
    "qwen-3": "Qwen-Qwen3-0.6B",
    "qwen-3-coder": "Qwen3-Coder",
    "seed-oss": "ByteDance-Seed-OSS",
    "smollm-3": "HuggingFaceTB-SmolLM3-3B",
}


class PromptTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one family's prompt with the core of tools, and with all of them."""

    family: str
    core: int
    everything: int


def prompt_tokens(folder: Path, model: Path, templates: Mapping[str, str]) -> list[PromptTokens]:
    """Count with the tokenizer of a model's file.

    Args:
        folder: for a home.
        model: a GGUF file.
        templates: the text of each family's template.
    """
    asked = {offer: asked_with(folder / offer, offer) for offer in OFFERS}
    # Jinja and llama.cpp are the engine's: nobody else loads them.
    import llama_cpp

    tokenizer = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
    found = []
    for family, source in templates.items():
        core, everything = (
            len(
                tokenizer.tokenize(
                    written(source, asked[offer]).encode(), add_bos=False, special=True
                )
            )
            for offer in OFFERS
        )
        found.append(PromptTokens(family=family, core=core, everything=everything))
    return found


def templates_in(folder: Path) -> dict[str, str]:
    """Return the templates of the families from llama.cpp's folder of them."""
    return {
        family: (folder / f"{stem}.jinja").read_text("utf-8") if stem else ""
        for family, stem in FAMILIES.items()
    }


def written(source: str, asked: dict[str, Any]) -> str:
    """Return a request as a chat template writes it, by the ways that the engine has."""
    messages = [
        ChatMessage(role=each["role"], content=each["content"]) for each in asked["messages"]
    ]
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    return template.render(RenderInput(messages=messages, tools=asked.get("tools") or []))


def asked_with(folder: Path, offer: str) -> dict[str, Any]:
    """Return what a daemon asks of a server, in this checkout, with a core of tools or with all."""
    folder.mkdir(parents=True)
    home = Home(folder)
    home.workspace = CHECKOUT
    with _server() as (address, asked):
        home.configure(
            provider="taken",
            tables=f'[tools]\noffer = "{offer}"\n[providers.models.taken]\n'
            f'kind = "openai-compatible"\nmodel = "m"\nbase_url = "{address}"\nstream = false\n',
        )
        try:
            home.start()
            with connect(layout(home.environ).socket) as client:
                list(client.stream(SendMessage(text=SAID)))
        finally:
            home.close()
    return asked[-1]


@contextmanager
def _server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve an API as OpenAI's that says hi, and yield its address and what it was asked."""
    asked: list[dict[str, Any]] = []

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            message = {"role": "assistant", "content": "hi"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = json.dumps({"choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
