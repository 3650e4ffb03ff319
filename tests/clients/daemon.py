"""A real daemon with its gateway for the clients of others, and what a driver saw of it."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.places import ROOT, python_of
from tests.support.embedding_models import write_pooled
from tests.support.gguf_models import write_random_gguf
from tests.support.home import Home

TABLES = """
[channels.http]
enabled = true
port = 0
tools_allow = ["file_list", "calculator"]

[engine]
temperature = 0.0
max_loaded = 4
prefix_cache_disk_mb = 0
"""
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
SAID = "Grüße aus Zürich, \U0001f9a4 and “all” the rest of it."
AFTER_TOOL = "It is sunny, 21 degrees in Zürich."
CALLED = {"name": "get_weather", "arguments": {"city": "Zürich"}}
TOKENS = 10
MODELS = ["clawd", "embedded", "endless", "short", "vectors"]
THOUGHT = "They want me to think."
REPLIES: tuple[dict[str, Any], ...] = (
    {"when": "weather", "after": "tool", "text": "It is {{last_tool_result}}."},
    {"when": "weather", "tool_calls": [CALLED]},
    {"when": "look", "after": "tool", "text": "There is {{last_tool_result}}."},
    {"when": "look", "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]},
    {"when": "think", "reasoning": THOUGHT, "text": SAID},
    {"when": "wait", "delay_s": 3600, "text": "never said"},
    {"when": "break off", "text": "Half of", "error": {"kind": "http", "status": 500}},
    {"when": "this picture", "text": "{{pictures}}"},
    {"text": SAID},
)
LIMIT_S = 800.0
IN_PICTURE = re.compile(r"image/png 3x2 [0-9a-f]{64}")


class Gateway:
    """A daemon whose gateway clients may ask."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.url: str = home.json("status")["gateway"]
        self.key: str = home.json("key", "create", "--name", "client", "--scope", "chat,tools")[
            "key"
        ]

    def environ(self) -> dict[str, str]:
        """Return what a client finds in its environment: no keys, proxies or homes of others."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": self.home.environ["HOME"],
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LLM_USER_PATH": f"{self.home.environ['HOME']}/llm",
        }

    def drive(self, driver: str, environment: str = "sdks") -> "Seen":
        """Run a driver to its end."""
        done = subprocess.run(
            [python_of(environment), "-m", f"tests.clients.drivers.{driver}", self.url, self.key],
            env=self.environ(),
            cwd=self.home.workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return Seen({line["case"]: line for line in lines}, done.stderr)


class Seen:
    """What a driver saw, by case."""

    def __init__(self, lines: dict[str, Any], stderr: str) -> None:
        self.lines = lines
        self.stderr = stderr

    def __getitem__(self, case: str) -> Any:
        assert case in self.lines, self.stderr
        line = self.lines[case]
        assert "raised" not in line, line["raised"]
        return line["saw"]


def hold(refusals: dict[str, Any]) -> None:
    """Make sure that a client tells each refusal by its status and with the daemon's words."""
    words = {
        "unknown": (404, "there is no model 'nobody'; there are: clawd, embedded"),
        "bad": (400, "expected"),
        "key": (401, "the key is not known, revoked or expired"),
        "long": (400, "the context holds 512"),
    }
    for name, (status, text) in words.items():
        assert refusals[name]["status"] == status, refusals[name]
        assert text in refusals[name]["message"], refusals[name]


def is_liked(value: dict[str, Any]) -> bool:
    """Return whether a value holds to the schema that the drivers give the model."""
    return (
        set(value) == {"name", "color", "likes_it"}
        and isinstance(value["name"], str)
        and len(value["name"]) <= 12
        and value["color"] in {"red", "green", "blue"}
        and isinstance(value["likes_it"], bool)
    )


@contextmanager
def gateway(folder: Path) -> Iterator[Gateway]:
    """Serve the scripted provider, the embedded model, and small ones made for what they show.

    `short` has little context, `endless` never ends, `vectors` makes embeddings.
    """
    home = Home(folder)
    home.configure(*REPLIES, tables=TABLES)
    (home.workspace / "plan.txt").write_text("x")
    models = home.path / "models"
    models.mkdir()
    write_random_gguf(models / "short.gguf", context_length=512, chat_template=PLAIN)
    write_random_gguf(
        models / "endless.gguf", context_length=8192, chat_template=PLAIN, is_printable=True
    )
    write_pooled(models / "vectors.gguf")
    try:
        home.start()
        # A refusal that comes late is told in the stream of an answer, as no status.
        assert home.ctl("model", "load", "short").returncode == 0
        yield Gateway(home)
    finally:
        home.close()
