"""The section of MCP servers: what it takes, what it refuses and how it says so."""

import json
from pathlib import Path

import pytest

from clawd.config.load import Loaded, load
from clawd.config.render import redacted, settings
from clawd.config.secrets import mcp_client_secret, mcp_token, mcp_variables
from clawd.errors import ConfigError
from tests.support.rows import each_row

SECRET = "a-very-secret-word"


def load_text(home: Path, text: str, **extra: str) -> Loaded:
    (home / "config.toml").write_text(text)
    return load(environ={"CLAWD_HOME": str(home), "HOME": "/home/ada", **extra})


def problems_of(home: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(home, text)
    return [each.removeprefix(f"{home / 'config.toml'}: ") for each in caught.value.problems]


def test_a_file_without_servers_has_none(tmp_path: Path) -> None:
    mcp = load_text(tmp_path, "").config.mcp
    assert mcp.servers == {}
    assert mcp.auto_approve.tools == ()
    assert mcp.schema_budget_tokens == 4_000


def test_a_server_is_read_with_its_built_in_values(tmp_path: Path) -> None:
    text = """
        [mcp.servers.files]
        command = ["mcp-files", "~/notes", "$PLACE/x"]
        readonly_paths = ["~/notes"]
        [mcp.servers.git-hub]
        url = "https://mcp.example.org/mcp"
        auth_env = "HUB"
        [mcp.auto_approve]
        tools = ["files__read", "git-hub__*"]
    """
    mcp = load_text(tmp_path, text, PLACE="/srv").config.mcp
    files, hub = mcp.servers["files"], mcp.servers["git-hub"]
    assert files.command == ("mcp-files", "/home/ada/notes", "/srv/x")
    assert files.readonly_paths == (Path("/home/ada/notes"),)
    assert (files.workspace_access, files.reached, files.mode) == ("read", (), "auto")
    assert (files.allow, files.deny, files.trusted, files.enabled) == (("*",), (), False, True)
    assert (hub.connect_timeout_s, hub.call_timeout_s) == (10.0, 60.0)
    assert mcp.auto_approve.tools == ("files__read", "git-hub__*")


@each_row(
    ("text", "problem"),
    [
        ("[mcp.servers.a_b]\nurl = 'http://x'", "mcp.servers.a_b = { … }: expected an alias of"),
        ("[mcp.servers.A]\nurl = 'http://x'", "mcp.servers.A = { … }: expected an alias of"),
        ("[mcp.servers.-a]\nurl = 'http://x'", "mcp.servers.-a = { … }: expected an alias of"),
        (
            f"[mcp.servers.{'a' * 33}]\nurl = 'http://x'",
            f"mcp.servers.{'a' * 33} = {{ … }}: expected an alias of",
        ),
        ("[mcp.servers.a]", "mcp.servers.a = { … }: expected either a command or a url"),
        (
            "[mcp.servers.a]\nurl = 'http://x'\ncommand = ['x']",
            "mcp.servers.a = { … }: expected either a command or a url, not both",
        ),
        (
            "[mcp.servers.a]\nurl = 'ftp://x'",
            "mcp.servers.a.url (value not shown): expected a URL like",
        ),
        (
            "[mcp.servers.a]\nurl = 'https://me:word@x/mcp'",
            "mcp.servers.a.url (value not shown): expected a URL like",
        ),
        (
            "[mcp.servers.a]\ncommand = ['bin/server']",
            'mcp.servers.a.command[0] = "bin/server": expected a program by its name',
        ),
        (
            "[mcp.servers.a]\ncommand = ['server', '$NOT_SET']",
            'mcp.servers.a.command[1] = "$NOT_SET": expected variables that are set',
        ),
        (
            "[mcp.servers.a]\ncommand = ['x']\nreadonly_paths = ['notes']",
            'mcp.servers.a.readonly_paths[0] = "notes": expected an absolute path',
        ),
        (
            "[mcp.servers.a]\nurl = 'http://x'\nnetwork = true",
            "mcp.servers.a.network = true: expected nothing: it is for a server with a command",
        ),
        (
            "[mcp.servers.a]\nurl = 'http://x'\nhosts = ['a.test:443']",
            "mcp.servers.a.hosts = ['a.test:443']: expected nothing: it is for a server with a",
        ),
        *(
            (
                f"[mcp.servers.a]\ncommand = ['x']\nhosts = ['{host}']",
                f'mcp.servers.a.hosts[0] = "{host}": expected host:port, as api.example.org:443',
            )
            for host in ("a.test", "https://a.test", "*:443", "*.test:443", "a.test:99999")
        ),
        (
            "[mcp.servers.a]\ncommand = ['x']\nauth_env = 'T'",
            'mcp.servers.a.auth_env = "T": expected nothing: it is for a server with a url only',
        ),
        (
            "[mcp.servers.a]\ncommand = ['x']\nworkspace_access = 'all'",
            'mcp.servers.a.workspace_access = "all": expected one of none, read, write',
        ),
        (
            "[mcp.servers.a]\ncommand = ['x']\nmode = 'old'",
            'mcp.servers.a.mode = "old": expected one of auto, legacy',
        ),
        (
            "[mcp.servers.a]\ncommand = ['x']\nallow = ['re*d']",
            'mcp.servers.a.allow[0] = "re*d": expected a name of a tool',
        ),
        (
            "[mcp.servers.a]\ncommand = ['x']\nenv_passthrough = ['A-B']",
            'mcp.servers.a.env_passthrough[0] = "A-B": expected a name of a variable',
        ),
        (
            "[mcp.servers.a]\ncommand = ['x']\nconnect_timeout_s = 0",
            "mcp.servers.a.connect_timeout_s = 0: expected a value above 0",
        ),
        (
            "[mcp.servers.a]\ncommand = ['x']\ntrustd = true",
            "mcp.servers.a.trustd is not a known key: did you mean mcp.servers.a.trusted?",
        ),
        (
            "[mcp.auto_approve]\ntools = ['*']",
            'mcp.auto_approve.tools[0] = "*": expected a tool as "files__read"',
        ),
        (
            "[mcp.auto_approve]\ntools = ['a__re*']\n[mcp.servers.a]\ncommand = ['x']",
            'mcp.auto_approve.tools[0] = "a__re*": expected a tool as "files__read"',
        ),
        (
            "[mcp.auto_approve]\ntools = ['b__*']\n[mcp.servers.a]\ncommand = ['x']",
            'mcp.auto_approve.tools[0] = "b__*": expected a tool of a server of [mcp.servers]; '
            "known are a",
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(
    tmp_path: Path, text: str, problem: str
) -> None:
    (told,) = problems_of(tmp_path, text)
    assert told.startswith(problem)


def test_values_of_a_wrong_type_are_told_once_and_do_not_crash(tmp_path: Path) -> None:
    for text in (
        "mcp = 3",
        "[mcp]\nservers = 3",
        "[mcp.servers]\na = 3",
        "[mcp]\nauto_approve = 3",
        "[mcp.auto_approve]\ntools = 3",
        "[mcp.servers.a]\nurl = 'http://x'\nenv = 3",
    ):
        assert len(problems_of(tmp_path, text)) >= 1


def test_a_token_in_the_file_needs_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    text = f"[mcp.servers.a]\nurl = 'http://x'\nauth_token = '{SECRET}'"
    file = tmp_path / "config.toml"
    file.write_text(text)
    file.chmod(0o644)
    (told,) = problems_of(tmp_path, text)
    assert "mcp.servers.a.auth_token stands in a file that others may read" in told
    assert "or better auth_env" in told
    assert SECRET not in told
    file.chmod(0o600)
    server = load(environ={"CLAWD_HOME": str(tmp_path)}).config.mcp.servers["a"]
    assert mcp_token("a", server, {}) == SECRET


def test_what_is_shown_holds_neither_token_nor_values_of_variables(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        f"[mcp.servers.a]\nurl = 'http://x'\nauth_token = '{SECRET}'\n"
        f"[mcp.servers.b]\ncommand = ['x']\nenv = {{ KEY = '{SECRET}' }}"
    )
    file.chmod(0o600)
    loaded = load(environ={"CLAWD_HOME": str(tmp_path)})
    assert SECRET not in json.dumps(redacted(loaded)) + repr(settings(loaded))
    shown = redacted(loaded)["mcp"]["servers"]
    assert shown["a"]["auth_token"] == "(set, not shown)"
    assert shown["b"]["env"] == {"KEY": "(set, not shown)"}


def test_a_token_comes_from_the_environment_or_from_a_credential(tmp_path: Path) -> None:
    text = "[mcp.servers.a]\nurl = 'http://x'\nauth_env = 'HUB'"
    server = load_text(tmp_path, text).config.mcp.servers["a"]
    assert mcp_token("a", server, {"HUB": SECRET}) == SECRET
    (tmp_path / "HUB").write_text(f"{SECRET}\n")
    assert mcp_token("a", server, {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == SECRET
    with pytest.raises(ConfigError, match="MCP server a: its token HUB is neither in"):
        mcp_token("a", server, {})


def test_variables_that_are_passed_on_must_be_there(tmp_path: Path) -> None:
    text = "[mcp.servers.a]\ncommand = ['x']\nenv_passthrough = ['KEY']"
    server = load_text(tmp_path, text).config.mcp.servers["a"]
    assert mcp_variables("a", server, {"KEY": "v", "OTHER": "w"}) == {"KEY": "v"}
    with pytest.raises(ConfigError, match="MCP server a: its variable KEY"):
        mcp_variables("a", server, {})


def test_the_secret_of_a_registration_comes_from_outside_the_config(tmp_path: Path) -> None:
    text = """[mcp.servers.a]
        url = 'http://x'
        oauth = true
        oauth_client_id = 'by-hand'
        oauth_client_env = 'HUB'
    """
    server = load_text(tmp_path, text).config.mcp.servers["a"]
    assert mcp_client_secret("a", server, {"HUB": SECRET}) == SECRET
    with pytest.raises(ConfigError, match="its client secret HUB is neither"):
        mcp_client_secret("a", server, {})
    plain = load_text(tmp_path, "[mcp.servers.a]\nurl = 'http://x'").config.mcp.servers["a"]
    assert mcp_client_secret("a", plain, {"HUB": SECRET}) == ""
    with_command = "[mcp.servers.a]\ncommand = ['x']\noauth_client_id = 'b'"
    assert "for a server with a url only" in problems_of(tmp_path, with_command)[0]


@each_row(
    ("keys", "reached"),
    [
        ("", ()),
        ("hosts = ['A.test:443', '*.b.test:8443']", ("a.test:443", "*.b.test:8443")),
        ("hosts = ['*']", ("*",)),
        ("network = true", ("*",)),
        ("network = true\nhosts = ['a.test:443']", ("a.test:443",)),
    ],
)
def test_hosts_are_what_a_server_may_reach_and_the_old_key_means_every_public_one(
    tmp_path: Path, keys: str, reached: tuple[str, ...]
) -> None:
    server = load_text(tmp_path, f"[mcp.servers.a]\ncommand = ['x']\n{keys}").config.mcp.servers[
        "a"
    ]
    assert server.reached == reached
