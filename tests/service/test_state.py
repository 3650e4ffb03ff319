"""What the config says of providers and models, as the daemon's parts get it."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from clawd.config.load import load
from clawd.engine.supervisor import Engine
from clawd.errors import ConfigError, ProviderError
from clawd.plugins.loader import PluginPins, PluginStore
from clawd.providers.base import ChatRequest, Message, Sampling
from clawd.providers.openai import OpenAICompatibleProvider
from clawd.providers.router import RouterProvider
from clawd.service.state import MAX_ADDRESSES, LocalModels, State, runtime_of
from clawd.wire.daemon import Reload
from clawd.wire.turns import SamplingWishes, ShowSampling
from tests.plugins.plugin_files import manifest_text, plugin
from tests.support.collecting import collect
from tests.support.engines import Journal, fake_engine
from tests.support.inprocess import OWNER, daemon_in
from tests.support.rows import each_row
from tests.tools.external_files import entry, manifest

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


@each_row(
    ("written", "default"),
    [
        ("", "embedded"),
        ('default_model = "EMBEDDED"', "embedded"),
        ('default_model = "gone"', "gone"),
        ('default_model = "{folder}/there.gguf"', "there"),
        ('default_model = "{folder}/../stray.gguf"', "{folder}/../stray.gguf"),
        ('default_provider = "mock"', ""),
    ],
)
def test_the_list_of_models_names_the_one_that_answers(
    tmp_path: Path, written: str, default: str
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for path in (folder / "there.gguf", tmp_path / "stray.gguf"):
        path.write_bytes(b"123")
    (tmp_path / "config.toml").write_text(written.format(folder=folder))
    models = LocalModels(load(environ={"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}))
    assert models.listed().default == default.format(folder=folder)


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


async def test_the_default_provider_is_checked_with_the_default_model(tmp_path: Path) -> None:
    environ = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.gguf").touch()
    async with fake_engine(tmp_path) as (engine, journal):
        state = State(load(environ=environ), engine, environ)
        assert (await state.providers["local"].check()).startswith("embedded ")
        (tmp_path / "config.toml").write_text('default_model = "mine"')
        assert state.adopt(load(environ=environ)) == ""
        assert (await state.providers["local"].check()).startswith("mine ")
        lines = {line.name: line.model for line in state.provider_lines()}
        assert lines["local"] == "mine"
        assert len(journal.having("load")) == 2
        await state.close()


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
    assert runtime.compression.model_dump() == keys
    assert runtime.loop.titles == "model"


async def test_m2_the_limit_of_one_tool_call_reaches_every_tool(tmp_path: Path) -> None:
    limits = "[limits]\ntool_timeout_s = 7.5\nshell_timeout_s = 4.0\nhttp_timeout_s = 3.0"
    async with daemon_in(tmp_path, f"{limits}\n[web]\nextract_timeout_s = 2.0") as inside:
        found = {tool.name: tool.timeout_s for tool in inside.daemon.registry.all()}
    others = {name: limit_s for name, limit_s in found.items() if limit_s != 7.5}
    assert set(others) <= {
        *("shell", "job", "evaluate", "ask_user", "open_url", "sop"),
        *("http", "web_search", "web_fetch", "pdf_extract"),
    }
    assert (others["http"], others["web_fetch"], others["pdf_extract"]) == (8.0, 15.0, 15.0)
    assert len(found) - len(others) > 20


async def test_m2_no_manifest_has_more_time_than_the_limit_of_a_call(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = home / "tools"
    folder.mkdir(parents=True)
    slow, quick = entry(name="slow", timeout_ms=300_000), entry(name="quick", timeout_ms=1_500)
    file = folder / "CLAWD-some.tools"
    file.write_text(manifest(slow, quick))
    file.chmod(0o600)
    asked = plugin(tmp_path / "source", manifest=manifest_text(more="timeout_ms = 90000"))
    store = PluginStore(home / "plugins", PluginPins(home / "plugin_pins.json"))
    store.install(asked, digest=store.inspect(asked).digest, by=os.getuid())
    grace_s, plugin_grace_s = 11.0, 21.0
    async with daemon_in(tmp_path, "[limits]\ntool_timeout_s = 7.5") as inside:
        daemon = inside.daemon
        found = {tool.name: tool.timeout_s for tool in daemon.registry.all()}
        told = [(each.tool, each.severity, each.reason) for each in daemon.toolset.problems]
        assert {name: found[name] for name in ("slow", "quick", "probe_tool")} == {
            "slow": 7.5 + grace_s,
            "quick": 1.5 + grace_s,
            "probe_tool": 7.5 + plugin_grace_s,
        }
        why = "calls are ended after 7.5 s, which tool_timeout_s in [limits] sets for all tools"
        assert told == [
            ("slow", "warning", f"timeout_ms is 300000; {why}"),
            ("probe_tool", "warning", f"timeout_ms is 90000; {why}"),
        ]
        text = (home / "config.toml").read_text()
        (home / "config.toml").write_text(text.replace("7.5", "600.0"))
        await inside.ask(Reload(), OWNER)
        found = {tool.name: tool.timeout_s for tool in daemon.registry.all()}
        assert (found["slow"], found["probe_tool"]) == (300 + grace_s, 90 + plugin_grace_s)
        assert daemon.toolset.problems == ()


async def test_m2_retries_and_the_limit_of_a_silent_stream_are_keys(tmp_path: Path) -> None:
    remote = FLEET + "timeout_s = 9.5\n[providers]\nretries = 0\n"
    (tmp_path / "config.toml").write_text(remote)
    environ = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    engine = Engine()
    made = State(load(environ=environ), engine, environ)
    far = made.providers["far"]
    assert isinstance(far, OpenAICompatibleProvider)
    assert (far._section.timeout_s, far.retry.extra_attempts) == (9.5, 0)
    await made.close()
    await engine.close()


async def test_m1_the_sampling_in_force_is_told_with_who_set_it(tmp_path: Path) -> None:
    wishes = SamplingWishes(temperature=0.25, presence_penalty=0.5)
    asked = ShowSampling(provider="local", preset="precise", sampling=wishes)
    root, ada = OWNER, msgspec.structs.replace(OWNER, role="user")
    async with daemon_in(tmp_path, FLEET) as inside:
        found = {who.role: await inside.ask(asked, who) for who in (root, ada)}
        far = await inside.ask(ShowSampling(provider="far", preset="wild", sampling=wishes), root)
    told = {
        role: {each.name: (each.value, each.origin) for each in report.items}
        for role, report in found.items()
    }
    assert found["admin"].is_whole
    expected = {
        "temperature": ("0.25", "message"),
        "top_k": ("40", "preset"),
        "repeat_penalty": ("1.0", "config"),
        "presence_penalty": ("0.5", "message"),
        "frequency_penalty": ("0.0", "config"),
    }
    assert {name: told["admin"][name] for name in expected} == expected
    assert told["user"] == told["admin"] | {"presence_penalty": ("0.0", "config")}
    assert not far.is_whole
    assert {each.name: (each.value, each.origin) for each in far.items} == {
        "temperature": ("0.25", "message"),
        "presence_penalty": ("0.5", "message"),
        "top_p": ("1.0", "preset"),
    }


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
