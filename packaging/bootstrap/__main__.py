"""What each target of the Makefile does.

All of bootstrap uses the standard library alone, because nothing else is installed yet.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bootstrap.clients import prepare_clients
from bootstrap.debian import build_package, update_lock
from bootstrap.dist import build_distributions
from bootstrap.environment import ROOT, prepare
from bootstrap.peer import build_peer
from bootstrap.rootfs import prepare_rootfs
from bootstrap.steps import SetupError, announce
from bootstrap.system import MINORS, Interpreter, find_interpreter, probe

RUN_PARTS = ("project", "engine")
# Programs of others, the package (it has a Python of its own), what a machine does to a daemon, and
# what people see on terminals take minutes and care little what Python runs: once is enough.
ONCE = (
    "sdks or litellm or mcp_servers or conformance or clis or browser or package or booted or fault"
    " or terminal"
)
FAST_TESTS = f"not slow and not real_model and not daemon and not ({ONCE})"
ON_ALL_CORES = ("-n", "logical", "--maxprocesses", "8", "--dist", "worksteal")
MADE_HERE = (
    ".venv",
    ".venv-*",
    ".setup",
    "build",
    "dist",
    "*.egg-info",
    ".coverage",
    ".coverage.*",
    "htmlcov",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".import_linter_cache",
    ".hypothesis",
)


def main(argv: Sequence[str]) -> int:
    """Runs one target and gives its exit status."""
    commands: dict[str, Callable[[], int]] = {
        "run": run_agent,
        "setup": setup,
        "test": run_tests,
        "lint": run_lint,
        "check": run_check,
        "bench": run_bench,
        "bench-engine": run_bench_engine,
        "bench-security": run_bench_security,
        "bench-agent": run_bench_agent,
        "bench-http": run_bench_http,
        "dist": build_distributions,
        "deb": build_package,
        "deb-lock": update_lock,
        "clean": clean,
    }
    if len(argv) != 1 or argv[0] not in commands:
        print(f"usage: bootstrap {' | '.join(commands)}", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    try:
        return commands[argv[0]]()
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def setup() -> int:
    """Makes `.venv` ready to run clawd on its local engine."""
    prepare(RUN_PARTS)
    print("Ready. Talk to clawd with:  make run")
    return 0


def run_agent() -> int:
    """Sets up, writes a first config where there is none, and becomes the REPL."""
    python = prepare(RUN_PARTS)
    clawctl = [str(python), str(python.with_name("clawctl"))]
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environ = {**os.environ, "PATH": path}
    home = Path(os.environ.get("CLAWD_HOME") or Path.home() / ".clawd").expanduser()
    if not (home / "config.toml").exists():
        status = subprocess.call([*clawctl, "init"], env=environ)
        if status:
            return status
    sys.stdout.flush()
    return os.execve(python, [*clawctl, "agent"], environ)


def run_tests() -> int:
    """Runs all tests in `.venv`, then those that depend on Python on the other ones found.

    It stops at the first interpreter that fails, so that the last summary printed is the one to
    read. The newest runs all but what is in ONCE, those in between the fast tests.
    """
    python = prepare((*RUN_PARTS, "dev"))
    prepare_clients(python, with_clis=bool(os.environ.get("CI")))
    if "package" in os.environ.get("CLAWD_TEST_REQUIRE", ""):
        build_package()
    prepare_rootfs()
    own = probe(str(python))
    found = interpreters_of_tests(own)
    for number, interpreter in enumerate(found):
        chosen: tuple[str, ...] = ()
        if number:
            is_newest = number == len(found) - 1
            chosen = ("-m", f"not ({ONCE})" if is_newest else FAST_TESTS)
        if interpreter is not own:
            minor = interpreter.minor
            python = prepare((*RUN_PARTS, "dev"), ROOT / f".venv-{minor}", interpreter)
        announce(" ".join([f"tests on Python {interpreter.version}", *chosen]))
        if status := pytest(python, *chosen):
            return status
    return 0


def interpreters_of_tests(own: Interpreter | None) -> list[Interpreter]:
    """Returns the Pythons to test on, that of `.venv` first; says which are not here."""
    wanted = os.environ.get("PYTHONS", "").replace(",", " ").split() or MINORS
    found: list[Interpreter] = []
    for minor in sorted(wanted, key=lambda minor: own is None or minor != own.minor):
        interpreter = own if own is not None and minor == own.minor else find_interpreter(minor)
        if interpreter is None:
            print(f"\nPython {minor} was not found here (with its venv module): left out.")
        else:
            found.append(interpreter)
    return found


def run_lint() -> int:
    """Runs every checker, so that one run names all that is wrong."""
    python = prepare(("project", "dev"))
    checks = {
        "ruff format": ["-m", "ruff", "format", "--check", "."],
        "ruff check": ["-m", "ruff", "check", "."],
        "mypy": ["-m", "mypy"],
        "lint-imports": [str(python.with_name("lint-imports"))],
        "codespell": ["-m", "codespell_lib"],
    }
    failed = []
    for name, arguments in checks.items():
        announce(name)
        if subprocess.call([python, *arguments]):
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_check() -> int:
    """Lints, then runs the tests that need neither a model nor a daemon."""
    linted = run_lint()
    announce("fast tests")
    return pytest(prepare(("project", "dev")), "-q", "-m", FAST_TESTS) or linted


def run_bench() -> int:
    """Measures this machine; JSON=FILE keeps the figures."""
    python = prepare(("project", "engine", "bench"))
    return subprocess.call([python, "-m", "tests.bench", *json_option()])


def run_bench_engine() -> int:
    """Measures the engine against llama-server; JSON=FILE keeps the figures, ARGS go to it."""
    python = prepare(("project", "engine", "bench"))
    binaries = build_peer(python)
    arguments = [*json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.llama", "--binaries", binaries, *arguments])


def run_bench_security() -> int:
    """Measures the emergency stop, calls and receipts; JSON and ARGS as for the engine."""
    python = prepare(("project", "engine"))
    arguments = [*json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.security", *arguments])


def run_bench_agent() -> int:
    """Measures tasks of the embedded model and searches; JSON and ARGS as for the engine."""
    python = prepare(("project", "engine"))
    arguments = [*json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.agent", *arguments])


def run_bench_http() -> int:
    """Measures the HTTP gateway, beside llama-server; JSON and ARGS as for the engine."""
    python = prepare(("project", "engine", "bench"))
    binaries = build_peer(python)
    arguments = [*json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.http", "--binaries", binaries, *arguments])


def json_option() -> list[str]:
    """Returns what makes a benchmark write its figures to JSON=FILE."""
    target = os.environ.get("JSON", "")
    return ["--json", target] if target else []


def extra_arguments() -> list[str]:
    """Returns the words of ARGS."""
    return shlex.split(os.environ.get("ARGS", ""))


def clean() -> int:
    """Removes what make made in the checkout; the homes of daemons and pip's cache stay."""
    found = [path for pattern in MADE_HERE for path in ROOT.glob(pattern)]
    for folder in ("clawd", "clawctl", "tests", "training", "packaging"):
        found += (ROOT / folder).rglob("__pycache__")
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return 0


def pytest(python: Path, *arguments: str) -> int:
    """Runs pytest on all cores; ARGS of the command line come last, so `-n 0` there means one."""
    asked = extra_arguments()
    return subprocess.call([python, "-m", "pytest", *ON_ALL_CORES, *arguments, *asked])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
