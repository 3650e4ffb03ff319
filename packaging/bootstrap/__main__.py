"""What each target of the Makefile does.

All of bootstrap uses the standard library alone, because nothing else is installed yet.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bootstrap.clients import prepare_clients
from bootstrap.debian import build_package, update_lock
from bootstrap.dist import build_distributions
from bootstrap.environment import ROOT, built_wheels, prepare
from bootstrap.models import (
    MERGED,
    SHA256,
    noted_digest,
    prepare_embedder,
    prepare_merged,
    prepare_model,
    prepare_models,
)
from bootstrap.page import prepare_page
from bootstrap.peer import CHAT_CASES, build_peer, fetch_chat_cases
from bootstrap.rootfs import prepare_rootfs
from bootstrap.steps import SetupError, announce, stop_group
from bootstrap.system import MINORS, Interpreter, find_interpreter, probe

RUN_PARTS = ("project", "engine")
ASSISTANT = "assistant"
CARD = ROOT / "clawd/engine/embedded/assistant-card.toml"
# What needs programs that only CI sets up: third-party clients and servers, a browser, the package,
# a Debian root to boot.
SET_UP_BY_CI = (
    "sdks or litellm or mcp_servers or conformance or clis or browser or page or package or booted "
    "or llama_sources or schema_suite"
)
ONLY_CI = f"{SET_UP_BY_CI} or fault or long"
TESTS = f"not slow and not ({ONLY_CI})"
# What is quick and depends on nothing but Python: for `make check`.
FAST_TESTS = f"not real_model and not daemon and not terminal and ({TESTS})"
# Of these, what may differ on another Python: children in a sandbox are the system's.
PYTHON_TESTS = f"not sandbox and not landlock and not tamper and ({FAST_TESTS})"
# Where tests of ONLY_CI are: each worker collects these folders alone.
CI_FOLDERS = (
    "booted",
    "clients",
    "conformance",
    "daemon",
    "engine_real",
    "fault",
    "mcp_real",
    "packaging",
    "providers/toolcalls",
    "web",
)
# What stands on asyncio, sockets, threads, files, typing and text of Python. The rest reckons
# with values, which comes out alike everywhere.
PYTHON_FOLDERS = (
    "channels",
    "clawctl",
    "config",
    "kernel",
    "mcp",
    "memory",
    "plugins",
    "receipts",
    "runtime",
    "sdk",
    "service",
    "wire",
)
MOST_WORKERS = 8
TESTS_FAILED = 1  # pytest's exit status; others mean that it did not come to its end
MOST_AGAIN = 3
NO_SECOND_CHANCE = ("tests/security/", "tests/fault/")
PYTEST_CACHES = ROOT / ".pytest_cache"
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
        "test-ci": run_tests_of_ci,
        "test-ci-setup": set_up_beside,
        "test-pythons": run_tests_of_pythons,
        "test-all": run_all_tests,
        "lint": run_lint,
        "check": run_check,
        "bench": run_bench,
        "bench-engine": run_bench_engine,
        "bench-security": run_bench_security,
        "bench-agent": run_bench_agent,
        "bench-http": run_bench_http,
        "bench-web": run_bench_web,
        "train": run_training,
        "dist": build_distributions,
        "deb": build_package,
        "page": make_page,
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
    """Makes `.venv` ready to run clawd on its local engine, and fetches its small model."""
    python = prepare(RUN_PARTS)
    prepare_page(python)
    if is_assistant_default():
        prepare_assistant(python)
    print("Ready. Talk to clawd with:  make run")
    return 0


def make_page() -> int:
    """Builds the page of the gateway, if its sources are others than those it was built of."""
    return 0 if prepare_page(prepare(("project",))) else 1


def run_agent() -> int:
    """Sets up, writes a first config where there is none, and becomes the REPL."""
    python = prepare(RUN_PARTS)
    prepare_page(python)
    clawctl = [str(python), str(python.with_name("clawctl"))]
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environ = {**os.environ, "PATH": path}
    home = Path(os.environ.get("CLAWD_HOME") or Path.home() / ".clawd").expanduser()
    if not (home / "config.toml").exists():
        status = subprocess.call([*clawctl, "init"], env=environ)
        if status:
            return status
    if is_assistant_default():
        give_assistant(clawctl, prepare_assistant(python), home, environ)
    sys.stdout.flush()
    return os.execve(python, [*clawctl, "agent", "--home-workspace"], environ)


def is_assistant_default() -> bool:
    """Returns whether the packaged assistant answers unasked: then its base is fetched."""
    try:
        return tomllib.loads(CARD.read_text(encoding="utf-8")).get("is_default") is True
    except (OSError, ValueError):
        return False


def prepare_assistant(python: Path) -> tuple[Path | None, Path | None]:
    """Fetches the base of the assistant and merges it with its adapter; gives what is there now."""
    base = prepare_model(python, is_patient=False)
    return base, prepare_merged(python, base) if base is not None else None


def give_assistant(
    clawctl: Sequence[str],
    models: tuple[Path | None, Path | None],
    home: Path,
    environ: Mapping[str, str],
) -> None:
    """Puts the assistant's base, and the file of base and adapter, into a home that lacks them.

    Linked where they can be, checked. A merged file of another adapter is replaced. Without the
    base the embedded model answers, which the REPL tells.
    """
    base, merged = models
    if base is None:
        return
    if not (home / "models" / f"{ASSISTANT}.gguf").exists():
        give_model(clawctl, base, ASSISTANT, SHA256, environ)
    digest = noted_digest(merged) if merged is not None else ""
    if merged is not None and noted_digest(home / "models" / f"{MERGED}.gguf") != digest:
        give_model(clawctl, merged, MERGED, digest, environ)


def give_model(
    clawctl: Sequence[str], path: Path, name: str, digest: str, environ: Mapping[str, str]
) -> None:
    """Puts a model into the home of clawctl under a name, whatever had that name."""
    command = [*clawctl, "model", "pull", str(path), "--name", name, "--sha256", digest, "--force"]
    subprocess.call(command, env=environ, stdout=subprocess.DEVNULL)


def run_tests() -> int:
    """Runs the tests that need nothing but this checkout, on the Python of `.venv`."""
    python = prepare((*RUN_PARTS, "dev"))
    prepare_models(python)
    return pytest(python, "-m", TESTS)


def run_tests_of_ci() -> int:
    """Runs what `make test` leaves to CI: big set-ups, what takes long, and the other Pythons.

    What takes long waits for most of its time. The other Pythons take what processor time it
    leaves, and what they print comes after it. They stay in this session: between sessions Linux
    shares the processor evenly, however nice one of them is.
    """
    python = prepare((*RUN_PARTS, "dev"))
    set_up_for_ci(python, engine=built_wheels()[-1])
    with tempfile.TemporaryFile() as printed:
        command = ["nice", sys.executable, "-m", "bootstrap", "test-pythons"]
        others = subprocess.Popen(
            command,
            cwd=ROOT / "packaging",
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        try:
            chosen = ("-m", f"({ONLY_CI}) and not slow", *folders(CI_FOLDERS))
            status = pytest(python, *chosen, each_waits=True) or others.wait()
        finally:
            stop_group(others)
            printed.seek(0)
            shutil.copyfileobj(printed, sys.stdout.buffer)
            sys.stdout.flush()
    return status


def run_tests_of_pythons() -> int:
    """Runs what depends on Python on the others of those that clawd runs on."""
    pythons = prepare_other_interpreters()
    return on_other_interpreters(pythons, "-m", PYTHON_TESTS, *folders(PYTHON_FOLDERS))


def folders(names: Iterable[str]) -> list[str]:
    """Returns folders of tests as arguments of pytest."""
    return [f"tests/{name}" for name in names]


def run_all_tests() -> int:
    """Runs everything with all its rounds and examples, on every Python found here."""
    os.environ["CLAWD_TEST_THOROUGH"] = "1"
    python = prepare((*RUN_PARTS, "dev"))
    set_up_for_ci(python)
    if status := pytest(python):
        return status
    return on_other_interpreters(prepare_other_interpreters(), "-m", f"not ({SET_UP_BY_CI})")


def set_up_beside() -> int:
    """Makes what `make test-ci` needs and mostly waits for: CI runs this while it compiles."""
    python = prepare(("project",))
    prepare_clients(python, with_clis=True)
    prepare_page(python)
    prepare_rootfs()
    return 0


def set_up_for_ci(python: Path, engine: Path | None = None) -> None:
    """Makes what tests of CI need: models, chat cases, clients, the package, the Debian root."""
    prepare_models(python)
    fetch_chat_cases(python)
    prepare_clients(python, with_clis=True)
    prepare_page(python)
    if "package" in os.environ.get("CLAWD_TEST_REQUIRE", ""):
        build_package(engine)
    prepare_rootfs()


def prepare_other_interpreters() -> dict[str, Path]:
    """Sets up each Python found here but that of `.venv`; gives the pythons by their versions."""
    own = probe(str(ROOT / ".venv" / "bin" / "python"))
    return {
        each.version: prepare((*RUN_PARTS, "dev"), ROOT / f".venv-{each.minor}", each)
        for each in interpreters_of_tests(own)
        if each is not own
    }


def on_other_interpreters(pythons: Mapping[str, Path], *chosen: str) -> int:
    """Runs tests on each of these, up to the first that fails."""
    for version, python in pythons.items():
        announce(" ".join([f"tests on Python {version}", *chosen]))
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
    started = {
        name: subprocess.Popen(
            [python, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for name, arguments in checks.items()
    }
    failed = []
    for name, checker in started.items():
        output, _ = checker.communicate()
        announce(name)
        sys.stdout.buffer.write(output)
        sys.stdout.flush()
        if checker.returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_check() -> int:
    """Lints, then runs the tests that need neither a model nor a daemon."""
    linted = run_lint()
    announce("fast tests")
    return pytest(prepare((*RUN_PARTS, "dev")), "-q", "-m", FAST_TESTS) or linted


def run_bench() -> int:
    """Measures this machine; JSON=FILE keeps the figures."""
    python = prepare(("project", "engine", "bench"))
    return subprocess.call([python, "-m", "tests.bench", *json_option()])


def run_bench_engine() -> int:
    """Measures the engine against llama-server; JSON=FILE keeps the figures, ARGS go to it."""
    python = prepare(("project", "engine", "bench"))
    binaries, model = build_peer(python), prepare_model(python)
    real = ["--real", str(model)] if model is not None else []
    arguments = ["--binaries", str(binaries), *real, *json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.llama", *arguments])


def run_bench_security() -> int:
    """Measures the emergency stop, calls and receipts; JSON and ARGS as for the engine."""
    python = prepare(("project", "engine"))
    arguments = [*json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.security", *arguments])


def run_bench_agent() -> int:
    """Measures tasks of the embedded model and searches; JSON and ARGS as for the engine."""
    python = prepare(("project", "engine", "bench"))
    model, embedder = prepare_model(python), prepare_embedder(python)
    given = ["--embedder", str(embedder)] if embedder is not None else []
    given += ["--real", str(model)] if model is not None else []
    merged = prepare_merged(python, model) if model is not None else None
    given += ["--merged", str(merged)] if merged is not None else []
    templates = fetch_templates(python)
    given += ["--templates", str(templates)] if templates.is_dir() else []
    arguments = [*given, *json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.agent", *arguments])


def fetch_templates(python: Path) -> Path:
    """Returns the folder of llama.cpp's chat templates, there or not."""
    try:
        return fetch_chat_cases(python) / CHAT_CASES[0]
    except SetupError as error:
        print(f"Going on without llama.cpp's chat templates: {error}", file=sys.stderr)
        return ROOT / ".setup" / "llama.cpp" / CHAT_CASES[0]


def run_bench_http() -> int:
    """Measures the HTTP gateway, beside llama-server; JSON and ARGS as for the engine."""
    python = prepare(("project", "engine", "bench"))
    binaries = build_peer(python)
    arguments = [*json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.http", "--binaries", binaries, *arguments])


def run_bench_web() -> int:
    """Measures the page in a browser; JSON and ARGS as for the engine."""
    python = prepare(("project", "engine", "dev"))
    prepare_page(python)
    arguments = [*json_option(), *extra_arguments()]
    return subprocess.call([python, "-m", "tests.bench.web", *arguments])


def json_option() -> list[str]:
    """Returns what makes a benchmark write its figures to JSON=FILE."""
    target = os.environ.get("JSON", "")
    return ["--json", target] if target else []


def run_training() -> int:
    """Trains the packaged assistant's adapter in an environment of its own, with ARGS."""
    python = prepare(("project", "engine", "training"), ROOT / "build" / "training-venv")
    model = prepare_model(python)
    if model is None:
        return 1
    arguments = [str(model), *extra_arguments()]
    return subprocess.call([python, "-m", "training.assistant.make", *arguments])


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


def pytest(python: Path, *arguments: str, each_waits: bool = False) -> int:
    """Runs pytest on all cores; ARGS of the command line come last, so `-n 0` there means one.

    Four workers share two cores, because a test waits for half of its time, and five where it
    waits for booting machines and clients for two thirds. Cases whose fixtures serve a whole file
    stay together on one worker (tests/conftest.py).

    A machine that keeps Python from caching what it compiled would have each of some hundred
    daemons and children compile clawd anew, which is most of their time.
    """
    cores = len(os.sched_getaffinity(0))
    more = 2 * cores - 1 if each_waits else cores
    workers = min(cores + more, MOST_WORKERS) if cores > 1 else 1
    spread = ["-n", str(workers), "--dist", "loadgroup"]
    in_ci = bool(os.environ.get("CI"))
    cache = PYTEST_CACHES / python.parents[1].name.lstrip(".")
    kept = ["-o", f"cache_dir={cache}", *(["--cache-clear"] if in_ci else [])]
    words = [str(python), "-m", "pytest", *kept, *spread, *arguments, *extra_arguments()]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    status = subprocess.call(words, env=environ)
    if not in_ci or status != TESTS_FAILED:
        return status
    failed = json.loads((cache / "v/cache/lastfailed").read_text())
    return run_again_alone(python, [without_group(each) for each in failed], environ)


def run_again_alone(python: Path, failed: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs the few tests that failed twice more, one after the other, and names what then passed.

    A machine that others use too fails one test in thousands now and then; that must not cost
    everybody the hour of a landing, nor be forgotten. What guards the wall gets no second chance.
    """
    guards = [each for each in failed if each.startswith(NO_SECOND_CHANCE)]
    if guards or len(failed) > MOST_AGAIN:
        return TESTS_FAILED
    for _ in range(2):
        announce(f"once more, alone: {', '.join(failed)}")
        words = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *failed]
        if status := subprocess.call(words, env=dict(environ)):
            return status
    announce(f"FLAKY, to be mended before anything else: {', '.join(failed)}")
    return 0


def without_group(nodeid: str) -> str:
    """Returns the name of a test without `@group`, which pytest-xdist adds to it."""
    name, at, group = nodeid.rpartition("@")
    return name if at and not set("]/:") & set(group) else nodeid


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
