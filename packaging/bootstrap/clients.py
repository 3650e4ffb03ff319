"""Programs of others that tests drive a daemon with: client libraries, MCP servers, agent CLIs.

Each has an environment of its own under `.setup/clients`, made once and kept, because some of them
ask for versions that clawd or another one refuses:

    .setup/clients/sdks       official client libraries, from tests/clients/env/sdks.txt
    .setup/clients/litellm    the one that pins an older library
    .setup/clients/servers    MCP servers written in Python
    .setup/clients/node       Node.js with npm
    .setup/clients/mcp        MCP servers and the conformance suite, by npm
    .setup/clients/schemas    the JSON-Schema-Test-Suite, as the source of jsonschema carries it
    .setup/clients/clis       agent command lines, by npm; about 1 GB, only where they are wanted
    .setup/clients/notes.json what is there, by the key of what was asked for
"""

import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bootstrap.environment import ROOT, SETUP, digest, pip, read_notes, setup_lock
from bootstrap.steps import SetupError, run_step

CLIENTS = SETUP / "clients"
ASKED = ROOT / "tests" / "clients" / "env"
BY_PIP = {
    "sdks": "the client libraries",
    "litellm": "litellm",
    "servers": "MCP servers",
    "node": "Node.js",
}
SUITE = "the JSON-Schema-Test-Suite"
SUITE_SOURCE = "jsonschema-4.26.0.tar.gz"
SUITE_SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
BY_NPM = {"mcp": "MCP servers and the conformance suite", "clis": "the agent command lines"}


def prepare_clients(python: Path, *, with_clis: bool) -> None:
    """Makes what is missing; without it, tests are left out, or fail where CI requires them.

    Args:
        python: makes the environments.
        with_clis: whether the big command lines are wanted.
    """
    makers: Mapping[str, Callable[[Path, str], None]] = {
        **dict.fromkeys(BY_PIP, make_by_pip),
        **dict.fromkeys(BY_NPM, make_by_npm),
        "schemas": make_schema_suite,
    }
    with setup_lock("clients.lock"):
        for name, make in makers.items():
            if name == "clis" and not with_clis:
                continue
            try:
                _make_once(python, name, make)
            except SetupError as error:
                print(f"{error}\nGoing on without; tests that need it say so.", file=sys.stderr)


def prepare_node(python: Path) -> Path:
    """Makes the environment that holds Node.js and returns its program.

    Raises:
        SetupError: it cannot be fetched.
    """
    with setup_lock("clients.lock"):
        _make_once(python, "node", make_by_pip)
    return CLIENTS / "node" / "bin" / "node"


def _make_once(python: Path, name: str, make: Callable[[Path, str], None]) -> None:
    """Makes one environment, if what is asked for is not there.

    Raises:
        SetupError: it cannot be made.
    """
    CLIENTS.mkdir(exist_ok=True)
    notes = CLIENTS / "notes.json"
    done = read_notes(notes)
    key = key_of(name, python)
    if done.get(name) != key:
        make(python, name)
        notes.write_text(json.dumps(done | {name: key}, indent=1), encoding="utf-8")


def key_of(name: str, python: Path) -> str:
    """Names what is asked for in one environment."""
    asked = asked_file(name).read_text(encoding="utf-8")
    return digest([asked, Path(__file__).read_text(encoding="utf-8"), str(python.resolve())])


def asked_file(name: str) -> Path:
    """Gives the file that says what is wanted, with exact versions."""
    return ASKED / name / "package.json" if name in BY_NPM else ASKED / f"{name}.txt"


def make_by_pip(python: Path, name: str) -> None:
    """Makes a virtual environment and fills it."""
    folder = CLIENTS / name
    command = [str(python), "-m", "venv", "--clear", str(folder)]
    run_step(f"making an environment for {BY_PIP[name]}", command, log=SETUP / "venv.log")
    own = folder / "bin" / "python"
    pip(own, f"installing {BY_PIP[name]}", "install", "-r", str(asked_file(name)))


def make_schema_suite(python: Path, name: str) -> None:
    """Takes the suite out of a source on PyPI.

    Raises:
        SetupError: pip failed, or what came is not what is expected.
    """
    folder = CLIENTS / name
    with tempfile.TemporaryDirectory(prefix="fetched-", dir=CLIENTS) as fetched:
        options = ["--no-deps", "--no-binary", ":all:", "--dest", fetched]
        wanted = asked_file(name).read_text(encoding="utf-8").strip()
        pip(python, f"downloading {SUITE}", "download", *options, wanted)
        source = Path(fetched) / SUITE_SOURCE
        found = hashlib.sha256(source.read_bytes()).hexdigest() if source.exists() else "no file"
        if found != SUITE_SHA256:
            raise SetupError(f"{SUITE_SOURCE} has the SHA-256 {found}, expected {SUITE_SHA256}")
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(source) as archive:
            for draft in ("draft2020-12", "draft7"):
                _unpack(archive, f"json/tests/{draft}", folder / draft)


def _unpack(archive: tarfile.TarFile, inside: str, folder: Path) -> None:
    """Takes the files out of one folder of an archive, those below it left out."""
    folder.mkdir(parents=True)
    for member in archive.getmembers():
        parent, _, name = member.name.partition("/")[2].rpartition("/")
        content = archive.extractfile(member) if parent == inside else None
        if content is not None:
            (folder / name).write_bytes(content.read())


def make_by_npm(_python: Path, name: str) -> None:
    """Fills a folder by npm; scripts of packages are not run, as none of these needs one."""
    folder, node = CLIENTS / name, CLIENTS / "node" / "bin"
    if not (node / "npm").exists():
        raise SetupError(f"{BY_NPM[name]} need npm, which is not there")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(asked_file(name), folder / "package.json")
    command = [str(node / "npm"), "install", "--prefix", str(folder), "--no-package-lock"]
    command += ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    path = f"{node}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    log = SETUP / "npm.log"
    run_step(f"installing {BY_NPM[name]}", command, log=log, environ={"PATH": path})
