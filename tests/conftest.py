"""What every test may use: probes that skip with a reason, or fail where CI requires the thing."""

import contextlib
import functools
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from _pytest.pathlib import import_path
from hypothesis import HealthCheck, settings

from clawd.security.sandbox.landlock import landlock_problem
from clawd.security.sandbox.plan import HostFacts, ResourceLimits
from clawd.security.sandbox.process import Level
from clawd.security.sandbox.run import Sandbox
from tests.clients.places import lacking
from tests.support.chat_cases import lacking_sources
from tests.support.installed import no_machine
from tests.support.minilm import lacking_minilm
from tests.support.rows import thorough
from tests.support.smollm2 import lacking_smollm2

# A job in the background of a script, and one of nohup's, ignores some of these, and so would all
# that tests start in it.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)

EXAMPLES = 25
THOROUGH_EXAMPLES = 200

# How long an example takes, and finding one, is the machine's doing where others are at work on it.
settings.register_profile(
    "patient",
    settings(),
    deadline=None,
    max_examples=THOROUGH_EXAMPLES if thorough() else EXAMPLES,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("patient")


@functools.cache
def _no_libmtmd() -> str:
    """Say why llama.cpp reads no pictures here; it is not loaded for that."""
    found = importlib.util.find_spec("llama_cpp")
    folders = found.submodule_search_locations if found else None
    if any((Path(folder) / "lib" / "libmtmd.so").is_file() for folder in folders or ()):
        return ""
    return "llama-cpp-python has no libmtmd; `make setup` builds it"


@functools.cache
def _no_sandbox() -> str:
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    probe = subprocess.run(
        ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, text=True
    )
    return "" if probe.returncode == 0 else f"bubblewrap cannot work here: {probe.stderr.strip()}"


@functools.cache
def _no_real_model() -> str:
    try:
        import llama_cpp  # noqa: F401
    except ImportError as error:
        return f"llama-cpp-python is not installed: {error}"
    return ""


@functools.cache
def _no_landlock() -> str:
    return landlock_problem(platform.machine())


@functools.cache
def _no_browser() -> str:
    if shutil.which("chromium") is None:
        return "Chromium is not installed"
    words = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    with tempfile.TemporaryDirectory() as folder:
        probe = subprocess.run(
            [*words, f"--user-data-dir={folder}", "data:text/html,works"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    return "" if "works" in probe.stdout else f"Chromium does not start: {probe.stderr[-300:]}"


@functools.cache
def _no_page() -> str:
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed"
    if not (Path(__file__).parents[1] / "clawd/channels/http/page/index.html").exists():
        return "the page was not built; `make page` builds it"
    return _no_browser()


@functools.cache
def _no_package() -> str:
    lacking_programs = [
        name for name in ("dpkg-buildpackage", "dh", "lintian") if shutil.which(name) is None
    ]
    if lacking_programs:
        return f"{', '.join(lacking_programs)}: not installed"
    if not any((Path(__file__).parents[1] / "build" / "deb").glob("clawd_*.deb")):
        return "there is no package in build/deb; `make deb` builds it on Debian 12"
    return ""


PROBES: dict[str, Callable[[], str]] = {
    "sandbox": _no_sandbox,
    "landlock": _no_landlock,
    "real_model": _no_real_model,
    "vision": _no_libmtmd,
    "smollm2": lacking_smollm2,
    "minilm": lacking_minilm,
    "browser": _no_browser,
    "page": _no_page,
    "sdks": lambda: lacking("sdks"),
    "litellm": lambda: lacking("litellm"),
    "schema_suite": lambda: lacking("schemas"),
    "mcp_servers": lambda: lacking("servers") or lacking("mcp"),
    "conformance": lambda: lacking("mcp"),
    "clis": lambda: lacking("clis"),
    "booted": no_machine,
    "llama_sources": lacking_sources,
    "package": _no_package,
}


# What is played on a terminal, or starts a process for every line of a table.
ON_TERMINALS = (
    "clawctl/contract/",
    "clawctl/shell/",
    "clawctl/test_completion",
    "clawctl/test_offline",
    "clawctl/test_repl",
    "clawctl/test_service",
    "clawctl/test_terminal",
    "clawctl/test_top",
    "test_terminal_screen",
)


# What takes many seconds of a processor, to show in depth what quicker tests show in short.
LONG = (
    "daemon/test_backups",
    "daemon/test_engine_faults",
    "daemon/test_prefix_cache",
    "daemon/test_real_conversation",
    "daemon/test_session_files",
    "engine_real/test_adapters",
    "engine_real/test_prefix_cache",
    "engine_real/test_twenty_turns",
    "mcp_real/",
    "packaging/test_dist",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Have each of several workers begin with test files of its own.

    pytest compiles a test file with its asserts rewritten, and caches that. Workers that all begin
    with the first file would each compile every file where nothing is cached yet, as in CI: that is
    twice the time of collecting. The files are imported to be collected anyway.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    number, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    chosen = [session.config.rootpath / arg.split("::")[0] for arg in session.config.args]
    files = sorted({file for path in chosen for file in _test_files(path)})
    options = {
        "mode": session.config.getoption("importmode"),
        "root": session.config.rootpath,
        "consider_namespace_packages": session.config.getini("consider_namespace_packages"),
    }
    for file in files[number::workers]:
        # What fails here fails again, and is reported, when the file is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            import_path(file, **options)
            continue
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) == str(file):
                del sys.modules[name]


def _test_files(path: Path) -> Iterator[Path]:
    return path.rglob("test_*.py") if path.is_dir() else iter([path])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        name = item.path.as_posix().removeprefix(f"{here}/")
        if name.startswith(ON_TERMINALS):
            item.add_marker("terminal")
        if name.startswith(LONG):
            item.add_marker("long")
        if shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
        limit_examples(item)


def shares_a_fixture(item: pytest.Item) -> bool:
    """Return whether a fixture of this test serves its whole file, and is made once per worker."""
    fixtures = getattr(item, "_fixtureinfo", None)
    found = fixtures.name2fixturedefs.values() if fixtures is not None else ()
    return any(definitions[-1].scope == "module" for definitions in found)


def limit_examples(item: pytest.Item) -> None:
    """Hold a test that asks for a number of examples to what this run plays of each."""
    test = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    asked = getattr(test, "_hypothesis_internal_use_settings", None)
    if test is None or asked is None:
        return
    number = asked.max_examples
    number = max(number, THOROUGH_EXAMPLES) if thorough() else min(number, EXAMPLES)
    test._hypothesis_internal_use_settings = settings(asked, max_examples=number)


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("CLAWD_TEST_REQUIRE", "").split(",")
    for marker, probe in PROBES.items():
        if item.get_closest_marker(marker) is None:
            continue
        reason = probe()
        if reason and marker in required:
            pytest.fail(f"{marker} is required here: {reason}")
        if reason:
            pytest.skip(reason)


@pytest.fixture(autouse=True, scope="session")
def _known_levels() -> Iterator[None]:
    """Try each kind of sandbox once: what works on a machine does so for every test after it."""
    known: set[HostFacts] = set()
    really_try = Sandbox._try

    async def once(self: Sandbox, level: Level, host: HostFacts) -> str:
        kind = msgspec.structs.replace(
            host, home=None, forbidden_paths=(), limits=ResourceLimits(), closed=(), devices=""
        )
        if kind in known:
            return ""
        reason = await really_try(self, level, host)
        if not reason:
            known.add(kind)
        return reason

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sandbox, "_try", once)
        yield
