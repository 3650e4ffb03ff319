"""evaluate: Python that computes, at both levels of the sandbox, and what it cannot do."""

import asyncio
import os
import platform
from pathlib import Path

import msgspec
import pytest

from clawd.errors import SandboxUnavailableError
from clawd.security.sandbox.process import Level
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.sandbox.seccomp import compute_filter
from clawd.tools.base import ToolResult
from clawd.tools.builtin.evaluate import EvaluateTool, system_python
from tests.support.time_limits import TimeLimit
from tests.tools.builtin.conftest import Bench

LEVELS = [
    pytest.param("bwrap", marks=pytest.mark.sandbox),
    pytest.param("landlock", marks=pytest.mark.landlock),
]


@pytest.fixture(params=LEVELS)
async def box(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """Return the bench at each level, where the level works."""
    level: Level = request.param
    # What is forbidden in the workspace Landlock cannot hide.
    bench.sandbox = Sandbox(SandboxSettings(home=bench.home, levels=(level,)))
    status = await bench.sandbox.probe()
    assert status.level == level, status
    return bench


async def run(bench: Bench, code: str) -> ToolResult:
    return await bench.call("evaluate", code=code)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("12 * 7", "84"),
        ("x = 3\nfor n in range(2):\n    print(n)\nx ** 2", "0\n1\n9"),
        ("'é\\u2028'", "'é\\u2028'"),
        ("None", "(no output)"),
        ("x = 1", "(no output)"),
        ("", "(no output)"),
        ("print('a', end='')", "a"),
        ("import math, statistics, decimal, json, re\nmath.comb(5, 2)", "10"),
        ("def f(n): return 1 if n < 2 else n * f(n - 1)\nf(20)", "2432902008176640000"),
        ("[c for c in 'ab']", "['a', 'b']"),
        ("input_ = open(0).read()\ninput_", "''"),
        ("__name__", "'__main__'"),
        ("import sys\n(sys.flags.isolated, sys.flags.no_site, sys.path[0] == '')", "(1, 1, False)"),
    ],
)
async def test_code_answers_what_it_prints_and_its_last_value(
    box: Bench, code: str, output: str
) -> None:
    result = await run(box, code)
    assert (result.output, result.error) == (output, "")
    assert result.metadata["exit_code"] == 0


async def test_it_reads_the_workspace_and_no_module_of_it_is_imported(box: Bench) -> None:
    box.put("data.csv", "1\n2\n3\n")
    box.put("math.py", "comb = None")
    box.put("mine.py", "print('run')")
    assert (await run(box, "sum(map(int, open('data.csv')))")).output == "6"
    assert (await run(box, "import math\nmath.comb(3, 1)")).output == "3"
    assert "No module named 'mine'" in (await run(box, "import mine")).output


async def test_an_error_tells_the_line_of_the_code_and_the_exit_code(box: Bench) -> None:
    result = await run(box, "def f(x):\n    return 1 / x\nf(0)")
    assert result.error == "The code exited with code 1"
    assert result.output == (
        "Traceback (most recent call last):\n"
        '  File "<evaluate>", line 3, in <module>\n    f(0)\n'
        '  File "<evaluate>", line 2, in f\n    return 1 / x\n'
        "           ~~^~~\nZeroDivisionError: division by zero"
    )
    broken = await run(box, "print('x'")
    assert "SyntaxError" in broken.output
    assert "evaluate_program" not in broken.output
    assert (await run(box, "import sys; sys.exit(3)")).error == "The code exited with code 3"


@pytest.mark.parametrize(
    "code",
    [
        "open('made', 'w')",
        "open('kept', 'a').write('x')",
        "import os; os.remove('kept')",
        "import os; os.rename('kept', 'made')",
        "import os; os.mkdir('made')",
        "import os; os.symlink('/etc', 'made')",
        "import os; os.truncate('kept', 0)",
        "import os; os.chmod('kept', 0o777)",
        "open('/usr/made', 'w')",
        "import os; os.fork()",
        "import os; os.execv('/bin/sh', ['sh', '-c', 'echo ESC''APED'])",
        "import subprocess; subprocess.run(['echo', 'ESC' 'APED'])",
        "import subprocess; subprocess.run('echo ESC''APED', shell=True, close_fds=False)",
        "import os; os.posix_spawn('/bin/echo', ['echo', 'ESC' 'APED'], {})",
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.socketpair()",
        "import multiprocessing; multiprocessing.Process(target=print).start()",
        "import _thread; _thread.start_new_thread(print, ('ESC' 'APED',))",
        "import os, signal; os.kill(1, signal.SIGKILL) or os.kill(os.getppid(), 9)",
    ],
)
async def test_what_is_more_than_computing_fails_and_names_the_tools_that_do_it(
    box: Bench, code: str
) -> None:
    kept = box.put("kept", "whole")
    mode = kept.stat().st_mode
    result = await run(box, f"{code}\nprint('ESC' 'APED')")
    assert not result.success
    assert "ESCAPED" not in result.output
    if "_thread" not in code:
        assert "file_write writes a file, shell runs a command" in result.error
    assert (kept.read_text(), kept.stat().st_mode) == ("whole", mode)
    assert [path.name for path in box.workspace.iterdir()] == ["kept"]


async def test_a_pipe_of_the_workspace_cannot_be_written_either(box: Bench) -> None:
    os.mkfifo(box.workspace / "pipe")
    reader = os.open(box.workspace / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for how in ("'w'", "'r+'"):
            result = await run(box, f"open('pipe', {how}).write('told')")
            assert "Permission denied" in result.output
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


_BY_NUMBER = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == 'x86_64'
def call(name, *args):
    number = {'fork': (57, 220), 'clone3': (435, 435), 'execve': (59, 221), 'socket': (41, 198),
              'ptrace': (101, 117), 'seccomp': (317, 277)}[name][not x86]
    return libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, args)), ctypes.get_errno()
"""


@pytest.mark.parametrize(
    "call",
    [
        "call('fork', 17, 0, 0, 0, 0)",
        "call('clone3', 0, 0)",
        "call('execve', 0, 0, 0)",
        "call('socket', 2, 1, 0)",
        "call('socket', 1, 1, 0)",
        "call('ptrace', 0, 0, 0, 0)",
    ],
)
async def test_no_library_gets_around_the_filter(box: Bench, call: str) -> None:
    assert (await run(box, _BY_NUMBER + call)).output in {"(-1, 1)", "(-1, 38)"}


async def test_a_program_is_not_started_by_os_system(box: Bench) -> None:
    result = await run(box, "import os\nos.system('echo ESC''APED > /tmp/x; echo ESC''APED')")
    assert "ESCAPED" not in result.output
    assert result.output in {"-1", "32512"}  # how libc says that it could not


async def test_it_cannot_raise_its_own_limits(box: Bench) -> None:
    code = (
        "import resource as r\n"
        "for kind in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE):\n"
        "    try: r.setrlimit(kind, (r.RLIM_INFINITY, r.RLIM_INFINITY)); print('raised')\n"
        "    except (ValueError, PermissionError): print('no')"
    )
    assert (await run(box, code)).output == "no\nno\nno\nno"


async def test_tmp_can_be_written_and_is_gone_afterwards(box: Bench) -> None:
    code = "import tempfile, os\nname = os.path.join(tempfile.gettempdir(), 'x')\n"
    written = await run(box, code + "open(name, 'w').write('abc')\nopen(name).read()")
    assert written.output == "'abc'"
    assert (await run(box, code + "os.path.exists(name)")).output == "False"


async def test_nothing_of_clawd_or_the_host_is_seen(box: Bench) -> None:
    (box.home / "receipts.key").write_text("top-secret")
    for path in (box.home / "receipts.key", Path("/etc/shadow"), Path(__file__)):
        result = await run(box, f"open({str(path)!r}).read()")
        assert not result.success
        assert "top-secret" not in result.output
    told = await run(box, "import os\nsorted(os.environ)")
    assert "CLAWD" not in told.output


async def test_endless_code_is_ended_with_what_it_printed(
    box: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = TimeLimit(monkeypatch)
    box.changes = {"shell_timeout_s": limit.seconds}
    box.heard = limit.is_over_at("begun")
    result = await run(box, "print('begun', flush=True)\nwhile True: pass")
    assert result.error == "The code was ended after 271.25 s"
    assert (result.output, result.metadata["timed_out"]) == ("begun", True)


async def test_too_much_memory_or_output_is_bounded(box: Bench) -> None:
    assert "MemoryError" in (await run(box, "len(bytearray(2 << 30))")).output
    box.changes = {"max_shell_output_bytes": 1000}
    flood = await run(box, "while True: print('x' * 99)")
    assert not flood.success
    assert "too much output" in flood.error or "ended after" in flood.error
    assert len(flood.output) < 1200


async def test_output_is_streamed(box: Bench) -> None:
    await run(box, "print('one')\nprint('two')")
    assert "".join(box.reported) == "one\ntwo\n"


async def test_cancelling_ends_it(box: Bench) -> None:
    begun = asyncio.Event()
    tool = box.tool("evaluate")
    context = msgspec.structs.replace(box.context(), report=lambda _text: begun.set())
    task = asyncio.create_task(tool.invoke({"code": "print(1)\nwhile True: pass"}, context))
    async with asyncio.timeout(60):
        await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_code_that_is_too_long_is_refused(bench: Bench) -> None:
    assert "at most 262144 are run" in (await run(bench, "#" * 300_000)).error


@pytest.mark.sandbox
async def test_in_a_full_sandbox_the_risk_is_low(bench: Bench) -> None:
    await bench.sandbox.probe()
    found = bench.risk("evaluate", code="1")
    assert (found.risk, found.blocked, found.outward) == ("low", "", None)
    assert bench.tool("evaluate").outward is False


@pytest.mark.landlock
async def test_in_the_lesser_sandbox_it_asks(bench: Bench) -> None:
    bench.sandbox = Sandbox(SandboxSettings(home=bench.home, levels=("landlock",)))
    await bench.sandbox.probe()
    assert bench.risk("evaluate", code="1").risk == "medium"


async def test_without_a_sandbox_it_is_blocked(bench: Bench) -> None:
    assert bench.risk("evaluate", code="1").blocked  # nobody has looked yet
    bench.sandbox = Sandbox(SandboxSettings(home=bench.home, levels=(), mode="preferred"))
    assert (await bench.sandbox.probe()).level == "none"
    found = bench.risk("evaluate", code="1")
    assert found.risk == "high"
    assert "in a sandbox only" in found.blocked
    bench.sandbox = Sandbox(SandboxSettings(home=bench.home, levels=()))
    with pytest.raises(SandboxUnavailableError):
        await run(bench, "1")


def test_it_reads_all_of_the_workspace_and_writes_nothing(bench: Bench) -> None:
    touched = bench.tool("evaluate").touches({"code": "1"}, bench.context())
    assert (touched.reads, touched.writes) == ((bench.workspace,), ())


def test_a_python_that_no_command_sees_is_not_taken(tmp_path: Path) -> None:
    hidden = tmp_path / "python3"
    hidden.write_text("#!/bin/sh\n")
    hidden.chmod(0o755)
    assert system_python(str(tmp_path)) == ""
    assert system_python(str(tmp_path / "nothing")) == ""
    link = tmp_path / "links"
    link.mkdir()
    (link / "python3").symlink_to(hidden)
    assert system_python(str(link)) == ""
    assert system_python()


def test_there_is_a_filter_for_this_machine_and_none_for_unknown_ones() -> None:
    assert compute_filter(platform.machine())
    assert compute_filter("riscv64") == b""


def test_it_answers_to_the_names_that_models_use() -> None:
    assert EvaluateTool.aliases == ("python3", "python")
