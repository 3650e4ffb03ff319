"""An engine over fake workers, and what the tests about it share."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from clawd.engine.client import EngineSettings, GenerationEvent
from clawd.engine.protocol import ChatMessage, Generate, ModelConfig, Sampling, Tokens
from clawd.engine.supervisor import Engine

GREEDY = Sampling(temperature=0.0)

FAKE_WORKER = Path(__file__).parent / "fake_worker.py"
LIMIT_S = 60.0
FAST = EngineSettings(
    backoff_initial_s=0.01,
    backoff_max_s=0.05,
    ping_interval_s=0.05,
    quit_grace_s=LIMIT_S,
)
# For workers that never heed a Quit.
HASTY = msgspec.structs.replace(FAST, quit_grace_s=1.0)
WATCHFUL = msgspec.structs.replace(FAST, template_timeout_s=1.0, step_timeout_s=1.0)


class Journal:
    """What the fake workers did, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        # A line that is only just being written has no end yet.
        *whole, _ = self.path.read_text("utf-8").split("\n")
        return [json.loads(line) for line in whole]

    def having(self, key: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if key in line]


@asynccontextmanager
async def fake_engine(
    folder: Path, settings: EngineSettings = FAST
) -> AsyncIterator[tuple[Engine, Journal]]:
    journal = Journal(folder / "journal")
    argv = (sys.executable, "-s", "-P", str(FAKE_WORKER), "--journal", str(journal.path))
    engine = Engine(settings, argv=argv)
    try:
        yield engine, journal
    finally:
        await engine.close()


def give_time(settings: EngineSettings) -> None:
    """Let no step be too slow from now on; for settings of one test, that nobody else has."""
    msgspec.structs.force_setattr(settings, "step_timeout_s", LIMIT_S)


def model(stem: str = "good", alias: str = "") -> ModelConfig:
    return ModelConfig(path=f"/models/{stem}.gguf", alias=alias or stem)


def prompt(text: str) -> Generate:
    return Generate(id=0, messages=(ChatMessage(role="user", content=text),))


async def events_of(
    engine: Engine, text: str, config: ModelConfig | None = None
) -> list[GenerationEvent]:
    async with asyncio.timeout(LIMIT_S):
        return [event async for event in engine.generate(config or model(), prompt(text))]


async def text_of(engine: Engine, text: str, config: ModelConfig | None = None) -> str:
    events = await events_of(engine, text, config)
    return "".join(event.text for event in events if isinstance(event, Tokens))


async def eventually(is_true: Callable[[], bool]) -> None:
    """Wait, under a limit, for something that another process does."""
    async with asyncio.timeout(LIMIT_S):
        while not is_true():
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text("utf-8").rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False
