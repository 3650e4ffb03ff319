"""What the configuration accepts, refuses, and says about it."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from clawd.config.load import Loaded, load
from clawd.config.problems import of_validation
from clawd.config.render import REDACTED, overridden
from clawd.config.schema import Config
from clawd.config.sections import ALLOWED_COMMANDS, FORBIDDEN_COMMANDS, FORBIDDEN_PATHS
from clawd.errors import ConfigError
from clawd.security import policy
from tests.support.rows import each_row


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def environ(home: Path, **extra: str) -> dict[str, str]:
    return {"CLAWD_HOME": str(home), "HOME": "/home/ada", **extra}


def load_text(home: Path, text: str, **extra: str) -> Loaded:
    (home / "config.toml").write_text(text)
    return load(environ=environ(home, **extra))


def problems_of(home: Path, text: str, **extra: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(home, text, **extra)
    prefix = f"{home / 'config.toml'}: "
    return [problem.removeprefix(prefix) for problem in caught.value.problems]


def test_a_missing_file_means_the_built_in_values(home: Path) -> None:
    loaded = load(environ=environ(home))
    config = loaded.config
    assert config.workspace_dir == home / "workspace"
    assert config.memory.path == home / "memory.sqlite"
    assert config.receipts.path == home / "tool_receipts.log"
    assert config.default_provider == "local"
    assert config.providers.models["local"].kind == "local"
    assert config.providers.models["local"].model == "auto"
    assert config.security.forbidden_paths[-1] == Path("/home/ada/.ssh")
    assert config.security.workspace_roots == (Path("/home/ada"),)
    assert config.security.autonomy == "supervised"
    assert loaded.source_of("security.autonomy") == "default"


def test_the_built_in_lists_are_those_of_the_policy() -> None:
    assert ALLOWED_COMMANDS == policy.DEFAULT_ALLOWED_COMMANDS
    assert FORBIDDEN_COMMANDS == policy.DEFAULT_FORBIDDEN_COMMANDS
    assert FORBIDDEN_PATHS == policy.DEFAULT_FORBIDDEN_PATHS


def test_a_file_that_was_named_must_exist(home: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist") as caught:
        load(home / "other.toml", environ(home))
    assert "clawctl init" in caught.value.hint


@each_row(
    ("text", "problem"),
    [
        (
            '[security]\nautonomy = "godmode"',
            'security.autonomy = "godmode": expected one of readonly, supervised, edits, full',
        ),
        ("[security]\nworkspace_only = 1", "security.workspace_only = 1: expected true or false"),
        (
            "[security]\nalowed_domains = []",
            "security.alowed_domains is not a known key: did you mean security.allowed_domains?",
        ),
        (
            "[security]\ntemperature = 1.0",
            "security.temperature is not a known key: did you mean engine.temperature?",
        ),
        (
            'defualt_provider = "local"',
            "defualt_provider is not a known key: did you mean default_provider?",
        ),
        ("security = 3", "security = 3: expected a table"),
        ("[engine]\nn_parallel = 2.5", "engine.n_parallel = 2.5: expected a whole number"),
        ("[engine]\nn_parallel = true", "engine.n_parallel = true: expected a whole number"),
        ("[engine]\ntop_p = 1.5", "engine.top_p = 1.5: expected a value of at most 1"),
        ("[engine]\ntop_p = nan", "engine.top_p = nan: expected a finite number"),
        (
            "[engine]\nmax_tokens = 99999999999999999999",
            "engine.max_tokens = 99999999999999999999: expected a value of at most 4294967295",
        ),
        (
            "[engine]\nctx_size = 2000000000",
            "engine.ctx_size = 2000000000: expected a value of at most 16777216",
        ),
        ("[engine]\nn_threads = 600", "engine.n_threads = 600: expected a value of at most 512"),
        (
            "[engine]\nfrequency_penalty = -0.1",
            "engine.frequency_penalty = -0.1: expected a value of at least 0",
        ),
        (
            "[engine]\nn_ubatch = 1024",
            "engine.n_ubatch = 1024: expected at most n_batch (512)",
        ),
        (
            "[engine]\nn_batch = 256\nn_ubatch = 256\n[model.qwen]\nn_batch = 64",
            "model.qwen.n_ubatch = 256: expected at most n_batch (64)",
        ),
        (
            "[engine]\nrepeat_penalty = 0",
            "engine.repeat_penalty = 0: expected a value above 0",
        ),
        (
            '[model.qwen]\npreset = "hot"',
            'model.qwen.preset = "hot": expected one of "", deterministic, precise, balanced, '
            "creative, wild",
        ),
        (
            '[engine]\nspeculation = "on"',
            'engine.speculation = "on": expected one of auto, off',
        ),
        (
            '[model.qwen]\nlora = ["a.gguf", "b.gguf:half"]',
            'model.qwen.lora[1] = "b.gguf:half": expected a .gguf file, or one with a scale '
            'behind it, as "style.gguf:0.5"',
        ),
        (
            '[engine]\nrpc_servers = ["10.0.0.2:50052", "10.0.0.3"]',
            'engine.rpc_servers[1] = "10.0.0.3": expected host:port, as 10.0.0.2:50052',
        ),
        (
            '[model.qwen]\nrpc_servers = ["[::1]:50052"]',
            'model.qwen.rpc_servers[0] = "[::1]:50052": expected host:port, as 10.0.0.2:50052',
        ),
        (
            '[agent]\nknowledge_cutoff = "2025-13"',
            'agent.knowledge_cutoff = "2025-13": expected a month, YYYY-MM',
        ),
        (
            "[agent]\nmax_tool_rounds = 500",
            "agent.max_tool_rounds = 500: expected at most 100, or security.autonomy full and a "
            "agent.wall_clock_budget_s",
        ),
        (
            '[security]\nforbidden_paths = ["/etc", "notes"]',
            'security.forbidden_paths[1] = "notes": expected an absolute path, or one that begins '
            "with ~ or a $VARIABLE",
        ),
        (
            'workspace_dir = "$NOWHERE/x"',
            'workspace_dir = "$NOWHERE/x": expected variables that are set; NOWHERE is not',
        ),
        (
            '[security]\nallowed_domains = ["https://example.org"]',
            'security.allowed_domains[0] = "https://example.org": expected a host name, or *. and '
            "a host name",
        ),
        (
            '[security]\nallowed_addresses = ["127.0.0.1"]',
            'security.allowed_addresses[0] = "127.0.0.1": expected host:port, as 127.0.0.1:8080 '
            "or [::1]:8080",
        ),
        (
            'default_provider = "loacl"',
            'default_provider = "loacl": expected a provider of [providers.models]; did you mean '
            "local?",
        ),
        (
            '[memory]\nembedding = "loacl/minilm"',
            'memory.embedding = "loacl/minilm": expected a provider of [providers.models] before '
            "the first /; did you mean local?",
        ),
        (
            '[providers.models.x]\nkind = "anthropic"\n[memory]\nembedding = "x"',
            'memory.embedding = "x": expected a provider that makes embeddings: anthropic has none',
        ),
        (
            '[providers.models.x]\nmodel = "m"',
            "providers.models.x.kind is missing: expected one of local, mock, openai-compatible, "
            "anthropic, reliable, router",
        ),
        (
            '[providers.models.x]\nkind = "openai-compatible"',
            "providers.models.x.base_url: expected a URL like http://localhost:8080/v1",
        ),
        (
            '[providers.models.x]\nkind = "openai-compatible"\nbase_url = "https://u:pw@h/v1"',
            "providers.models.x.base_url holds a name or password: expected none; name the key in "
            "api_key_env",
        ),
        (
            '[providers.models.x]\nkind = "reliable"\nproviders = ["lokal"]',
            'providers.models.x.providers[0] = "lokal": expected a provider; did you mean local?',
        ),
        (
            '[providers.models.x]\nkind = "reliable"\nproviders = ["x"]',
            "providers.models.x.providers leads back to x itself: expected an order that ends",
        ),
        (
            '[providers.models.x]\nkind = "router"',
            "providers.models.x.providers is empty: expected names of other providers",
        ),
        (
            '[providers.models.x]\nkind = "router"\nproviders = ["lokal"]',
            'providers.models.x.providers[0] = "lokal": expected a provider; did you mean local?',
        ),
        (
            '[providers.models.x]\nkind = "router"\nproviders = ["mock", "mock"]',
            'providers.models.x.providers[1] = "mock": expected each provider once',
        ),
        (
            '[providers.models.x]\nkind = "router"\nproviders = ["x"]',
            "providers.models.x.providers leads back to x itself: expected an order that ends",
        ),
        (
            '[providers.models.x]\nkind = "mock"\nlabels = { privac = "local" }',
            "providers.models.x.labels.privac is not a known key: did you mean "
            "providers.models.x.labels.privacy?",
        ),
        (
            '[providers.models.x]\nkind = "mock"\nlabels = "local"',
            'providers.models.x.labels = "local": expected a table',
        ),
    ],
    fresh=["home"],
)
def test_a_wrong_value_is_named_with_what_was_expected(home: Path, text: str, problem: str) -> None:
    assert problems_of(home, text) == [problem]


def test_every_problem_is_told_in_one_pass(home: Path) -> None:
    text = """
        unknown = 1
        default_provider = "none"
        [security]
        autonomy = "godmode"
        forbidden_paths = ["rel"]
        [engine]
        n_batch = 0
        [limits]
        tool_timeout_s = "long"
    """
    found = problems_of(home, text, CLAWD_LIMITS__SHELL_TIMEOUT_S="-1", CLAWD_FOO__BAR="1")
    starts = [line.partition(" = ")[0].partition(" is ")[0] for line in found]
    assert sorted(starts) == [
        "default_provider",
        "engine.n_batch",
        "environment CLAWD_FOO__BAR: foo",
        "environment CLAWD_LIMITS__SHELL_TIMEOUT_S: limits.shell_timeout_s",
        "limits.tool_timeout_s",
        "security.autonomy",
        "security.forbidden_paths[0]",
        "unknown",
    ]


def test_a_syntax_error_says_its_line(home: Path) -> None:
    (problem,) = problems_of(home, "default_provider =\n")
    assert "not TOML" in problem
    assert "line 1" in problem


def test_a_file_that_is_not_utf8_says_its_line(home: Path) -> None:
    (home / "config.toml").write_bytes(b'default_model = "a"\n# \xff\n')
    with pytest.raises(ConfigError, match=r"not UTF-8 \(at line 2\)"):
        load(environ=environ(home))


def test_a_folder_in_place_of_the_file_is_an_error_not_a_crash(home: Path) -> None:
    (home / "config.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load(environ=environ(home))


def test_environment_beats_file_and_command_line_beats_environment(home: Path) -> None:
    (home / "config.toml").write_text("[engine]\ntop_k = 1\nn_parallel = 1\nseed = 1")
    loaded = load(
        environ=environ(home, CLAWD_ENGINE__TOP_K="2", CLAWD_ENGINE__SEED="2"),
        overrides={"engine.seed": 3, "security.autonomy": "readonly"},
    )
    engine = loaded.config.engine
    assert (engine.n_parallel, engine.top_k, engine.seed) == (1, 2, 3)
    assert loaded.config.security.autonomy == "readonly"
    assert loaded.source_of("engine.n_parallel") == str(home / "config.toml")
    assert loaded.source_of("engine.top_k") == "environment CLAWD_ENGINE__TOP_K"
    assert loaded.source_of("engine.seed") == "command line"
    assert loaded.source_of("engine.min_p") == "default"


def test_values_of_the_environment_are_read_by_what_the_key_takes(home: Path) -> None:
    loaded = load_text(
        home,
        '[providers.models.my-server]\nkind = "mock"',
        CLAWD_DEFAULT_MODEL="123",
        CLAWD_DEFAULT_PROVIDER="my-server",
        CLAWD_SECURITY__ALLOWED_DOMAINS='["example.org"]',
        CLAWD_SECURITY__WORKSPACE_ONLY="false",
        CLAWD_AGENT__KNOWLEDGE_CUTOFF="2025-06",
        CLAWD_PROVIDERS__MODELS__MY_SERVER__MODEL="true",
        CLAWD_SOMETHING_ELSE="ignored",
        CLAWD_LOG="json",
    )
    config = loaded.config
    assert config.default_model == "123"
    assert config.default_provider == "my-server"
    assert config.security.allowed_domains == ("example.org",)
    assert config.security.workspace_only is False
    assert config.agent.knowledge_cutoff == "2025-06"
    assert config.providers.models["my-server"].model == "true"


def test_a_value_of_the_environment_cannot_bring_a_second_key(home: Path) -> None:
    found = problems_of(home, "", CLAWD_ENGINE__TOP_K="1\ntop_p = 0.1")
    assert found == [
        'environment CLAWD_ENGINE__TOP_K: engine.top_k = "1\ntop_p = 0.1": expected a whole number'
    ]


def test_tilde_and_variables_are_filled_in_wherever_a_path_stands(home: Path) -> None:
    config = load_text(
        home,
        """
        workspace_dir = "$PROJECTS/${NAME}"
        default_model = "~/models/a.gguf"
        [security]
        forbidden_paths = ["~", "~/.ssh"]
        workspace_roots = ["$PROJECTS"]
        [memory]
        path = "db/memory.sqlite"
        [receipts]
        path = "~/receipts.log"
        [providers.models.mock]
        kind = "mock"
        script = "replies.json"
        """,
        PROJECTS="/srv/projects",
        NAME="one",
    ).config
    assert config.workspace_dir == Path("/srv/projects/one")
    assert config.default_model == "/home/ada/models/a.gguf"
    assert config.security.forbidden_paths == (Path("/home/ada"), Path("/home/ada/.ssh"))
    assert config.security.workspace_roots == (Path("/srv/projects"),)
    assert config.memory.path == home / "db/memory.sqlite"
    assert config.receipts.path == Path("/home/ada/receipts.log")
    assert config.providers.models["mock"].script == home / "replies.json"


def test_paths_of_adapters_are_filled_in_and_keep_their_scale(home: Path) -> None:
    config = load_text(
        home,
        """
        [engine]
        lora = ["~/a.gguf:0.5", "adapters/b:c.GGUF"]
        [model.qwen]
        lora = ["$DIR/c.gguf:-1"]
        """,
        DIR="/srv",
    ).config
    assert config.engine.lora == ("/home/ada/a.gguf:0.5", str(home / "adapters/b:c.GGUF"))
    assert config.model["qwen"].lora == ("/srv/c.gguf:-1",)


def test_a_provider_of_the_file_does_not_mix_with_the_built_in_one(home: Path) -> None:
    config = load_text(home, '[providers.models.local]\nkind = "mock"').config
    assert config.providers.models["local"].model == ""
    assert set(config.providers.models) == {"local", "mock"}


def test_a_literal_key_needs_a_file_that_nobody_else_can_read(home: Path) -> None:
    text = '[providers.models.x]\nkind = "mock"\napi_key = "sk-very-secret"'
    file = home / "config.toml"
    file.write_text(text)
    file.chmod(0o644)
    with pytest.raises(ConfigError) as caught:
        load(environ=environ(home))
    assert "expected mode 0600" in caught.value.message
    assert "sk-very-secret" not in caught.value.message
    file.chmod(0o600)
    key = load(environ=environ(home)).config.providers.models["x"].api_key
    assert key is not None
    assert key.get_secret_value() == "sk-very-secret"


def test_no_problem_shows_a_secret(home: Path) -> None:
    text = '[providers.models.x]\nkind = "mock"\napi_key = ["sk-secret"]\napi_kye = "sk-other"'
    told = "\n".join(problems_of(home, text))
    assert "api_key" in told
    assert "sk-" not in told


def test_a_config_cannot_be_changed_after_loading(home: Path) -> None:
    config = load(environ=environ(home)).config
    with pytest.raises(ValueError, match="frozen"):
        config.security.autonomy = "full"


@each_row(
    ("line", "problem"),
    [
        ('host = "0.0.0.0:80"', 'host = "0.0.0.0:80": expected a host name or an address'),
        ('host = ""', 'host = "": expected a host name'),
        ("port = 70000", "port = 70000: expected a value of at most 65535"),
        ('cors_origins = ["*"]', 'cors_origins[0] = "*": expected an origin as browsers send it'),
        ('cors_origins = ["https://*"]', 'cors_origins[0] = "https://*": expected an origin'),
        ('cors_origins = ["http://*:1"]', 'cors_origins[0] = "http://*:1": expected an origin'),
        ('cors_origins = ["file://*"]', 'cors_origins[0] = "file://*": expected an origin'),
        ('cors_origins = ["null"]', 'cors_origins[0] = "null": expected an origin'),
        ('cors_origins = ["http://a/"]', 'cors_origins[0] = "http://a/": expected an origin'),
        ('cors_origins = ["http://u@a"]', 'cors_origins[0] = "http://u@a": expected an origin'),
        ('allowed_hosts = ["a:1"]', 'allowed_hosts[0] = "a:1": expected a host name'),
        ('page_icon = "/etc/passwd"', 'page_icon = "/etc/passwd": expected a file whose name ends'),
        ('tls_key = "/k.pem"', "tls_key stands alone: expected a tls_cert beside it"),
        ("max_connections = 0", "max_connections = 0: expected a value of at least 1"),
        ("cors_origin = []", "cors_origin is not a known key: did you mean"),
    ],
    fresh=["home"],
)
def test_what_the_gateway_cannot_be_told_is_refused(home: Path, line: str, problem: str) -> None:
    (found,) = problems_of(home, f"[channels.http]\n{line}")
    assert f"channels.http.{problem}" in found


def test_the_gateway_is_off_and_on_loopback_until_it_is_told_otherwise(home: Path) -> None:
    http = load(environ=environ(home)).config.channels.http
    assert (http.enabled, http.host, http.port) == (False, "127.0.0.1", 8686)
    assert (http.cors_origins, http.allowed_hosts, http.insecure_bind) == ((), (), False)
    text = (
        '[channels.http]\ncors_origins = ["http://LOCALHOST:3000", "app://x", "http://Localhost:*", "app://*"]\n'
        'tls_cert = "cert.pem"\ntls_key = "~/k.pem"\nallowed_hosts = ["Clawd.Lan", "::1"]'
    )
    http = load_text(home, text).config.channels.http
    assert http.cors_origins == (
        "http://localhost:3000",
        "app://x",
        "http://localhost:*",
        "app://*",
    )
    assert http.allowed_hosts == ("clawd.lan", "::1")
    assert (http.tls_cert, http.tls_key) == (str(home / "cert.pem"), "/home/ada/k.pem")


def test_a_key_of_an_earlier_version_says_what_to_write_instead() -> None:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"security": {"sandbox_mode": "required"}})
    former = {"security.sandbox_mode": "write security.sandbox"}
    told = [
        (each.key, each.text)
        for each in of_validation(caught.value, former=former)
        if "sandbox_mode" in each.key
    ]
    assert told == [
        (
            ("security", "sandbox_mode"),
            " is a key of an earlier version: write security.sandbox",
        )
    ]


def test_p5_variables_that_are_not_in_force_are_found(home: Path) -> None:
    text = """
        [security]
        autonomy = "supervised"
        [providers.models.cloud]
        kind = "anthropic"
        model = "m"
        """
    loaded = load_text(home, text, CLAWD_PROVIDERS__MODELS__CLOUD__API_KEY="one")
    rows = {
        ("CLAWD_SECURITY__AUTONOMY", "supervised"): [],
        ("CLAWD_SECURITY__AUTONOMY", "readonly"): ['"readonly"', '"supervised"'],
        ("CLAWD_SECURITY__AUTONOMY", "godmode"): ['"godmode"', '"supervised"'],
        ("CLAWD_SECURITY__NO_SUCH_KEY", "1"): ["1", ""],
        ("CLAWD_AGENT__MAX_TOOL_ROUNDS", str(loaded.config.agent.max_tool_rounds)): [],
        ("CLAWD_AGENT__MAX_TOOL_ROUNDS", "3"): ["3", str(loaded.config.agent.max_tool_rounds)],
        ("CLAWD_DEFAULT_MODEL", loaded.config.default_model or ""): [],
        ("CLAWD_PROVIDERS__MODELS__CLOUD__API_KEY", "one"): [],
        ("CLAWD_PROVIDERS__MODELS__CLOUD__API_KEY", "two"): [REDACTED, REDACTED],
        ("CLAWD_PROVIDERS__MODELS__OTHER__API_KEY", "two"): [REDACTED, ""],
        ("CLAWD_HOME", "/elsewhere"): [],
    }
    found = {
        row: [
            word
            for each in overridden(loaded, dict([row]))
            for word in (each.wanted, each.effective)
        ]
        for row in rows
    }
    assert found == rows
