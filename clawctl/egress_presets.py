"""Hosts that a package tool's own settings on this machine name; no list of hosts is kept here.

Each tool is asked, or its settings are read as it reads them. What it contacts beyond, as the files
that an index leads to, is asked about by name when it is refused.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clawd.errors import InvalidRequestError
from clawd.wire.hosts import host_grant

_ASK_LIMIT_S = 20.0
_URL = re.compile(r"https?://[^\s'\",|)\\]+")

Run = Callable[[list[str]], str]
"""Runs a program and returns what it printed; empty where it is not there or fails."""


def hosts_of(
    preset: str, environ: Mapping[str, str] = os.environ, run: Run | None = None
) -> list[str]:
    """Return the hosts of a preset, `get.example.org:443`, in the order the tool names them.

    Raises:
        InvalidRequestError: this machine names none.
    """
    ask = {"pip": _pip, "npm": _npm, "cargo": _cargo, "go": _go, "apt": _apt}[preset]
    found: dict[str, None] = {}
    for url in _URL.findall(ask(environ, run or _run)):
        with contextlib.suppress(InvalidRequestError):
            found[host_grant(re.sub(r"//[^/]*@", "//", url))] = None
    if not found:
        raise InvalidRequestError(
            f"{preset} names no host in its settings here, or is not installed",
            hint="Run it once: each host that is refused can be allowed by name.",
        )
    return list(found)


def _pip(environ: Mapping[str, str], run: Run) -> str:
    """Its index and extra indexes; its own default, which its help tells, where none is set."""
    given = [environ.get(f"PIP_{name}", "") for name in ("INDEX_URL", "EXTRA_INDEX_URL")]
    pip = next((name for name in ("pip", "pip3") if shutil.which(name)), "pip")
    kept = [
        line
        for line in run([pip, "config", "list"]).splitlines()
        if re.match(r"[\w.:-]+\.(extra-)?index-url=", line)
    ]
    default = ""
    if given[0]:  # which goes before what is kept
        kept = [line for line in kept if "extra-index-url=" in line]
    elif not any("extra-index-url=" not in line for line in kept):
        said = re.sub(r"\s+", " ", run([pip, "install", "--help"]))
        default = " ".join(re.findall(r"--index-url.{0,200}?\(default (\S+?)\)", said))
    return " ".join([*given, *kept, default])


def _npm(_environ: Mapping[str, str], run: Run) -> str:
    """Return its registry, and those of scopes (`@corp:registry`)."""
    kept: Any = None
    with contextlib.suppress(ValueError):
        kept = json.loads(run(["npm", "config", "list", "--json"]))
    settings = kept if isinstance(kept, dict) else {}
    return " ".join(
        str(value) for key, value in settings.items() if re.fullmatch(r"(@.+:)?registry", key)
    )


def _cargo(environ: Mapping[str, str], _run: Run) -> str:
    """Return the indexes of its settings; where crates.io is replaced, the replacement."""
    home = Path(environ.get("CARGO_HOME") or Path(environ.get("HOME") or Path.home()) / ".cargo")
    found = [
        value for name, value in environ.items() if re.fullmatch(r"CARGO_REGISTRIES_.+_INDEX", name)
    ]
    for name in ("config.toml", "config"):
        with contextlib.suppress(OSError, ValueError):
            read: dict[str, Any] = tomllib.loads((home / name).read_text())
            for table in (*read.get("source", {}).values(), *read.get("registries", {}).values()):
                found += [str(table.get("registry", "")), str(table.get("index", ""))]
    return " ".join(found)


def _go(_environ: Mapping[str, str], run: Run) -> str:
    proxy, sums = (run(["go", "env", name]).strip() for name in ("GOPROXY", "GOSUMDB"))
    # The name of a database of sums is its host, unless an address follows it.
    named = sums if " " in sums or sums in {"", "off"} else f"https://{sums.partition('+')[0]}"
    return f"{proxy} {named}"


def _apt(_environ: Mapping[str, str], run: Run) -> str:
    # Of its targets it would tell those alone that were fetched before.
    return run(["apt-get", "update", "--print-uris"])


def _run(argv: list[str]) -> str:
    program = shutil.which(argv[0])
    if program is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603 - the person's own tools, no shell
            [program, *argv[1:]],
            capture_output=True,
            text=True,
            timeout=_ASK_LIMIT_S,
            stdin=subprocess.DEVNULL,
            cwd="/",  # a project's settings are not the machine's: somebody else wrote them
            check=False,
        ).stdout
    return ""
