"""Builds the page of the gateway from web/ into clawd/channels/http/page.

web/node_modules/      what package-lock.json names
.setup/page.json       the key of the sources that the built page is of

Node.js of the machine serves where it is new enough; else pip brings one (.setup/clients/node).
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from bootstrap.clients import prepare_node
from bootstrap.environment import ROOT, SETUP, digest, setup_lock
from bootstrap.steps import SetupError, run_step

SOURCES = ROOT / "web"
BUILT = ROOT / "clawd" / "channels" / "http" / "page"
KEY = SETUP / "page.json"
LOG = SETUP / "page.log"
OLDEST_NODE = (20, 19)


def prepare_page(python: Path) -> bool:
    """Builds the page where it is not that of the sources, and gives whether there is one.

    Without Node.js or a network the gateway serves everything else, and says so at `/`.
    """
    if not (SOURCES / "package-lock.json").exists():
        return BUILT.is_dir()  # no checkout of this project: it is as it was packed
    with setup_lock("page.lock"):
        key = page_key()
        if BUILT.is_dir() and KEY.exists() and KEY.read_text(encoding="utf-8") == key:
            return True
        try:
            build_page(python)
        except SetupError as error:
            print(f"{error}\nGoing on without the page; `make page` tries again.")
            return BUILT.is_dir()
        KEY.write_text(key, encoding="utf-8")
        return True


def build_page(python: Path) -> None:
    """Fetches what the page is built with, and builds it.

    Raises:
        SetupError: there is no Node.js to be had, or a step failed.
    """
    node = own_node() or prepare_node(python)
    npm = node.with_name("npm")
    environ = {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    install = [str(npm), "ci", "--prefix", str(SOURCES), "--ignore-scripts", "--no-audit"]
    run_step(
        "fetching what the page is built with",
        [*install, "--no-fund", "--loglevel=error"],
        log=LOG,
        environ=environ,
    )
    vite = SOURCES / "node_modules" / "vite" / "bin" / "vite.js"
    run_step("building the page", [str(node), str(vite), "build", str(SOURCES)], log=LOG)


def page_key() -> str:
    """Names the sources: every file of web/ but what npm put there."""
    files = sorted(path for path in SOURCES.rglob("*") if is_source(path))
    return digest([[str(path.relative_to(SOURCES)), path.read_text("utf-8")] for path in files])


def is_source(path: Path) -> bool:
    """Returns whether a file of web/ is a source."""
    return path.is_file() and "node_modules" not in path.relative_to(SOURCES).parts


def own_node() -> Path | None:
    """Returns the Node.js of this machine if it is new enough and has npm; else None."""
    found = shutil.which("node")
    if found is None or not Path(found).with_name("npm").exists():
        return None
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    version = re.match(r"v(\d+)\.(\d+)", told.stdout)
    if version is None or tuple(map(int, version.groups())) < OLDEST_NODE:
        return None
    return Path(found)
