"""Presets of hosts: what each tool's own settings on a machine name, and nothing else."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from clawctl.commands.policy import hosts_of
from clawd.errors import InvalidRequestError
from tests.support.rows import each_row

PIP_HELP = """
  -i, --index-url <url>       Base URL of the Python Package Index (default
                              https://default.test/simple). This should point to
  --extra-index-url <url>     Extra URLs (default https://never.test)
"""
PIP = {"pip install --help": PIP_HELP, "pip3 install --help": PIP_HELP}
# As `pip config list` writes a list of several lines.
EXTRA = "global.extra-index-url='https://x.test:8443/a\\nhttps://y.test/b'\n"
CARGO = """
[source.crates-io]
replace-with = "mirror"
[source.mirror]
registry = "sparse+https://crates.corp.test/index/"
[registries.own]
index = "https://ada:pw@own.test:8080/git/index"
[http]
proxy = "http://proxy.test:3128"
"""


def settings(name: str, said: str) -> dict[str, str]:
    return {f"pip{three} {name}": said for three in ("", "3")}


@each_row(
    ("preset", "environ", "says", "hosts"),
    [
        ("pip", {}, PIP, ["default.test:443"]),
        ("pip", {"PIP_INDEX_URL": "http://env.test:3141/root"}, PIP, ["env.test:3141"]),
        (
            "pip",
            {},
            PIP | settings("config list", "global.index-url='https://ada:pw@kept.test/simple'\n"),
            ["kept.test:443"],
        ),
        (
            "pip",
            {"PIP_INDEX_URL": "https://env.test", "PIP_EXTRA_INDEX_URL": "https://a.test http://b.test"},
            PIP
            | settings("config list", f"global.index-url='https://kept.test/'\n{EXTRA}"
                       "global.proxy='http://proxy.test:1'\nglobal.trusted-host='evil.test'\n"),
            ["env.test:443", "a.test:443", "b.test:80", "x.test:8443", "y.test:443"],
        ),
        (
            "pip",
            {},
            PIP | settings("config list", EXTRA),
            ["x.test:8443", "y.test:443", "default.test:443"],
        ),
        ("pip", {}, {}, None),
        (
            "npm",
            {},
            {
                "npm config list --json": json.dumps(
                    {
                        "registry": "https://npm.corp.test/",
                        "@corp:registry": "http://scoped.test:4873/npm",
                        "//npm.corp.test/:_authToken": "(protected)",
                        "proxy": "http://proxy.test:3128",
                        "replace-registry-host": "https://never.test",
                        "init-license": "https://never.test",
                    }
                )
            },
            ["npm.corp.test:443", "scoped.test:4873"],
        ),
        ("npm", {}, {"npm config list --json": "npm ERR! https://never.test"}, None),
        ("npm", {}, {}, None),
        ("cargo", {}, {"config.toml": CARGO}, ["crates.corp.test:443", "own.test:8080"]),
        (
            "cargo",
            {"CARGO_REGISTRIES_MINE_INDEX": "sparse+https://mine.test/"},
            {"config": "[build]\njobs = 2\n"},
            ["mine.test:443"],
        ),
        ("cargo", {}, {"config.toml": "no toml ]"}, None),
        (
            "go",
            {},
            {
                "go env GOPROXY": "https://goproxy.corp.test|https://second.test,direct\n",
                "go env GOSUMDB": "sum.test+033de0ae+Ac4z\n",
            },
            ["goproxy.corp.test:443", "second.test:443", "sum.test:443"],
        ),
        (
            "go",
            {},
            {"go env GOPROXY": "off", "go env GOSUMDB": "sum.test https://sums.test/x"},
            ["sums.test:443"],
        ),
        ("go", {}, {"go env GOPROXY": "direct", "go env GOSUMDB": "off"}, None),
        (
            "apt",
            {},
            {
                "apt-get update --print-uris": "'http://mirror.test:3142/debian/InRelease' a 0\n"
                "'https://apt.corp.test/x/InRelease' b 0\n'file:/srv/x/InRelease' c 0\n"
            },
            ["mirror.test:3142", "apt.corp.test:443"],
        ),
        ("apt", {}, {}, None),
    ],
)  # fmt: skip
def test_a_preset_names_the_hosts_of_the_tools_own_settings(
    tmp_path: Path,
    preset: str,
    environ: dict[str, str],
    says: dict[str, str],
    hosts: list[str] | None,
) -> None:
    for name in ("config.toml", "config"):
        if name in says:
            (tmp_path / name).write_text(says[name])
    environ = {"CARGO_HOME": str(tmp_path), "HOME": str(tmp_path), **environ}

    def run(argv: list[str]) -> str:
        return says.get(" ".join(argv), "")

    if hosts is None:
        with pytest.raises(InvalidRequestError, match=f"{preset} names no host in its settings"):
            hosts_of(preset, environ, run)
        return
    assert hosts_of(preset, environ, run) == hosts


def _apt(folder: Path) -> dict[str, str]:
    (folder / "sources.list").write_text("deb http://mirror.test:3142/debian bookworm main\n")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "{folder}/none";\n'
    )
    return {"APT_CONFIG": str(folder / "apt.conf")}


def _pip(folder: Path) -> dict[str, str]:
    (folder / "pip.conf").write_text(
        "[global]\nindex-url = https://ada:pw@pip.corp.test/simple\n"
        "extra-index-url = https://x.test:8443/a\n\thttps://y.test/b\n"
    )
    return {"PIP_CONFIG_FILE": str(folder / "pip.conf"), "PIP_INDEX_URL": ""}


def _npm(folder: Path) -> dict[str, str]:
    (folder / ".npmrc").write_text(
        "registry=https://npm.corp.test/\n@corp:registry=https://scoped.test:4873/npm\n"
    )
    return {"NPM_CONFIG_USERCONFIG": str(folder / ".npmrc")}


@each_row(
    ("tool", "make", "hosts"),
    [
        ("apt-get", _apt, {"mirror.test:3142"}),
        ("pip", _pip, {"pip.corp.test:443", "x.test:8443", "y.test:443"}),
        ("npm", _npm, {"npm.corp.test:443", "scoped.test:4873"}),
    ],
)
def test_the_tools_of_this_machine_are_understood_and_a_projects_settings_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, make: Any, hosts: set[str]
) -> None:
    if shutil.which(tool) is None:
        return  # the row is of a tool that this machine lacks
    for name in [name for name in os.environ if name.upper().startswith(("PIP_", "NPM_CONFIG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in make(tmp_path).items():
        monkeypatch.setenv(name, value)
    project = tmp_path / "project"
    project.mkdir()
    (project / ".npmrc").write_text(
        "registry=https://evil.test/\n@evil:registry=https://evil.test/\n"
    )
    monkeypatch.chdir(project)
    assert hosts <= set(found := hosts_of(tool.removesuffix("-get")))
    assert not [host for host in found if "evil" in host]
