"""A working session in a small project, played at a terminal: clone, install, test, mend, commit.

The sandbox is the full one and the autonomy `supervised`; whoever plays the person presses keys.
The model is scripted. Repositories and indexes are on a server of the test, reached through the
egress proxy, and known from settings in the person's home, as mirrors are.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clients import places
from tests.support.home import Home
from tests.support.package_server import PackageServer, package_server
from tests.support.screen import TerminalScreen, clawctl_screen

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]

MOST_QUESTIONS = 8
LIMIT_S = 300.0
_ASKS = re.compile(r"Approve\? \[|not on the list of this project:")
_GITCONFIG = "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"
# They come with what sets a checkout up; others are taken where they are.
_SET_UP = ("git", "make", "cc", "python3")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the model does at one message, the keys that the person answers with, and the end.

    Attributes:
        fails: what a command says that fails; "" for one that does not.
        says: what stands in its output.
    """

    command: str = ""
    edit: tuple[str, str, str] = ("", "", "")
    keys: tuple[str, ...] = ()
    fails: str = ""
    says: str = ""
    timeout_s: int = 0

    @property
    def call(self) -> dict[str, Any]:
        if self.command:
            limit = {"timeout_s": self.timeout_s} if self.timeout_s else {}
            return {"name": "shell", "arguments": {"command": self.command, **limit}}
        path, old, new = self.edit
        return {
            "name": "file_edit",
            "arguments": {"path": path, "old_text": old, "new_text": new},
        }


class Work:
    """A person's machine, the server beside it, and one session at the terminal."""

    def __init__(self, home: Home, server: PackageServer) -> None:
        self.home = home
        self.server = server
        self.person = Path(home.environ["HOME"])
        self.write(".gitconfig", _GITCONFIG)
        self.clone = home.workspace / "app"

    def write(self, name: str, text: str) -> None:
        """Write a file of the person's."""
        place = self.person / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def on_path(self, *folders: Path, more: str = "") -> None:
        words = ":".join(map(str, folders))
        self.write(".bash_profile", f'export PATH="{words}:$PATH" {more}\n')

    def publish(self, files: Mapping[str, str]) -> None:
        """Put a repository with one commit on the server."""
        source, bare = self.server.folder / "source", self.server.folder / "app.git"
        for name, text in files.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
        who = ("-c", "user.name=U", "-c", "user.email=u@example.org")
        _git(source, "init", "-q", "-b", "main")
        _git(source, "add", "-A")
        _git(source, *who, "commit", "-qm", "first")
        _git(source, "clone", "-q", "--bare", str(source), str(bare))
        _git(bare, "update-server-info")
        _git(bare, "config", "http.receivepack", "true")

    def play(self, *steps: Step) -> int:
        """Say one message for each step and answer what is asked; return how often that was."""
        replies: list[dict[str, Any]] = []
        for number, step in enumerate(steps):
            said = f"step {number}."
            replies.append({"when": said, "tool_calls": [step.call]})
            replies.append({"when": said, "after": "tool", "text": f"DONE-{number}-"})
        security = f'[security]\nallowed_addresses = ["{self.server.name}"]\n'
        self.home.configure(*replies, tables=security)
        self.home.start()
        environ = dict(self.home.environ, TERM="xterm-256color")
        with clawctl_screen(environ, "agent", lines=50, columns=150) as screen:
            screen.wait_for("supervised", anywhere=True)
            asked = 0
            for number, step in enumerate(steps):
                screen.type(f"step {number}.\r")
                asked = _answer(screen, step.keys, asked, f"DONE-{number}-")
            screen.type("/exit\r")
            assert screen.exit_code() == 0
        self.check(steps)
        return asked

    def check(self, steps: Sequence[Step]) -> None:
        """Each step ended as it was to, in the full sandbox."""
        receipts = [r for r in self.home.receipt_lines() if r["tool"] in {"shell", "file_edit"}]
        ends = [(r["status"], r.get("reason", "")) for r in receipts]
        wanted = ["failed" if step.fails else "allowed" for step in steps]
        assert [status for status, _ in ends] == wanted, ends
        assert {r["sandbox"] for r in receipts if r["tool"] == "shell"} == {"bwrap"}
        (conversation,) = self.home.json("memory", "list")
        messages = self.home.json("memory", "show", conversation["id"])["messages"]
        told = [each["content"] for each in messages if each["role"] == "tool"]
        lacking = [
            (step.command, text)
            for step, text in zip(steps, told, strict=True)
            if (step.fails or step.says) not in text
        ]
        assert lacking == []
        log = _git(self.clone, "log", "--format=%an %s").splitlines()
        assert log == ["Ada add adds", "U first"]
        assert _git(self.clone, "status", "--porcelain") == ""

    def hosts(self) -> list[str]:
        """Return what `receipt show` says of hosts, for the commands that reached any."""
        found = []
        for receipt in self.home.receipt_lines():
            if receipt.get("contacted"):
                shown = self.home.ctl("receipt", "show", receipt["id"]).stdout
                reached = f"{self.server.name} 127.0.0.2 "
                found += [line for line in shown.splitlines() if reached in line]
        return found


def _git(folder: Path, *words: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout


def _answer(screen: TerminalScreen, keys: tuple[str, ...], asked: int, done: str) -> int:
    """Answer the questions of a step with its keys; return how many there were so far."""
    left = list(keys)

    def goes_on(seen: TerminalScreen) -> bool:
        return len(_ASKS.findall(seen.all_text)) > asked or done in seen.all_text

    while True:
        screen.wait_for(goes_on, limit_s=LIMIT_S, anywhere=True)
        if len(_ASKS.findall(screen.all_text)) <= asked:
            assert left == [], f"nobody asked for {left}\n{screen.text}"
            return asked
        asked += 1
        assert left, f"an unexpected question\n{screen.text}"
        screen.type(f"{left.pop(0)}\r")


def _needs(*programs: str) -> None:
    """Skip where a program is not here; where CI sets it up, fail."""
    lacking = [name for name in programs if shutil.which(name) is None]
    required = os.environ.get("CLAWD_TEST_REQUIRE", "").split(",")
    if "sandbox" in required and set(lacking) & set(_SET_UP):
        pytest.fail(f"required here: {', '.join(lacking)}")
    if lacking:
        pytest.skip(f"{', '.join(lacking)}: not installed")


@pytest.fixture
def work(home: Home, tmp_path: Path) -> Iterator[Work]:
    folder = tmp_path / "served"
    (folder / "source").mkdir(parents=True)
    with package_server(folder) as server:
        yield Work(home, server)


@pytest.mark.timeout(300)
def test_c_with_make(work: Work) -> None:
    _needs("git", "make", "cc")
    work.publish({
        "Makefile": "app: main.o add.o\n\t$(CC) -o $@ $^\n\ntest: app\n\t./app\n",
        "add.h": "int add(int a, int b);\n",
        "add.c": '#include "add.h"\nint add(int a, int b) { return a - b; }\n',
        "main.c": '#include "add.h"\nint main(void) { return add(2, 3) != 5; }\n',
        ".gitignore": "app\n*.o\n",
        ".envrc": "export CI=1\n",
    })  # fmt: skip
    asked = work.play(
        Step(command=f"git clone {work.server.url}/git/app.git", keys=("o", "c")),
        Step(command="cd app && git log --oneline -3 | cat && grep -n add *.c"),
        Step(command="cd app && make test", keys=("p",), fails="./app"),
        Step(edit=("app/add.c", "a - b", "a + b"), keys=("y",)),
        Step(command="cd app && make test 2>&1 | tail -20"),
        Step(command="cd app && git add -A && git commit -m 'add adds'", keys=("y",)),
        Step(command="cd app && git status -s && git diff --stat HEAD~1"),
    )
    assert asked == 5 <= MOST_QUESTIONS
    # What a repository holds for programs outside is there as it was cloned.
    assert (work.clone / ".envrc").read_text() == "export CI=1\n"
    assert len(work.hosts()) == 1


@pytest.mark.long
@pytest.mark.timeout(300)
def test_git_over_smart_http(work: Work) -> None:
    _needs("git")
    work.publish({"notes.md": "one\n", "add.txt": "2 - 3\n"})
    asked = work.play(
        Step(command=f"git clone --depth 1 {work.server.url}/smart/app.git", keys=("o", "c")),
        Step(command="cd app && git log --oneline | cat && cat add.txt", says="2 - 3"),
        Step(edit=("app/add.txt", "2 - 3", "2 + 3"), keys=("y",)),
        Step(command="cd app && git commit -qam 'add adds'", keys=("p",)),
        Step(
            command="cd app && git fetch -q origin && git status -sb", keys=("o",), says="ahead 1"
        ),
        Step(command="cd app && git push -q origin main", keys=("o",)),
        Step(command="cd app && git status -sb", says="main...origin/main"),
    )
    assert asked <= MOST_QUESTIONS
    pushed = _git(work.server.folder / "app.git", "log", "--format=%an %s").splitlines()
    assert pushed == ["Ada add adds", "U first"]
    assert len(work.hosts()) == 3


@pytest.mark.long
@pytest.mark.timeout(600)
def test_python_with_pytest_in_an_environment_of_its_own(work: Work) -> None:
    _needs("git", "python3")
    work.on_path(Path(sys.base_prefix) / "bin")
    work.write(".config/pip/pip.conf", f"[global]\nindex-url = {work.server.url}/simple/\n")
    work.server.add_wheel("shapes", "1.0", {"shapes/__init__.py": b"def same(x): return x\n"})
    work.server.add_installed("pytest", "pluggy", "iniconfig", "packaging", "pygments")
    work.publish({
        "adder/__init__.py": "import shapes\n\n\ndef add(a, b):\n    return shapes.same(a - b)\n",
        "tests/conftest.py": "import sys\nsys.path.insert(0, '.')\n",
        "tests/test_adder.py": "from adder import add\n\n\ndef test_adds():\n"
        "    assert add(2, 3) == 5\n",
        "requirements.txt": "shapes\npytest\n",
        ".gitignore": ".venv\n__pycache__\n.pytest_cache\n",
    })  # fmt: skip
    install = "cd app && python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"
    asked = work.play(
        Step(command=f"git clone {work.server.url}/git/app.git", keys=("o", "c")),
        Step(command="cd app && cat requirements.txt && ls -la tests"),
        # A rule for the host was given; what fills an environment counts once.
        Step(command=install, keys=("o",), timeout_s=240),
        Step(command="cd app && .venv/bin/python -m pytest -q", keys=("p",), fails="1 failed"),
        Step(edit=("app/adder/__init__.py", "a - b", "a + b"), keys=("y",)),
        Step(command="cd app && CI=1 .venv/bin/python -m pytest -q tests", says="1 passed"),
        Step(command="cd app && .venv/bin/python -m pytest -q -k adds", says="1 passed"),
        Step(command="cd app && git add -A && git commit -m 'add adds'", keys=("y",)),
    )
    assert asked <= MOST_QUESTIONS
    assert (work.clone / "tests/conftest.py").is_file()
    assert len(work.hosts()) == 2
    assert "/simple/shapes/" in work.server.asked
    # Nothing but what is there to fill it may change an environment.
    assert not list(work.clone.rglob("*.clawd-held"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_python_with_uv(work: Work, tmp_path: Path) -> None:
    _needs("git")
    beside = Path(sys.executable).parent / "uv"
    found = shutil.which("uv") or (str(beside) if beside.exists() else "")
    if not found:
        pytest.skip("uv: not installed")
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy(found, tools / "uv")
    work.on_path(tools, Path(sys.base_prefix) / "bin")
    work.write(
        ".config/uv/uv.toml",
        f'[[index]]\nname = "lan"\nurl = "{work.server.url}/simple/"\ndefault = true\n',
    )
    work.server.add_wheel("shapes", "1.0", {"shapes/__init__.py": b"def same(x): return x\n"})
    work.server.add_installed("pytest", "pluggy", "iniconfig", "packaging", "pygments")
    # What it resolves is for every system.
    work.server.add_wheel("colorama", "0.4.6", {"colorama.py": b""})
    work.publish({
        "adder.py": "import shapes\n\n\ndef add(a, b):\n    return shapes.same(a - b)\n",
        "test_adder.py": "from adder import add\n\n\ndef test_adds():\n    assert add(2, 3) == 5\n",
        "pyproject.toml": '[project]\nname = "adder"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["shapes"]\n\n[dependency-groups]\ndev = ["pytest"]\n',
        ".gitignore": ".venv\n__pycache__\n.pytest_cache\nuv.lock\n",
    })  # fmt: skip
    asked = work.play(
        Step(command=f"git clone {work.server.url}/git/app.git", keys=("o", "c")),
        Step(command="cd app && uv sync", keys=("o",), timeout_s=240),
        Step(command="cd app && uv run pytest -q", keys=("p",), fails="1 failed", timeout_s=240),
        Step(edit=("app/adder.py", "a - b", "a + b"), keys=("y",)),
        Step(command="cd app && uv run pytest -q -k adds", says="1 passed", timeout_s=240),
        Step(command="cd app && git add -A && git commit -m 'add adds'", keys=("y",)),
    )
    assert asked == 6 <= MOST_QUESTIONS
    assert "/simple/shapes/" in work.server.asked
    assert len(work.hosts()) == 2


@pytest.mark.long
@pytest.mark.timeout(600)
def test_node_with_npm(work: Work) -> None:
    node = places.folder() / "node" / "bin"
    if shutil.which("npm") is None and (node / "npm").exists():
        work.on_path(node)
    else:
        _needs("git", "node", "npm")
    work.write(
        ".npmrc",
        f"registry={work.server.url}/\n//npm.example.org/:_authToken=tell-nobody\naudit=false\n",
    )
    pad = '{"name": "tiny-pad", "version": "1.0.1", "main": "index.js"}'
    work.server.add_npm(
        "tiny-pad", "1.0.1", {"package.json": pad, "index.js": "module.exports = (x) => x;\n"}
    )
    work.publish({
        "package.json": '{"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js"},'
        ' "dependencies": {"tiny-pad": "^1.0.0"}}',
        "add.js": "const same = require('tiny-pad');\nexports.add = (a, b) => same(a - b);\n",
        "test.js": "const { add } = require('./add.js');\nprocess.exit(add(2, 3) === 5 ? 0 : 1);\n",
        ".gitignore": "node_modules\npackage-lock.json\n",
    })  # fmt: skip
    asked = work.play(
        Step(command=f"git clone {work.server.url}/git/app.git", keys=("o", "c")),
        Step(command="cd app && npm install", keys=("p",), timeout_s=240),
        Step(command="cd app && npm test", keys=("p",), fails="node test.js", timeout_s=60),
        Step(edit=("app/add.js", "a - b", "a + b"), keys=("y",)),
        Step(command="cd app && npm test", timeout_s=60),
        Step(command="cd app && npm install --no-save", timeout_s=240),
        Step(command="cd app && git add -A && git commit -m 'add adds'", keys=("y",)),
    )
    assert asked == 6 <= MOST_QUESTIONS
    assert "/tiny-pad/-/tiny-pad-1.0.1.tgz" in work.server.asked
    assert work.hosts()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rust_with_cargo(work: Work) -> None:
    _needs("git", "cargo", "cc")
    cargo = Path(shutil.which("cargo") or "")
    managed = os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))
    work.on_path(cargo.parent, more=f"RUSTUP_HOME={managed}" if Path(managed).is_dir() else "")
    work.write(
        ".cargo/config.toml",
        '[source.crates-io]\nreplace-with = "mirror"\n'
        f'[source.mirror]\nregistry = "sparse+{work.server.url}/crates/"\n',
    )
    manifest = '[package]\nname = "{}"\nversion = "1.0.0"\nedition = "2021"\n'
    library = {
        "Cargo.toml": manifest.format("shapes"),
        "src/lib.rs": "pub fn same(x: i32) -> i32 { x }",
    }
    work.server.add_crate("shapes", "1.0.0", library)
    work.publish({
        "Cargo.toml": f'{manifest.format("app")}\n[dependencies]\nshapes = "1"\n',
        "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 {\n    shapes::same(a - b)\n}\n\n"
        "#[test]\nfn adds() {\n    assert_eq!(add(2, 3), 5);\n}\n",
        ".gitignore": "target\nCargo.lock\n",
    })  # fmt: skip
    asked = work.play(
        Step(command=f"git clone {work.server.url}/git/app.git", keys=("o", "c")),
        Step(command="cd app && cargo test", keys=("p",), fails="1 failed", timeout_s=240),
        Step(edit=("app/src/lib.rs", "a - b", "a + b"), keys=("y",)),
        Step(command="cd app && cargo test -q", says="1 passed", timeout_s=240),
        Step(command="cd app && git add -A && git commit -m 'add adds'", keys=("y",)),
    )
    assert asked == 5 <= MOST_QUESTIONS
    assert "/crates/dl/shapes/1.0.0/download" in work.server.asked
    assert len(work.hosts()) == 2
