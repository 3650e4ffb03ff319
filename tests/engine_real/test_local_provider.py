"""The local provider, the supervisor and a real worker with the embedded model."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from clawd.engine.client import EngineSettings
from clawd.engine.embedded import embedded_model_path
from clawd.engine.models import ModelFolder
from clawd.engine.process import Launcher, unfenced
from clawd.engine.protocol import ModelConfig
from clawd.engine.supervisor import Engine
from clawd.errors import WorkerDiedError
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Failed,
    Finished,
    Message,
    Sampling,
    ToolSpec,
)
from clawd.providers.local import LocalModel, LocalProvider
from clawd.wire.events import Notice, PromptEvaluated, TextDelta, ToolDraft
from tests.support.collecting import collect
from tests.support.engines import GREEDY

pytestmark = pytest.mark.real_model
shared = pytest.mark.asyncio(loop_scope="module")  # for those that take `provider`

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
    async with unlimited(folder, settings, launcher) as made, asyncio.timeout(LIMIT_S):
        yield made


@asynccontextmanager
async def unlimited(
    folder: Path,
    settings: EngineSettings = SETTINGS,
    launcher: Launcher = unfenced,
) -> AsyncIterator[tuple[LocalProvider, Engine]]:
    """The same for a fixture of many tests, each with a limit of its own."""
    models = ModelFolder(folder)
    engine = Engine(settings, launcher=launcher)

    def find(name: str) -> LocalModel:
        config = ModelConfig(path=str(models.find(name)), alias=name, n_threads=1, n_ctx=2048)
        return LocalModel(config=config, sampling=GREEDY)

    try:
        yield LocalProvider("local", engine, find, default_model="embedded"), engine
    finally:
        await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalProvider]:
    """One worker for all that ask the embedded model and do nothing to the engine."""
    async with unlimited(tmp_path_factory.mktemp("models")) as (made, _):
        yield made


def ask(text: str, *after: Message, max_tokens: int = 100) -> ChatRequest:
    return ChatRequest(
        messages=(Message(role="user", content=text), *after),
        tools=TOOLS,
        sampling=Sampling(max_tokens=max_tokens),
    )


@shared
async def test_h4_a_call_is_shown_while_the_model_writes_it(provider: LocalProvider) -> None:
    deltas = [delta async for delta in provider.chat(ask("What is 12 times 7?"))]
    (call,) = [each for each in deltas if isinstance(each, CallDelta)]
    drafts = [each for each in deltas if isinstance(each, ToolDraft)]
    # How many there are is up to the machine: a busy one hands on many tokens at once.
    assert {each.tool for each in drafts} == {call.name}
    assert "".join(each.text for each in drafts) == call.arguments
    assert deltas.index(drafts[-1]) < deltas.index(call)


@shared
async def test_r7_the_toy_says_once_in_a_conversation_that_it_did_not_read_a_whole_message(
    provider: LocalProvider,
) -> None:
    long, told = "word " * 500, "the first 1,200 of 2,500 characters"
    answer = Message(role="assistant", content="Yes.")
    block = f"<context>\n{long}\n</context>\n\n"
    rows: dict[str, tuple[ChatRequest, bool]] = {
        "a short one": (ask("Hello"), False),
        "a long one": (ask(long), True),
        "a long block of facts": (ask(f"{block}Hello"), False),
        "a second long one": (ask(long, answer, Message(role="user", content=long)), False),
        "a short one behind": (ask(long, answer, Message(role="user", content="Hello")), False),
        "a long one behind": (ask("Hello", answer, Message(role="user", content=long)), True),
    }
    wrong = {}
    for name, (request, is_told) in rows.items():
        short = msgspec.structs.replace(request, sampling=Sampling(max_tokens=2))
        deltas = [delta async for delta in provider.chat(short)]
        notes = [each.text for each in deltas if isinstance(each, Notice)]
        if any(told in note for note in notes) is not is_told:
            wrong[name] = notes
    assert not wrong


@shared
async def test_the_embedded_model_calls_a_tool_and_answers_with_its_result(
    provider: LocalProvider,
) -> None:
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


@shared
async def test_greedy_answers_are_the_same_alone_and_together(provider: LocalProvider) -> None:
    questions = ["What time is it?", "List the files in src", "what is 12 times 7?"]
    alone = [await collect(provider.chat(ask(q))) for q in questions]
    together = await asyncio.gather(*(collect(provider.chat(ask(q))) for q in questions))
    for one, other in zip(alone, together, strict=True):
        assert one.final_text == other.final_text
        assert [(c.name, c.arguments) for c in one.tool_calls] == [
            (c.name, c.arguments) for c in other.tool_calls
        ]


@shared
async def test_evaluation_is_said_once_and_before_the_text(provider: LocalProvider) -> None:
    deltas = [delta async for delta in provider.chat(ask("Hello!"))]
    kinds = [type(delta) for delta in deltas]
    assert kinds.count(PromptEvaluated) == 1
    assert kinds[-1] is Finished
    assert kinds.index(PromptEvaluated) < kinds.index(TextDelta)


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
