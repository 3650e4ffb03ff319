"""Which level the sandbox takes, and the second one, Landlock and seccomp, run for real."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import SandboxUnavailableError
from clawd.kernel import landlock
from clawd.security.sandbox.plan import ChildCommand, ResourceLimits
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Mode, Sandbox, SandboxSettings
from tests.security.test_sandbox_process import Run, processes_with
from tests.support.escape_run import NOT_STOPPED, attempts
from tests.support.rows import thorough

pytestmark = pytest.mark.landlock

_ROOT = Path(__file__).resolve().parents[2]
_ORPHANS = (
    "for i in $(seq 10); do (trap '' TERM HUP; (exec -a TAG sleep 300) & ) & done; "
    "(nohup bash -c '(exec -a TAG sleep 300) & (exec -a TAG sleep 300) &' >/dev/null 2>&1 &); "
)


class Place:
    """A workspace beside a secret, and a sandbox of this level."""

    def __init__(self, base: Path, **settings: Any) -> None:
        self.base = base
        self.home = base / "clawd-home"
        self.workspace = base / "work space"
        self.home.mkdir()
        self.workspace.mkdir()
        self.secret = self.home / "receipts.key"
        self.secret.write_text("top-secret")
        self.sandbox = Sandbox(
            SandboxSettings(home=self.home, levels=("landlock",), **settings),
        )

    async def sh(self, script: str, **options: Any) -> ChildResult:
        return await self.sandbox.run(
            ChildCommand(argv=("bash", "-c", script), workspace=self.workspace, **options)
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- which level


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which

    def which(name: str, path: str | None = None) -> str | None:
        return None if name == "bwrap" else real(name, path=path)

    monkeypatch.setattr(shutil, "which", which)


async def test_without_bubblewrap_landlock_is_taken_and_says_what_it_lacks(
    no_bubblewrap: None,
) -> None:
    status = await Sandbox(SandboxSettings()).probe()
    assert (status.level, status.program) == ("landlock", "")
    assert status.reason.startswith("bubblewrap is not installed; Landlock and seccomp stand in")


async def test_a_bubblewrap_that_may_not_make_namespaces_is_no_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text(
        "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
    )
    refusing.chmod(0o755)
    real = shutil.which

    def which(name: str, path: str | None = None) -> str | None:
        return str(refusing) if name == "bwrap" else real(name, path=path)

    monkeypatch.setattr(shutil, "which", which)
    status = await Sandbox(SandboxSettings()).probe()
    assert status.level == "landlock"
    assert "setting up uid map: Permission denied" in status.reason


@pytest.mark.parametrize(
    ("version", "said"), [(0, "no Landlock"), (5, "version 5; 6 (Linux 6.12) is needed")]
)
async def test_a_landlock_that_cannot_hold_signals_counts_as_none(
    no_bubblewrap: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int, said: str
) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: version)
    sandbox = Sandbox(SandboxSettings())
    status = await sandbox.probe()
    assert status.level == "none"
    assert said in status.reason
    assert not sandbox.is_available
    with pytest.raises(SandboxUnavailableError):
        await sandbox.run(ChildCommand(argv=("true",), workspace=tmp_path))


@pytest.mark.parametrize("mode", ["required", "preferred"])
async def test_landlock_is_enough_where_a_sandbox_is_required(
    no_bubblewrap: None, tmp_path: Path, mode: Mode
) -> None:
    sandbox = Sandbox(SandboxSettings(mode=mode))
    result = await sandbox.run(ChildCommand(argv=("true",), workspace=tmp_path))
    assert (result.level, result.exit_code) == ("landlock", 0)


# --- what works, what does not


async def test_the_workspace_and_a_folder_of_the_call_can_be_written(place: Place) -> None:
    result = await place.sh(
        "pwd; mkdir a; echo one > a/one; mv a/one two; cat two; rm -r a; "
        'echo mine > "$TMPDIR/x"; cat "$HOME/x"; readlink -f "$TMPDIR"'
    )
    *lines, folder = result.output.splitlines()
    assert lines == [str(place.workspace), "one", "mine"]
    assert [path.name for path in place.workspace.iterdir()] == ["two"]
    assert not Path(folder).exists()


async def test_what_a_call_leaves_in_its_folder_is_removed_and_no_link_is_followed(
    place: Place,
) -> None:
    outside = place.base / "outside"
    outside.mkdir(mode=0o500)
    result = await place.sh(
        f'mkdir -m 0 "$TMPDIR/closed"; mkdir -p "$TMPDIR/a/b"; ln -s "{outside}" "$TMPDIR/a/link"; '
        "python3 -c \"import os; os.fchmod(os.open(os.environ['TMPDIR'] + '/a', 0), 0)\"; "
        'echo "$TMPDIR"'
    )
    assert not Path(result.output.strip()).exists()
    assert outside.stat().st_mode & 0o777 == 0o500


async def test_common_programs_work(place: Place) -> None:
    result = await place.sh(
        "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a "
        "GIT_COMMITTER_EMAIL=a@b; git init -q; echo x > f; git add f; git commit -qm m; "
        "git log --format=%s; tar cf a.tar f; mkdir t; tar xf a.tar -C t; cat t/f; "
        "sed -i s/x/y/ f; cat f; printf '#!/bin/sh\nexit 7' > p; chmod +x p; ./p || "
        "echo $?; chmod 600 f; cp -p f g; stat -c %a g; cat <(echo substituted); "
        "echo b | xargs -P2 echo; "
        "python3 -c 'import tempfile, subprocess, threading; tempfile.mkdtemp(); "
        'print(subprocess.run(["echo", "child"], capture_output=True).stdout)\''
    )
    assert result.output.split("\n") == [
        "m",
        "x",
        "y",
        "7",
        "600",
        "substituted",
        "b",
        "b'child\\n'",
        "",
    ]


async def test_modes_and_times_change_within_the_workspace_alone(place: Place) -> None:
    outside = place.base / "outside"
    outside.write_text("x")
    outside.chmod(0o640)
    os.utime(outside, ns=(5, 5))
    (place.workspace / "link").symlink_to(outside)
    result = await place.sh(
        f"""
        mkdir d; touch d/f; chmod 600 d/f; cd d; chmod +x f; touch -d @86400 ../d/f
        stat -c '%a %Y' f
        for p in '{outside}' ../link ../../outside; do chmod 777 "$p"; touch -d @1 "$p"; done
        python3 -c '
import os
folder = os.open("..", os.O_RDONLY)
os.chmod("d", 0o711, dir_fd=folder); print(oct(os.stat(".").st_mode))
for path, more in (("{outside}", {{}}), ("link", {{"dir_fd": folder}}), ("../outside", {{"dir_fd": folder}})):
    for change in (lambda: os.chmod(path, 0o777, **more), lambda: os.utime(path, (1, 1), **more)):
        try: change()
        except PermissionError: pass
        else: print("changed", path)
' 2>&1
        """  # noqa: E501
    )
    refusals = ("not permitted", "Permission denied")
    lines = result.output.splitlines()
    assert [line for line in lines if not line.endswith(refusals)] == [
        "700 86400", "0o40711",
    ]  # fmt: skip
    about = outside.stat()
    assert (about.st_mode & 0o777, about.st_mtime_ns) == (0o640, 5)


async def test_what_is_open_for_reading_is_not_changed_either(place: Place) -> None:
    shown = place.base / "shown"
    shown.write_text("x")
    shown.chmod(0o640)
    os.utime(shown, ns=(5, 5))
    before = shown.stat()
    script = f"""
import ctypes, fcntl, os
f = os.open("{shown}", os.O_RDONLY)
own = os.open("own", os.O_RDWR | os.O_CREAT, 0o600)
changes = {{
    "mode": lambda of: os.fchmod(of, 0o755), "times": lambda of: os.utime(of, (1, 1)),
    "owner": lambda of: os.fchown(of, os.getuid(), os.getgid()),
    "attribute": lambda of: os.setxattr(of, "user.a", b"1"),
    "flags": lambda of: fcntl.ioctl(of, 0x40086602, bytes(8)),
    "all of a user": lambda of: os.setpriority(os.PRIO_USER, 0, 5),
}}
for what, change in changes.items():
    for name, of in (("shown", f), ("own", own)):
        try: change(of); print(what, name)
        except OSError: pass
# Addresses where nothing is; whoever answers must live on.
for address in (5, 2**64 - 5, 2**63):
    assert ctypes.CDLL(None).chmod(ctypes.c_void_p(address), 0o777) == -1
os.fchmod(own, 0o604)
print(oct(os.fstat(own).st_mode & 0o777))
"""
    result = await place.sh(
        "cat > s.py; python3 s.py", stdin=script.encode(), readonly_paths=(shown,)
    )
    assert result.output.splitlines() == ["mode own", "times own", "owner own", "0o604"]
    after = shown.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert after.st_ctime_ns == before.st_ctime_ns


async def test_in_a_read_only_workspace_no_mode_changes(place: Place) -> None:
    (place.workspace / "f").write_text("x")
    (place.workspace / "f").chmod(0o640)
    result = await place.sh("chmod 777 f", workspace_writable=False)
    assert "not permitted" in result.output
    assert (place.workspace / "f").stat().st_mode & 0o777 == 0o640


async def test_a_read_only_workspace_and_further_paths_stay_as_they_are(place: Place) -> None:
    more = place.base / "more"
    more.mkdir()
    (more / "text").write_text("to read")
    result = await place.sh(
        f"cat {more}/text; echo x > {more}/text; echo x > new; rm -f {more}/text",
        workspace_writable=False,
        readonly_paths=(more,),
    )
    assert result.output.startswith("to read")
    assert result.output.count("Permission denied") == 3
    assert (more / "text").read_text() == "to read"
    assert list(place.workspace.iterdir()) == []


async def test_no_descriptor_variable_or_capability_of_ours_is_inherited(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    with place.secret.open() as held:
        os.set_inheritable(held.fileno(), True)
        result = await place.sh(
            "env; python3 -c '\n"
            "import os, fcntl\n"
            "for n in range(200):\n"
            "    try: fcntl.fcntl(n, fcntl.F_GETFD)\n"
            "    except OSError: continue\n"
            '    print("open", n)\''
        )
    assert "sk-very-secret" not in result.output
    assert [line for line in result.output.splitlines() if line.startswith("open")] == [
        "open 0", "open 1", "open 2",
    ]  # fmt: skip


async def test_root_has_no_capability_there(place: Place) -> None:
    script = "import ctypes; d = (ctypes.c_uint * 6)(); h = (ctypes.c_uint * 2)(0x20080522, 0)\n"
    script += "ctypes.CDLL(None).capget(h, d); print(list(d))"
    result = await place.sh(f"python3 -c '{script}'")
    assert result.output == "[0, 0, 0, 0, 0, 0]\n"


async def test_a_forbidden_path_in_the_workspace_refuses_the_call(tmp_path: Path) -> None:
    secret = tmp_path / "work space" / "secrets"
    place = Place(tmp_path, forbidden_paths=(secret,))
    assert (await place.sh("echo fine")).output == "fine\n"
    secret.mkdir()
    with pytest.raises(SandboxUnavailableError, match="secrets is forbidden"):
        await place.sh("cat secrets/*")


async def test_there_is_no_network_and_there_are_no_unix_sockets(place: Place) -> None:
    connect = (
        "import socket, sys\n"
        'try: socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2); print("reached")\n'
        "except OSError as e: print(e.strerror)\n"
        'try: socket.socket(socket.AF_UNIX); print("unix")\n'
        "except OSError as e: print(e.strerror)"
    )
    async with await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        closed = await place.sh(f"python3 -c '{connect}' {port}")
    assert closed.output == "Operation not permitted\n" * 2


async def test_processes_are_counted_beside_those_of_the_user(tmp_path: Path) -> None:
    place = Place(tmp_path, limits=ResourceLimits(processes=40))
    limit = int((await place.sh("ulimit -u")).output)
    if os.getuid() == 0:  # whom no such limit binds
        assert limit == 40
    else:
        assert limit >= 40 + threading.active_count()


# --- how it ends


async def test_orphans_and_those_that_ignore_signals_die_with_the_command(tmp_path: Path) -> None:
    run = Run(tmp_path, level="landlock")
    result = await run(_ORPHANS + "echo ready")
    assert (result.output, result.exit_code, result.ended_by) == ("ready\n", 0, "exit")
    assert processes_with(run.tag) == []


async def test_a_stop_that_kills_the_first_process_kills_all(tmp_path: Path) -> None:
    run = Run(tmp_path, level="landlock")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run(_ORPHANS + "echo ready; sleep 300"))
        async with asyncio.timeout(60):
            await run.ready.wait()
        (leader,) = run.registry.held
        run.registry.stop()
    assert leader >= 0
    assert task.result().exit_code == 128 + signal.SIGKILL
    assert processes_with(run.tag) == []


async def test_a_command_whose_keeper_dies_dies_too(tmp_path: Path) -> None:
    run = Run(tmp_path, level="landlock")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run(_ORPHANS + "echo ready; sleep 300"))
        async with asyncio.timeout(60):
            await run.ready.wait()
        (keeper,) = (
            pid for pid in processes_with("confine_program") if _parent_of(pid) == os.getpid()
        )
        os.kill(keeper, signal.SIGKILL)
    assert task.result().exit_code != 0
    _wait_until_gone(run.tag)


def test_a_daemon_that_is_killed_leaves_no_command_behind(tmp_path: Path) -> None:
    tag = f"clawd-test-{os.getpid()}-{time.monotonic_ns()}"
    program = (
        "import asyncio, sys\n"
        "from tests.security.test_sandbox_process import Run\n"
        "from pathlib import Path\n"
        f"run = Run(Path({str(tmp_path)!r}), level='landlock')\n"
        f"run.tag = {tag!r}\n"
        "run.heard = lambda text: print(text, end='', flush=True)\n"
        f"asyncio.run(run({_ORPHANS + 'echo ready; sleep 300'!r}))\n"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == b"ready\n"
        assert processes_with(tag)
        it.kill()
    _wait_until_gone(tag)


async def test_a_filter_that_the_kernel_refuses_runs_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.security.sandbox.run.filter_program", lambda _machine: bytes(8))
    with pytest.raises(SandboxUnavailableError, match="Invalid argument"):
        await place.sh("echo ran > proof")
    assert not (place.workspace / "proof").exists()


def _parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return 0


def _wait_until_gone(tag: str) -> None:
    deadline = time.monotonic() + 60
    while left := processes_with(tag):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


# --- the attempts to get out


@pytest.mark.escape
@pytest.mark.timeout(540)
def test_every_attempt_to_get_out_fails_but_for_the_known_ones() -> None:
    # One test for all: each would start the stand-ins of its worker's share anew.
    few = [] if thorough() else ["few"]
    base = tempfile.mkdtemp(prefix="clawd-escape-", dir="/tmp")
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.support.escape_run", base, "landlock", *few],
            cwd=_ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        results = json.loads(ran.stdout)["sandbox"]
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", base], check=False)
        shutil.rmtree(base)
    assert set(results) == set(attempts(landlock=True, few=bool(few)))
    escaped = {name: (found, output) for name, (found, output) in results.items() if found}
    assert set(escaped) == NOT_STOPPED, escaped
