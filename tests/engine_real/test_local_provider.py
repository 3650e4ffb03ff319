"""The local provider, the supervisor and a real worker with the embedded model."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clawd.engine.embedded import embedded_model_path
from clawd.engine.models import ModelFolder
from clawd.engine.process import Launcher, unfenced
from clawd.engine.protocol import ModelConfig
from clawd.engine.settings import EngineSettings
from clawd.engine.supervisor import Engine
from clawd.errors import WorkerDiedError
from clawd.providers.base import (
    ChatRequest,
    Evaluated,
    Failed,
    Finished,
    Message,
    Sampling,
    Text,
    ToolSpec,
    collect,
)
from clawd.providers.local import GREEDY, LocalModel, LocalProvider

pytestmark = pytest.mark.real_model

LIMIT_S = 100.0
SETTINGS = EngineSettings(backoff_initial_s=0.01)
FENCE = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev")
TOOLS = tuple(
    ToolSpec(name=name, description=name, parameters={"type": "object", "properties": {}})
    for name in ("time", "file_list", "file_read", "calculator")
)


@asynccontextmanager
async def local(
    folder: Path,
    settings: EngineSettings = SETTINGS,
    launcher: Launcher = unfenced,
) -> AsyncIterator[tuple[LocalProvider, Engine]]:
    models = ModelFolder(folder)
    engine = Engine(settings, launcher=launcher)

    def find(name: str) -> LocalModel:
        config = ModelConfig(path=str(models.find(name)), alias=name, n_threads=1, n_ctx=2048)
        return LocalModel(config=config, sampling=GREEDY)

    try:
        async with asyncio.timeout(LIMIT_S):
            yield LocalProvider("local", engine, find, default_model="embedded"), engine
    finally:
        await engine.close()


def ask(text: str, *after: Message, max_tokens: int = 100) -> ChatRequest:
    return ChatRequest(
        messages=(Message(role="user", content=text), *after),
        tools=TOOLS,
        sampling=Sampling(max_tokens=max_tokens),
    )


async def test_the_embedded_model_calls_a_tool_and_answers_with_its_result(
    tmp_path: Path,
) -> None:
    async with local(tmp_path) as (provider, _):
        first = await collect(provider.chat(ask("What time is it?")))
        assert [call.name for call in first.tool_calls] == ["time"]
        assert first.stop_reason == "tool_calls"
        assert "<tool_call>" not in first.final_text
        call = first.tool_calls[0]
        second = await collect(
            provider.chat(
                ask(
                    "What time is it?",
                    Message(role="assistant", content=first.final_text, tool_calls=(call,)),
                    Message(
                        role="tool",
                        content="2026-11-20 14:05:09 UTC",
                        tool_call_id=call.id,
                        name="time",
                    ),
                )
            )
        )
        assert second.stop_reason == "stop"
        assert "14:05" in second.final_text
        assert second.usage.cached_tokens > 0


async def test_greedy_answers_are_the_same_alone_and_together(tmp_path: Path) -> None:
    questions = ["What time is it?", "List the files in src", "what is 12 times 7?"]
    async with local(tmp_path) as (provider, _):
        alone = [await collect(provider.chat(ask(q))) for q in questions]
        together = await asyncio.gather(*(collect(provider.chat(ask(q))) for q in questions))
    for one, other in zip(alone, together, strict=True):
        assert one.final_text == other.final_text
        assert [(c.name, c.arguments) for c in one.tool_calls] == [
            (c.name, c.arguments) for c in other.tool_calls
        ]


async def test_evaluation_is_said_once_and_before_the_text(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, _):
        deltas = [delta async for delta in provider.chat(ask("Hello!"))]
    kinds = [type(delta) for delta in deltas]
    assert kinds.count(Evaluated) == 1
    assert kinds[-1] is Finished
    assert kinds.index(Evaluated) < kinds.index(Text)


async def test_a_killed_worker_fails_the_answer_and_the_next_one_works(tmp_path: Path) -> None:
    async with local(tmp_path) as (provider, engine):
        await provider.check()
        os.kill(engine.status()[0].pid, signal.SIGSTOP)
        task = asyncio.create_task(anext(provider.chat(ask("Hello!"))))
        while not engine.status()[0].running:
            await asyncio.sleep(0)
        os.kill(engine.status()[0].pid, signal.SIGKILL)
        failed = await task
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, WorkerDiedError)
        assert "SIGKILL" in failed.error.message
        assert (await collect(provider.chat(ask("Hello!")))).final_text


async def test_a_file_that_is_no_model_is_an_error_and_the_engine_goes_on(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(1000))
    async with local(tmp_path) as (provider, engine):
        request = ChatRequest(messages=(Message(role="user", content="Hi"),), model="broken")
        (failed,) = [delta async for delta in provider.chat(request)]
        assert isinstance(failed, Failed)
        assert "broken" in str(failed.error)
        assert "embedded" in await provider.check()
        assert [status.alias for status in engine.status()] == ["embedded"]


async def test_a_runaway_template_is_killed_and_its_model_marked_bad(tmp_path: Path) -> None:
    loop = "{% for a in range(90000) %}"
    end = "{% endfor %}"
    template = loop * 3 + "{% if messages is none %}x{% endif %}" + end * 3
    tool = (sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--chat-template", template)
    files = (str(embedded_model_path()), str(tmp_path / "runaway.gguf"))
    subprocess.run([*tool, *files], check=True, capture_output=True)
    async with local(tmp_path, EngineSettings(template_timeout_s=1.0)) as (provider, _):
        request = ChatRequest(messages=(Message(role="user", content="Hi"),), model="runaway")
        for expected in ("template was not rendered within 1 s", "is marked bad"):
            (failed,) = [delta async for delta in provider.chat(request)]
            assert isinstance(failed, Failed)
            assert expected in str(failed.error)
        assert "embedded" in await provider.check()


@pytest.mark.sandbox
async def test_a_launcher_may_put_the_worker_behind_bubblewrap(tmp_path: Path) -> None:
    def fenced(argv: tuple[str, ...], *, model_path: Path) -> tuple[str, ...]:
        assert model_path.is_file()
        return (*FENCE, *argv)

    async with local(tmp_path, launcher=fenced) as (provider, engine):
        assert (await collect(provider.chat(ask("Hello!")))).final_text
        with pytest.raises(WorkerDiedError):
            generation = provider.chat(ask("Hello again!"))
            pid = engine.status()[0].pid
            # It must not answer before the end of its launcher has reached it.
            os.killpg(pid, signal.SIGSTOP)
            os.kill(pid, signal.SIGKILL)
            await collect(generation)
