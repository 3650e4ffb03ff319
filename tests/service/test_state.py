"""What the config says of providers and models, as the daemon's parts get it."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from clawd.config.load import load
from clawd.engine.supervisor import Engine
from clawd.errors import ConfigError, ProviderError
from clawd.providers.base import ChatRequest, Message, Sampling, collect
from clawd.providers.openai_compatible import OpenAICompatibleProvider
from clawd.providers.router import RouterProvider
from clawd.service.state import MAX_ADDRESSES, LocalModels, State, runtime_of
from tests.support.engines import Journal, fake_engine
from tests.support.inprocess import daemon_in

FLEET = """
[providers.models.fleet]
kind = "router"
providers = ["near", "far"]
probe_interval_s = 3600.0

[providers.models.near]
kind = "mock"
model = "small-one"
labels = { privacy = "local" }

[providers.models.far]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
model = "big-one"
labels = { privacy = "cloud", model = "big" }
"""


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    (tmp_path / "config.toml").write_text(FLEET)
    environ = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    engine = Engine()
    made = State(load(environ=environ), engine, environ)
    try:
        yield made
    finally:
        await made.close()
        await engine.close()


def ask(model: str = "", **hints: str) -> ChatRequest:
    message = Message(role="user", content="hello")
    return ChatRequest(messages=(message,), model=model, metadata=hints)


async def test_a_router_stands_before_its_backends_with_their_labels(state: State) -> None:
    fleet = state.providers["fleet"]
    assert isinstance(fleet, RouterProvider)
    assert (await collect(fleet.chat(ask(privacy="local")))).final_text == "hello"
    assert (await collect(fleet.chat(ask(model="small-one")))).final_text == "hello"
    with pytest.raises(ProviderError, match="every backend of fleet failed:\nfar: "):
        await collect(fleet.chat(ask(model="big")))
    with pytest.raises(ProviderError, match="carries model=big-one; there are near: model=small-o"):
        await collect(fleet.chat(ask(model="big-one")))


def test_models_are_listed_with_the_profile_that_applies(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[model."qwen"]\ntop_k = 1\n[model."qwen3-8"]\ntop_k = 2')
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("Qwen3-8B.gguf", "Qwen2.gguf", "other.gguf", "notes.txt"):
        (folder / name).write_bytes(b"123")
    models = LocalModels(load(environ={"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}))
    listed = models.listed()
    assert listed.folder == str(folder)
    assert [(line.name, line.profile) for line in listed.items] == [
        ("embedded", ""),
        ("Qwen2", "qwen"),
        ("Qwen3-8B", "qwen3-8"),
        ("other", ""),
    ]
    assert listed.items[1].size_bytes == 3


async def test_penalties_of_requests_count_where_the_operator_allows_it(tmp_path: Path) -> None:
    environ = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    wishes = Sampling(repeat_penalty=1.5, temperature=0.5)
    request = ChatRequest(messages=(Message(role="user", content="say yes"),), sampling=wishes)

    async def asked(state: State, journal: Journal) -> tuple[float, float]:
        answer = await collect(state.providers["local"].chat(request))
        assert answer.final_text == "yes"
        done = journal.having("generate")[-1]
        return done["repeat_penalty"], done["temperature"]

    config = tmp_path / "config.toml"
    config.write_text("[engine]\nrepeat_penalty = 1.1")
    async with fake_engine(tmp_path) as (engine, journal):
        state = State(load(environ=environ), engine, environ)
        assert await asked(state, journal) == (1.0, 0.5)
        config.write_text("[engine]\nallow_request_penalties = true")
        assert state.adopt(load(environ=environ)) == ""
        assert await asked(state, journal) == (1.5, 0.5)
        await state.close()


async def test_a_profile_that_changed_is_in_force_after_a_reload(tmp_path: Path) -> None:
    environ = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    engine = Engine()
    state = State(load(environ=environ), engine, environ)
    (tmp_path / "config.toml").write_text('[model."tiny"]\nctx_size = 777')
    assert state.adopt(load(environ=environ)) == ""
    assert state.providers["local"].capabilities().context_size == 777
    await state.close()
    await engine.close()


def test_a_file_has_one_engine_name_whatever_it_is_asked_for_by(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "Qwen3.gguf").touch()
    models = LocalModels(load(environ={"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}))
    names = ("Qwen3", "qwen3", "QWEN3.gguf", str(folder / "Qwen3.gguf"))
    assert {models.find(name).config.alias for name in names} == {"Qwen3"}


async def test_the_list_of_providers_names_what_a_router_stands_before(state: State) -> None:
    (line,) = [each for each in state.provider_lines() if each.name == "fleet"]
    assert (line.kind, line.model) == ("router", "near, far")


def test_the_runtime_gets_every_key_of_compression_and_the_titles(tmp_path: Path) -> None:
    keys = {
        "at_messages": 40,
        "at_context_percent": 50,
        "keep_least": 3,
        "keep_most": 9,
        "summary_tokens": 100,
        "summary_timeout_s": 7.0,
        "context_tokens": 9000,
    }
    lines = [f"{name} = {value}" for name, value in keys.items()]
    text = "\n".join(["[compression]", *lines, '[agent]\ntitles = "model"\n'])
    (tmp_path / "config.toml").write_text(text)
    environ = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    runtime = runtime_of(load(environ=environ))
    assert msgspec.structs.asdict(runtime.compression) == keys
    assert runtime.titles == "model"


async def test_m2_the_limit_of_one_tool_call_reaches_every_tool(tmp_path: Path) -> None:
    limits = "[limits]\ntool_timeout_s = 7.5\nshell_timeout_s = 4.0\nhttp_timeout_s = 3.0"
    async with daemon_in(tmp_path, f"{limits}\n[web]\nextract_timeout_s = 2.0") as inside:
        found = {tool.name: tool.timeout_s for tool in inside.daemon.registry.all()}
    others = {name: limit_s for name, limit_s in found.items() if limit_s != 7.5}
    assert set(others) <= {
        *("shell", "evaluate", "ask_user", "open_url"),
        *("http", "web_search", "web_fetch", "pdf_extract"),
    }
    assert (others["http"], others["web_fetch"], others["pdf_extract"]) == (8.0, 15.0, 15.0)
    assert len(found) - len(others) > 20


async def test_m2_retries_and_the_limit_of_a_silent_stream_are_keys(tmp_path: Path) -> None:
    remote = FLEET + "timeout_s = 9.5\n[providers]\nretries = 0\n"
    (tmp_path / "config.toml").write_text(remote)
    environ = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    engine = Engine()
    made = State(load(environ=environ), engine, environ)
    far = made.providers["far"]
    assert isinstance(far, OpenAICompatibleProvider)
    assert (far._settings.read_timeout_s, far._settings.retry.extra_attempts) == (9.5, 0)
    await made.close()
    await engine.close()


async def test_m1_an_address_of_a_message_becomes_a_provider_and_only_so_many(
    state: State,
) -> None:
    url = "http://127.0.0.1:9/v1"
    assert state.provider_at(url) == state.provider_at(url) == url
    assert state.providers[url].name() == url
    for wrong in ("", "models", "ftp://x/v1", "file:///etc/passwd", "https://ada:word@x/v1"):
        with pytest.raises(ConfigError):
            state.provider_at(wrong)
    for number in range(2 * MAX_ADDRESSES):
        state.provider_at(f"http://127.0.0.1:{number + 10}/v1")
    assert len([name for name in state.providers if "://" in name]) == MAX_ADDRESSES
    assert {"fleet", "near", "far"} <= set(state.providers)
