"""The written config, the JSON Schema, what is in force, secrets, profiles and init."""

import itertools
import json
import re
import stat
from pathlib import Path

import pytest

from clawd.config.load import engine_settings, load, matching_pattern
from clawd.config.mcp import McpServerSection
from clawd.config.render import initialise, redacted, render_default_config, settings
from clawd.config.schema import Config, ProviderSection, json_schema
from clawd.config.secrets import provider_key
from clawd.errors import ConfigError
from clawd.paths import Layout, layout

ROOT = Path(__file__).parents[2]


def layout_of(home: Path) -> Layout:
    return layout({"CLAWD_HOME": str(home), "HOME": "/home/ada"})


def uncommented(text: str) -> str:
    return re.sub(r"(?m)^#(?=\[|\w+ = |    |\]$)", "", text)


def test_the_written_config_says_what_is_built_in(tmp_path: Path) -> None:
    env = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    built_in = load(environ=env).config
    (tmp_path / "config.toml").write_text(render_default_config(layout_of(tmp_path)))
    assert load(environ=env).config == built_in


def test_the_written_config_names_every_key_with_its_built_in_value(tmp_path: Path) -> None:
    env = {"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"}
    built_in = load(environ=env).config
    text = uncommented(render_default_config(layout_of(tmp_path)))
    (tmp_path / "config.toml").write_text(text)
    loaded = load(environ=env)
    for name in Config.model_fields:
        if name not in {"providers", "agents", "model", "mcp"}:
            assert getattr(loaded.config, name) == getattr(built_in, name)
    for setting in settings(loaded):
        is_example = setting.key.startswith(("providers.models.", "mcp.servers.remote."))
        assert is_example or setting.source != "default", setting.key
    shown = {key for section in loaded.config.providers.models for key in section}
    assert shown
    assert set(loaded.config.agents) == {"reviewer"}
    assert set(loaded.config.mcp.servers) == {"files", "remote"}
    assert loaded.config.mcp.model_copy(update={"servers": {}}) == built_in.mcp
    for key in McpServerSection.model_fields:
        assert key == "auth_token" or re.search(rf"(?m)^{key} = ", text), key
    assert set(loaded.config.model) == {"qwen3"}
    providers = {"local", "mock", "server", "claude", "safe", "fleet", "scripted"}
    assert set(loaded.config.providers.models) == providers
    for key in ProviderSection.model_fields:
        assert key == "api_key" or re.search(rf"\b{key}\b", text), key


def test_every_key_of_the_written_config_is_explained(tmp_path: Path) -> None:
    text = render_default_config(layout_of(tmp_path))
    sections = text.partition("[security]")[2].partition("#[agents.")[0].splitlines()
    for before, line in itertools.pairwise(sections):
        if re.match(r"#?\w+ = ", line):
            assert before.startswith("# "), line


def test_the_config_in_etc_is_the_written_one_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    expected = render_default_config(layout({"CLAWD_HOME": "/var/lib/clawd"}))
    assert (ROOT / "etc/config.toml").read_text() == expected


def test_the_json_schema_takes_an_empty_file_and_names_allowed_values() -> None:
    schema = json_schema()
    assert "required" not in schema
    autonomy = schema["$defs"]["SecuritySection"]["properties"]["autonomy"]
    assert autonomy["enum"] == ["readonly", "supervised", "edits", "full"]
    assert schema["additionalProperties"] is False
    json.dumps(schema)


def test_what_is_shown_holds_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[providers.models.x]\nkind = "mock"\napi_key = "sk-secret"')
    file.chmod(0o600)
    loaded = load(environ={"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"})
    shown = json.dumps(redacted(loaded)) + repr(settings(loaded)) + repr(loaded)
    assert "sk-secret" not in shown
    assert redacted(loaded)["providers"]["models"]["x"]["api_key"] == "(set, not shown)"
    by_key = {setting.key: setting.source for setting in settings(loaded)}
    assert by_key["providers.models.x.kind"] == str(file)
    assert by_key["security.autonomy"] == "default"


class TestProfiles:
    CONFIG = """
        [engine]
        temperature = 0.5
        top_k = 10
        [model.qwen]
        temperature = 0.1
        [model."Qwen3-Coder"]
        temperature = 0.2
        top_k = 20
        ctx_size = 4096
    """

    def test_the_longest_matching_pattern_wins_in_any_case(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text(self.CONFIG)
        loaded = load(environ={"CLAWD_HOME": str(tmp_path), "HOME": "/home/ada"})
        coder = engine_settings(loaded, "/models/qwen3-coder-30B.gguf", {})
        assert (coder.temperature, coder.top_k, coder.ctx_size) == (0.2, 20, 4096)
        small = engine_settings(loaded, "QWEN2.gguf", {})
        assert (small.temperature, small.top_k, small.ctx_size) == (0.1, 10, 0)
        assert engine_settings(loaded, "llama.gguf", {}) == loaded.config.engine
        assert matching_pattern(loaded.config, "/qwen/llama.gguf") is None

    def test_the_environment_and_the_command_line_win_over_a_pattern(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text(self.CONFIG)
        env = {
            "CLAWD_HOME": str(tmp_path),
            "HOME": "/home/ada",
            "CLAWD_ENGINE__TEMPERATURE": "0.9",
        }
        loaded = load(environ=env, overrides={"engine.top_k": 7})
        coder = engine_settings(loaded, "qwen3-coder.gguf", {})
        assert (coder.temperature, coder.top_k, coder.ctx_size) == (0.9, 7, 4096)


class TestProviderKey:
    def test_comes_from_the_environment_first(self, tmp_path: Path) -> None:
        section = ProviderSection(kind="openai-compatible", api_key_env="THE_KEY")
        (tmp_path / "THE_KEY").write_text("from-credential\n")
        env = {"THE_KEY": "from-environment", "CREDENTIALS_DIRECTORY": str(tmp_path)}
        assert provider_key("x", section, env) == "from-environment"
        del env["THE_KEY"]
        assert provider_key("x", section, env) == "from-credential"

    def test_that_is_nowhere_is_an_error_that_says_where_to_put_it(self, tmp_path: Path) -> None:
        section = ProviderSection(kind="openai-compatible", api_key_env="THE_KEY")
        with pytest.raises(ConfigError, match="THE_KEY") as caught:
            provider_key("x", section, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
        assert "LoadCredential" in caught.value.hint

    def test_is_read_from_a_private_file_only(self, tmp_path: Path) -> None:
        file = tmp_path / "key"
        file.write_text("from-file\n")
        section = ProviderSection(kind="openai-compatible", api_key_file=file)
        file.chmod(0o640)
        with pytest.raises(ConfigError, match="0600") as caught:
            provider_key("x", section, {})
        assert "from-file" not in caught.value.message
        file.chmod(0o600)
        assert provider_key("x", section, {}) == "from-file"
        file.write_text("")
        with pytest.raises(ConfigError, match="empty"):
            provider_key("x", section, {})

    def test_is_none_where_none_is_configured(self) -> None:
        assert provider_key("x", ProviderSection(kind="mock"), {}) is None


class TestInitialise:
    def test_makes_a_private_home_with_a_valid_config(self, tmp_path: Path) -> None:
        where = layout_of(tmp_path / "new" / "home")
        done = initialise(where)
        assert len(done) == 5
        assert stat.S_IMODE(where.home.stat().st_mode) == 0o700
        assert stat.S_IMODE(where.config.stat().st_mode) == 0o600
        assert where.workspace.is_dir()
        assert where.models.is_dir()
        load(where.config, {"CLAWD_HOME": str(where.home), "HOME": "/home/ada"})

    def test_keeps_what_is_there_and_closes_an_open_home(self, tmp_path: Path) -> None:
        where = layout_of(tmp_path / "home")
        initialise(where)
        where.config.write_text('default_provider = "mock"\n')
        where.home.chmod(0o755)
        done = initialise(where)
        assert done[0] == f"closed {where.home} to others (0700)"
        assert where.config.read_text() == 'default_provider = "mock"\n'
        assert stat.S_IMODE(where.home.stat().st_mode) == 0o700
        assert all(line.startswith("kept") for line in initialise(where))

    def test_says_what_is_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "home").write_text("a file")
        with pytest.raises(ConfigError, match="cannot set up"):
            initialise(layout_of(tmp_path / "home"))
