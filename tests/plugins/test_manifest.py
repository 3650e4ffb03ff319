"""What a plugin's manifest must hold, what a review says of it, and secrets in its files."""

from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from clawd.plugins.files import PluginTree, read_tree
from clawd.plugins.loader import reach_of, secrets_in
from clawd.plugins.manifest import PluginManifest, manifest_of
from clawd.tools.arguments import Form, fit_arguments
from tests.plugins.plugin_files import manifest_text, plugin
from tests.support.rows import each_row

EXAMPLE = Path(__file__).parents[2] / "etc/plugins/outline"


def read(folder: Path, text: str) -> PluginManifest:
    return manifest_of(tree(folder, text))


def tree(folder: Path, text: str) -> PluginTree:
    return read_tree(plugin(folder / "p", manifest=text), is_installed=False)


@each_row(
    "text",
    [
        manifest_text(),
        manifest_text("a" * 32, version="1.0.0-rc.1+x"),
        manifest_text(capabilities=("workspace-read", "workspace-write", "network")),
        manifest_text(more='risk = "low"'),
        manifest_text(more='risk = "low"', capabilities=("workspace-read",)),
        manifest_text(more='risk = "high"\ntimeout_ms = 100', capabilities=("network",)),
        manifest_text(more="timeout_ms = 300000"),
        manifest_text(schema="{ properties = {} }"),
        manifest_text(schema="{ additionalProperties = false }"),
        manifest_text(schema='\'{"type": "object", "properties": {"a": {}}, "required": ["a"]}\''),
    ],
)
def test_a_sound_manifest_is_taken(tmp_path: Path, text: str) -> None:
    (tool,) = read(tmp_path, text).tools
    assert tool.schema["type"] == "object"
    assert tool.schema["additionalProperties"] is False


@each_row(
    ("text", "reason"),
    [
        ("name = ", "Invalid value"),
        ("", "missing required field"),
        (manifest_text("Probe"), "name 'Probe' must match"),
        (manifest_text("../x"), "must match"),
        (manifest_text("a" * 33), "must match"),
        (manifest_text(version="1 0"), "version '1 0' must match"),
        (manifest_text(capabilities=("root",)), "capabilities"),
        (manifest_text(capabilities=("network", "network")), "named twice"),
        ('hosts = ["a.test:443"]\n' + manifest_text(), "lacks the capability network"),
        *(
            (f"hosts = {hosts}\n" + manifest_text(capabilities=("network",)), reason)
            for hosts, reason in (
                ('["a.test"]', "is no host: expected host:port"),
                ([f"a{n}.test:1" for n in range(65)], "65 hosts, expected at most 64"),
            )
        ),
        (manifest_text(tool="a b"), "letters, digits"),
        (manifest_text(more='surprise = "x"'), "surprise"),
        (manifest_text(more='risk = "none"'), "risk"),
        (manifest_text(more="timeout_ms = 99"), "100 to 300000"),
        (manifest_text(more="timeout_ms = 300001"), "100 to 300000"),
        (manifest_text(more='risk = "low"', capabilities=("network",)), "medium risk at least"),
        (manifest_text(more='risk = "low"', capabilities=("workspace-write",)), "medium risk"),
        (manifest_text().replace('"run"', '"/bin/sh"'), "no executable file of the plugin"),
        (manifest_text().replace('"run"', '"../p/run"'), "no executable file of the plugin"),
        (manifest_text().replace('"run"', '"manifest.toml"'), "no executable file of the plugin"),
        (manifest_text().replace('"Probes."', '" "'), "description"),
        (manifest_text().replace("Probes.", "d" * 4097), "description"),
        (manifest_text(schema="'[1]'"), "no JSON object"),
        (manifest_text(schema='{ type = "array" }'), 'of type "object"'),
        (manifest_text(schema="{ properties = { a = 1 } }"), "a table each"),
        (manifest_text(schema='{ required = ["a"] }'), "names of properties"),
        (manifest_text(schema='{ required = [["a"]] }'), "names of properties"),
        (manifest_text(schema="{ a = " + "[" * 20 + "]" * 20 + " }"), "levels"),
        (manifest_text(schema="{ a = 99999999999999999999999 }"), "cannot be passed on"),
        (manifest_text(schema="'" + '{"a":' * 900 + "1" + "}" * 900 + "'"), "levels"),
        (manifest_text(more="timeout_ms = " + "9" * 5000), "manifest.toml"),
        (manifest_text(more="timeout_ms = 2026-13-45"), "manifest.toml"),
        (manifest_text(schema="{ a = inf }"), "holds only what JSON has"),
        (manifest_text(schema="{ a = 2026-11-21 }"), "holds only what JSON has"),
        (manifest_text() + manifest_text().partition("\n\n")[2], "same name"),
        ('name = "x"\nversion = "1"\ntools = []', "expected 1 to 32"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(tmp_path, text)
    assert caught.value.message.startswith("manifest.toml: ")
    assert reason in caught.value.message


def test_a_folder_without_a_manifest_is_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(InvalidRequestError, match=r"there is no manifest\.toml"):
        manifest_of(read_tree(tmp_path, is_installed=False))


def test_the_reach_says_what_a_plugin_may_do(tmp_path: Path) -> None:
    everything = read(
        tmp_path, manifest_text(capabilities=("workspace-read", "workspace-write", "network"))
    )
    assert len(reach_of(everything)) == 3
    assert "it reaches every public host, by name and through the egress proxy" in reach_of(
        everything
    )
    some = 'hosts = ["A.test:443"]\n'
    text = manifest_text(capabilities=("network",)).replace("\n[[", f"{some}\n[[")
    manifest = read(tmp_path / "s", text)
    assert manifest.reached == ("a.test:443",)
    assert reach_of(manifest)[0] == "it reaches a.test:443 and no other host unasked"
    nothing = read(tmp_path / "n", manifest_text(more='risk = "low"'))
    assert reach_of(nothing) == (
        "it has no network",
        "it sees no file of yours",
        "unasked, as low risk, runs: probe_tool",
    )


def test_what_looks_like_a_secret_is_found_and_not_shown(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "p")
    key = "-----BEGIN RSA " + "PRIVATE KEY-----\nabc\n"
    (folder / "a.py").write_text(
        "import os\ntoken = os.environ['X']\npassword = 'hunter-two-hunter'\n"
        "url = 'https://ada:hunter2@example.org/'\n"
    )
    (folder / ".env").write_text("")
    (folder / "deep").mkdir()
    (folder / "deep" / "server.key").write_text(key)
    found = secrets_in(read_tree(folder, is_installed=False))
    assert found == (
        ".env: is named like a file of secrets",
        "a.py:3: looks like a password or key",
        "a.py:4: looks like a password in an address",
        "deep/server.key: is named like a file of secrets",
        "deep/server.key:1: looks like a private key",
    )
    assert secrets_in(read_tree(plugin(tmp_path / "q"), is_installed=False)) == ()


def test_the_example_is_sound_and_holds_no_secrets() -> None:
    example = read_tree(EXAMPLE, is_installed=False)
    assert [each.risk for each in manifest_of(example).tools] == ["low"]
    assert secrets_in(example) == ()


def test_m7_a_manifest_as_the_first_specification_writes_it_is_taken(tmp_path: Path) -> None:
    text = manifest_text(capabilities=("tool",), schema='{ type = "object" }')
    manifest = read(tmp_path, text.replace('"run"', '"./run"'))
    (tool,) = manifest.tools
    assert (manifest.capabilities, tool.command) == (("tool",), "run")
    assert tool.schema["additionalProperties"] is True
    assert fit_arguments({"anything": [1]}, Form(schema=tool.schema)) == {"anything": [1]}
    assert reach_of(manifest) == ("it has no network", "it sees no file of yours")


@pytest.mark.parametrize("command", ["./../p/run", ".//../run", "./", "././no"])
def test_m7_a_relative_command_stays_in_the_plugin(tmp_path: Path, command: str) -> None:
    with pytest.raises(InvalidRequestError, match="no executable file of the plugin"):
        read(tmp_path, manifest_text().replace('"run"', f'"{command}"'))
